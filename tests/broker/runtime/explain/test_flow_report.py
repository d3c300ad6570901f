"""Explanation of stopped publishers, collected from three nodes; no sockets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.broker.runtime.flow_world import FakeHost, World, account_of, bring

from headrace_broker.catalog.command import (
    DeclareQueue,
    DeleteQueue,
    PutVhost,
    SetUserLimits,
    SetVhostLimits,
)
from headrace_broker.catalog.viewer import Viewer
from headrace_broker.model.definition import Vhost
from headrace_broker.model.flow import (
    BLOCKED,
    LIMIT_ACCOUNT,
    LIMIT_COMMANDS,
    LIMIT_MEMORY,
    LIMIT_RATE,
    LIMIT_WATERMARK,
)
from headrace_broker.model.flow_status import AlarmStatus
from headrace_broker.runtime.contract.port import ConnectionInfo
from headrace_broker.runtime.explain import flow_report
from headrace_broker.runtime.explain.flow_report import (
    AmbiguousNameError,
    FlowReport,
    UnknownNameError,
)
from headrace_broker.runtime.rpc import listing as listings


@pytest.fixture
def world() -> World:
    return World()


def ask(world: World, node: int, work: Callable[[FlowReport], Any]) -> Any:
    async def session() -> Any:
        async with asyncio.timeout(20):
            return await work(world.nodes[node].report)

    return asyncio.run(session())


@pytest.fixture
def slow(world: World) -> tuple[World, ConnectionInfo, ConnectionInfo, FakeHost]:
    """A queue led on n2 that defers confirms; the culprit is on n3, the victim on n1."""
    host = world.lead(2, "orders")
    victim, culprit = world.connect(1, 5), world.connect(3, 9, "batch")
    host.machine.saturated, host.machine.deferred_count = True, 40
    host.machine.held_bytes, host.machine.high_watermark_bytes = 70 << 20, 64 << 20
    host.machine.consumer_count = host.machine.busy = 3
    for _ in range(10):
        victim.flow.stop(LIMIT_WATERMARK, host.queue.group, world.now)
        bring(victim, host, 10, 1000)
        bring(culprit, host, 90, 9000)
        arrived, delivered, settled = host.moves.now
        host.moves.now = (arrived + 100, delivered + 20, settled + 20)
        world.pass_time(0.8)
        victim.flow.go(world.now)
        world.pass_time(0.2)
    return world, victim, culprit, host


@pytest.mark.parametrize("node", [1, 2, 3])
def test_the_culprit_on_another_node_is_named_from_every_node(slow: Any, node: int) -> None:
    world, victim, _, _ = slow
    found = ask(world, node, lambda report: report.why_connection(victim.id))
    assert (found.limit, found.queue, found.leader, found.state) == (
        "watermark",
        "orders",
        "n2",
        "flow",
    )
    assert found.shares[1] == pytest.approx(0.8, abs=0.03)
    assert [cause.user for cause in found.causes] == ["batch", "app"]
    assert found.causes[0].share == pytest.approx(0.9)
    assert found.sentence == (
        "conn 10.0.0.5:4711 (user app, vhost /) had confirms deferred 80 % of the last 10 s by "
        "queue 'orders' (leader n2): its watermark of 64 MiB is passed because its 3 consumers, "
        "whose prefetch is full, acknowledge 20/s of 100/s; 90 % of its load "
        "came from 10.0.0.9:4711 (user batch)"
    )


@pytest.mark.parametrize("name", ["n1/1/5", "10.0.0.5:4711", "10.0.0.5", "10.0.0.5:4711 -> 10"])
def test_a_connection_goes_by_its_name_its_id_or_their_beginning(slow: Any, name: str) -> None:
    world, victim, _, _ = slow
    for work in (lambda report: report.why_connection(name), lambda report: report.why(name, "/")):
        found = ask(world, 2, work)
        assert (found.kind, found.name) == ("connection", victim.name)


def test_a_connection_goes_by_the_name_that_its_client_gave_it(slow: Any) -> None:
    world, victim, culprit, _ = slow
    victim.client_properties = {"connection_name": "till"}
    culprit.client_properties = {"connection_name": "tills"}
    found = ask(world, 1, lambda report: report.why_connection("till"))
    assert found.name == victim.name
    with pytest.raises(AmbiguousNameError, match=r"'til' may be '10.0.0.5.*, '10.0.0.9.* say more"):
        ask(world, 1, lambda report: report.why_connection("til"))


def test_a_name_that_is_nowhere_or_in_several_places_is_refused(
    slow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, *_ = slow
    with pytest.raises(UnknownNameError, match=r"no connection has a name that begins with '10.9'"):
        ask(world, 1, lambda report: report.why_connection("10.9"))
    with pytest.raises(UnknownNameError, match=r"no connection, and no queue in vhost '/'"):
        ask(world, 1, lambda report: report.why("gone", "/"))
    world.lead(1, "10.0-queue")
    with pytest.raises(AmbiguousNameError, match=r"connection '10.0.0.5.*queue '10.0-queue'"):
        ask(world, 1, lambda report: report.why("10.0", "/"))
    monkeypatch.setattr(flow_report, "FLOW_CANDIDATES_MAX", 1)
    with pytest.raises(AmbiguousNameError, match=r"5672', 2 more: say"):
        ask(world, 1, lambda report: report.why("10.0", "/"))
    world.links.down = {2, 3}
    with pytest.raises(UnknownNameError, match=r"begins with '10.9'; no answer from n2, n3"):
        ask(world, 1, lambda report: report.why_connection("10.9"))


def test_a_queue_is_explained_by_its_name_or_the_beginning_of_it(slow: Any) -> None:
    world, victim, _, _ = slow
    for work in (lambda report: report.why("orders", "/"), lambda report: report.why("ord", "/")):
        found = ask(world, 3, work)
        assert (found.kind, found.name, found.limit) == ("queue", "orders", "watermark")
        assert [row.name for row in found.held] == [victim.name]
        assert found.causes[0].user == "batch"


def test_without_its_leader_a_queue_is_explained_as_far_as_that_goes(slow: Any) -> None:
    world, victim, _, _ = slow
    world.links.down = {2}
    found = ask(world, 1, lambda report: report.why_connection(victim.id))
    assert found.missing == ("n2",)
    assert found.sentence.startswith(
        "conn 10.0.0.5:4711 (user app, vhost /) had confirms deferred 80 % of the last 10 s by "
        "queue 'orders' (leader unknown)"
    )


def test_a_queue_is_explained_without_calling_the_load_of_others_ones_own(slow: Any) -> None:
    world, _, _, _ = slow
    viewer = Viewer("app", False, lambda vhost: True)
    found = ask(world, 1, lambda report: report.why("orders", "/", viewer))
    assert found.sentence.endswith("; 90 % of its load came from another user's connection")


def test_users_see_their_own_connections_and_not_who_the_others_are(slow: Any) -> None:
    world, victim, culprit, _ = slow
    viewer = Viewer("app", False, lambda vhost: True)
    found = ask(world, 1, lambda report: report.why_connection(victim.id, viewer))
    assert found.sentence.endswith("; 90 % of its load came from another user's connection")
    assert {(cause.name, cause.user, cause.account) for cause in found.causes} == {
        ("", "", ""),
        (victim.name, "app", victim.id),
    }
    with pytest.raises(UnknownNameError):
        ask(world, 1, lambda report: report.why_connection(culprit.id, viewer))
    edges, _ = ask(world, 1, lambda report: report.graph(viewer))
    assert [(edge.name, edge.user) for edge in edges] == [("", ""), (victim.name, "app")]
    rows = ask(world, 1, lambda report: report.top(9, viewer)).connections()
    assert [row.name for row in rows] == [victim.name]
    stranger = Viewer("app", False, lambda vhost: False)
    assert ask(world, 1, lambda report: report.graph(stranger)) == ([], ())
    assert ask(world, 1, lambda report: report.queues(stranger)).rows == []
    with pytest.raises(UnknownNameError):
        ask(world, 1, lambda report: report.why("orders", "/", stranger))


def test_an_alarm_tells_nobody_of_queues_in_vhosts_that_they_may_not_see(slow: Any) -> None:
    world, victim, _, host = slow
    world.do(PutVhost(Vhost("hidden")))
    world.do(DeclareQueue("hidden", "secret", "quorum", preferred_node=3, replicas=1))
    secret = world.catalog.queue("hidden", "secret")
    assert secret is not None
    stranger = world.connect(3, 8, "bob")
    account_of(stranger).cause.vhost = "hidden"
    bring(victim, host, 10, 1000, kept=10)
    account_of(stranger).balance(secret.group).borrow(1000, 1 << 20)
    victim.flow.stop(LIMIT_MEMORY, 0, world.now)
    world.pass_time(10)

    def told(viewer: Viewer) -> set[tuple[str, str]]:
        found = ask(world, 1, lambda report: report.why_connection(victim.id, viewer))
        assert found.limit == "memory-alarm"
        return {(cause.vhost, cause.queue) for cause in found.causes}

    assert told(Viewer("app", False, lambda vhost: vhost == "/")) == {("/", "orders"), ("", "")}
    assert told(Viewer("root", True, lambda vhost: True)) == {("/", "orders"), ("hidden", "secret")}


HIDES_ALL = Viewer("app", False, lambda vhost: False)


def mentions(found: Any) -> str:
    """Everything that is told, as text."""
    return msgspec.json.encode(found).decode()


def test_a_connection_whose_permission_is_gone_names_no_vhost_and_no_queue(slow: Any) -> None:
    world, victim, _, _ = slow
    world.do(PutVhost(Vhost("private")))
    world.do(DeclareQueue("private", "ledger", "quorum", preferred_node=2, replicas=1))
    ledger = world.catalog.queue("private", "ledger")
    assert ledger is not None
    victim.vhost = account_of(victim).cause.vhost = "private"
    account_of(victim).balance(ledger.group).borrow(3, 300)
    victim.flow.stop(LIMIT_WATERMARK, ledger.group, world.now)
    world.pass_time(20)
    found = ask(world, 1, lambda report: report.why_connection(victim.id, HIDES_ALL))
    assert found.sentence == (
        "conn 10.0.0.5:4711 (user app) had confirms deferred 100 % of the last 10 s by a queue of "
        "another vhost"
    )
    assert (found.vhost, found.queue, found.limit) == ("", "", "watermark")
    assert {(cause.vhost, cause.queue) for cause in found.causes} == {("", "")}
    assert "queue" not in found.details
    for told in (
        found,
        ask(world, 1, lambda report: report.top(9, HIDES_ALL)).rows,
        ask(world, 1, lambda report: report.graph(HIDES_ALL)),
    ):
        assert not {"private", "ledger", "orders"} & set(re.findall(r"\w+", mentions(told)))
    [row] = ask(world, 1, lambda report: report.top(9, HIDES_ALL)).connections()
    assert (row.vhost, row.flow.group, row.flow.by_limit["watermark"][3]) == ("", 0, 0)
    monitor = ask(world, 1, lambda report: report.why_connection(victim.id))
    assert (monitor.vhost, monitor.queue) == ("private", "ledger")


def test_a_connection_hears_of_the_queue_for_whose_confirms_it_waits(world: World) -> None:
    host, other = world.lead(2, "orders"), world.lead(3, "other")
    host.machine.consumer_count = 3
    info = world.connect(1, 5)
    bring(info, host, 500, 5000, kept=400)
    bring(info, other, 500, 5000, kept=300)

    def why() -> Any:
        return ask(world, 3, lambda report: report.why_connection(info.id))

    assert (why().limit, why().queue) == ("", "")
    other.behind = True
    assert (why().limit, why().queue) == ("", "")
    host.behind = True
    found = why()
    assert (found.state, found.limit, found.queue) == ("running", "queue-outflow", "orders")
    assert (found.leader, found.since_ms) == ("n2", 0)
    assert "goes at the pace of queue 'orders' (leader n2): publishers bring" in found.sentence


def test_a_publish_rate_is_told_without_the_vhost_that_may_not_be_seen(world: World) -> None:
    world.do(SetUserLimits("app", {"publish-rate-messages": 100}))
    world.do(SetVhostLimits("/", {"publish-rate-messages": 7}))
    info = world.connect(1, 5)
    info.flow.stop(LIMIT_RATE, 0, world.now)
    world.pass_time(1)
    found = ask(world, 2, lambda report: report.why_connection(info.id, HIDES_ALL))
    assert "user 'app' may publish 100 messages per second" in found.sentence
    assert "vhost '" not in found.sentence + found.hint
    assert " 7 " not in found.sentence


def test_a_debt_is_explained_by_the_queue_where_most_is_owed(world: World) -> None:
    small, large = world.lead(1, "small"), world.lead(2, "large")
    debtor = world.connect(1, 5)
    bring(debtor, small, 100, 1000, kept=100)
    bring(debtor, large, 1000, 50_000, kept=1000)
    debtor.flow.stop(LIMIT_ACCOUNT, 0, world.now)
    world.pass_time(5)
    found = ask(world, 3, lambda report: report.why_connection(debtor.id))
    assert (found.limit, found.queue, found.leader) == ("account", "large", "n2")
    assert "it has caused 1,100 messages (50 KiB) that are not done" in found.sentence
    assert found.since_ms == 5000


def test_an_alarm_names_its_node_and_the_largest_queue(world: World) -> None:
    small, large = world.lead(1, "small"), world.lead(2, "large")
    small.machine.ready_bytes, large.machine.ready_bytes = 10, 3 << 20
    info = world.connect(1, 5)
    bring(info, large, 10, 1000)
    alarm = AlarmStatus("n3", "memory-alarm", "memory used: 9 of 8")
    for node in world.nodes.values():
        node.facts.alarms = lambda: [alarm]
    info.state = BLOCKED
    info.flow.stop(LIMIT_MEMORY, 0, world.now)
    world.pass_time(3)
    found = ask(world, 2, lambda report: report.why_connection(info.id))
    assert (found.state, found.leader) == ("blocked", "n3")
    assert found.sentence.endswith(
        "has been blocked for 3.0 s by the memory alarm of node n3: memory used: 9 of 8; the "
        "largest queue is 'large' (3 MiB); 100 % of what publishers brought lately is this "
        "connection's own"
    )


def test_a_publish_rate_is_told_with_its_figures(world: World) -> None:
    world.do(SetUserLimits("app", {"publish-rate-messages": 100}))
    info = world.connect(1, 5)
    info.flow.stop(LIMIT_RATE, 0, world.now)
    world.pass_time(1)
    found = ask(world, 2, lambda report: report.why_connection(info.id))
    assert "user 'app' may publish 100 messages per second" in found.sentence


def test_the_top_is_sorted_by_how_much_is_stopped(world: World) -> None:
    host = world.lead(2, "q")
    infos = [world.connect(1 + number % 3, number) for number in range(9)]
    for number, info in enumerate(infos[:5]):
        info.flow.stop(LIMIT_COMMANDS, host.queue.group, world.now)
        info.flow.go(world.now + (number + 1) * 100_000)
    world.pass_time(1)
    found = ask(world, 3, lambda report: report.top(4))
    assert [row.id for row in found.connections()] == [infos[n].id for n in (4, 3, 2, 1)]
    assert [row.state for row in found.connections()] == ["flow"] * 4
    assert found.connections()[0].flow.by_limit["queue-commands"][3] == host.queue.group
    assert len(ask(world, 3, lambda report: report.top(100)).rows) == 9


def test_a_node_names_as_many_as_the_bound_says(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_report, "FLOW_ROWS_MAX", 3)
    monkeypatch.setattr(listings, "ANSWER_BYTES_MAX", 1500)  # some answers need pages
    host = world.lead(1, "q")
    for number in range(7):
        bring(world.connect(2, number), host, 1, 100 + number, kept=1)
    assert len(ask(world, 1, lambda report: report.top(7)).rows) == 3


def test_the_graph_has_an_edge_for_each_debt_with_the_limit_that_binds(slow: Any) -> None:
    world, victim, culprit, host = slow
    victim.flow.stop(LIMIT_WATERMARK, host.queue.group, world.now)
    edges, missing = ask(world, 2, lambda report: report.graph())
    assert missing == ()
    assert [(edge.account, edge.queue, edge.limit) for edge in edges] == [
        (culprit.id, "orders", ""),
        (victim.id, "orders", "watermark"),
    ]
    assert edges[0].load == pytest.approx(9 * edges[1].load, rel=0.001)


def test_queues_are_listed_with_their_rates_the_saturated_first(slow: Any) -> None:
    world, _, _, host = slow
    large = world.lead(1, "large")
    large.machine.ready_bytes = 1 << 30
    world.lead(3, "empty")
    rows = ask(world, 3, lambda report: report.queues()).queues()
    assert [row.name for row in rows] == ["orders", "large", "empty"]
    assert rows[0].arrived == pytest.approx((100 / 1, 100, 1000 / 60), rel=0.3)
    assert (rows[0].node, rows[0].deferred, rows[0].busy) == ("n2", 40, 3)
    host.serving = False
    assert len(ask(world, 3, lambda report: report.queues()).rows) == 2


def test_a_queue_that_stands_still_costs_no_history(slow: Any) -> None:
    world, _, _, host = slow
    rates = world.nodes[2].rates
    assert rates.rates(host.queue.group)[0][1] > 0
    for _ in range(62):
        world.pass_time(1)
    assert rates.rates(host.queue.group) == ((0.0, 0.0, 0.0),) * 3
    assert not rates._histories
    host.moves.now = (1010, 210, 210)
    world.pass_time(1)
    assert rates.rates(host.queue.group)[0] == (10.0, 1.0, pytest.approx(1 / 6))
    del world.nodes[2].hosts[host.queue.group]
    world.pass_time(1)
    assert (rates._histories, rates._quiet) == ({}, {})


def test_a_queue_that_is_deleted_while_nodes_are_asked_is_explained_without_its_leader(world):
    world.lead(2, "orders")
    queue = world.catalog.queue("/", "orders")

    async def explain(report: FlowReport) -> Any:
        world.nodes[2].hosts.clear()
        world.do(DeleteQueue("/", "orders"))
        return await report.why_queue(queue)

    found = ask(world, 1, explain)
    assert (found.name, found.node) == ("orders", "")
    assert "queue" not in found.details  # no node has told its figures


@pytest.fixture
def left(world: World) -> tuple[World, ConnectionInfo, FakeHost]:
    """A queue led on n2 that an account on n3 filled and left; the victim on n1 published once."""
    host = world.lead(2, "hot")
    culprit = world.connect(3, 9, "batch")
    account_of(culprit).cause.client_name = "culprit"
    bring(culprit, host, 35_024, 70_048_000)
    world.pass_time(1)
    account_of(culprit).close_balance(host.queue.group)
    del world.nodes[3].connections[culprit.id]
    world.nodes[3].ledger.close(account_of(culprit))
    world.pass_time(40)
    victim = world.connect(1, 5)
    victim.flow.stop(LIMIT_WATERMARK, host.queue.group, world.now)
    bring(victim, host, 1, 200)
    machine = host.machine
    machine.saturated, machine.deferred_count = True, 1
    machine.ready_count, machine.ready_bytes = 35_025, 70_048_200
    machine.held_bytes, machine.high_watermark_bytes = 70_048_200, 64 << 20
    world.pass_time(5)
    return world, victim, host


@pytest.mark.parametrize("node", [1, 2, 3])
def test_who_filled_a_queue_and_left_is_named_and_not_the_victim(left: Any, node: int) -> None:
    world, victim, _ = left
    found = ask(world, node, lambda report: report.why_connection(victim.id))
    assert found.sentence.endswith(
        "because it has no consumers and 35,025 messages; 35,024 of its 35,025 messages (67 MiB of "
        "67 MiB) were brought by culprit (10.0.0.9:4711, user batch), which is gone and brought "
        "the last of them 45 s ago; this connection brought 1 of them"
    )
    assert [(cause.user, cause.gone) for cause in found.causes] == [("batch", True), ("app", False)]
    found = ask(world, node, lambda report: report.why("hot", "/"))
    assert "35,024 of its 35,025 messages" in found.sentence
    assert "this connection" not in found.sentence


def test_of_who_left_another_user_learns_the_figures_and_no_name(left: Any) -> None:
    world, victim, _ = left
    viewer = Viewer("app", False, lambda vhost: True)
    for found in (
        ask(world, 1, lambda report: report.why(victim.id, "/", viewer)),
        ask(world, 1, lambda report: report.why("hot", "/", viewer)),
    ):
        assert "brought by another user's connection, which is gone" in found.sentence
        told = repr(found)
        assert not any(word in told for word in ("culprit", "10.0.0.9", "batch", "n3"))
    own = Viewer("batch", False, lambda vhost: True)
    found = ask(world, 1, lambda report: report.why("hot", "/", own))
    assert "brought by culprit (10.0.0.9:4711, user batch), which is gone" in found.sentence
    blind = Viewer("app", False, lambda vhost: False)
    found = ask(world, 1, lambda report: report.why_connection(victim.id, blind))
    assert "35,02" not in found.sentence
    assert found.shares_of == "load"
    assert "hot" not in repr(found)


def test_what_a_node_knew_before_its_restart_and_what_an_older_one_knows_is_unknown(
    left: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, victim, _ = left
    world.nodes[3].ledger.brought.queues.clear()  # as after its restart
    found = ask(world, 1, lambda report: report.why_connection(victim.id))
    assert found.sentence.endswith(
        "(200 B of 67 MiB) was brought by this connection itself; no node that answered remembers "
        "who brought 35,024 of its 35,025 messages"
    )
    assert [cause.kind for cause in found.causes] == ["unknown", "connection"]
    monkeypatch.setattr(world.nodes[1].facts, "_brought", lambda question: [])  # knows no such part
    found = ask(world, 1, lambda report: report.why_connection(victim.id))
    assert "; no node that answered remembers who brought its 35,025 messages; " in found.sentence
