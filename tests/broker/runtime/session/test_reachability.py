"""Clients of a queue without a leader that can be reached are told so after a bounded time."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import LEADERLESS_MS
from headrace_broker.model.reply_code import INTERNAL_ERROR, AmqpError
from headrace_broker.runtime.contract.port import Attachment, PendingConfirm
from headrace_broker.runtime.session.reachability import CatalogReach, LeaderView, Reachability

QUEUE = Queue("/", "work", "quorum", 7, (1, 2, 3))


class Logs:
    """Knows one leader."""

    def __init__(self, leader: int) -> None:
        self._leader = leader

    def leader(self, group: int) -> int:
        return self._leader


class Replica:
    """Leads or not."""

    def __init__(self, leading: bool) -> None:
        self.leading = leading


class Session:
    """Notes that it is told."""

    def __init__(self) -> None:
        self.queue = QUEUE
        self.answered = False
        self.waits = True
        self.texts: list[str] = []

    def unreachable(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.parametrize(
    ("leader", "up", "expected"),
    [
        (1, {2: 5, 3: 0}, True),
        (1, {2: 0, 3: 0}, False),  # it steps down by itself, some time later
        (2, {2: 5, 3: 0}, True),
        (2, {2: 0, 3: 5}, False),
        (0, {2: 5, 3: 5}, False),
    ],
)
def test_replica_here_knows_the_leader(leader: int, up: dict[int, int], expected: bool) -> None:
    view = LeaderView(1, Logs(leader), {7: Replica(leader == 1)}, {}, up)
    assert view.has_leader(QUEUE) is expected


@pytest.mark.parametrize("leading", [False, True])
def test_replica_here_leads_once_a_majority_has_followed(leading: bool) -> None:
    view = LeaderView(1, Logs(1), {7: Replica(leading)}, {}, {2: 5, 3: 0})
    assert view.has_leader(QUEUE) is leading


@pytest.mark.parametrize(
    ("up", "expected"),
    [({1: 5, 2: 5, 3: 5}, True), ({1: 5, 2: 5}, True), ({1: 5, 2: 0}, False), ({}, False)],
)
def test_without_a_replica_a_majority_that_is_heard_may_lead(
    up: dict[int, int], expected: bool
) -> None:
    assert LeaderView(4, Logs(0), {}, {}, up).has_leader(QUEUE) is expected


def test_only_replica_is_its_own_majority() -> None:
    alone = Queue("/", "c", "classic", 9, (1,))
    assert alone.logged
    assert LeaderView(1, Logs(1), {9: Replica(True)}, {}, {2: 0}).has_leader(alone)


def test_queue_in_memory_is_led_where_it_lives() -> None:
    memory = Queue("/", "m", "classic", 8, (2,), durable=False)
    assert not memory.logged
    assert LeaderView(1, Logs(0), {}, {}, {2: 1}).has_leader(memory)
    assert not LeaderView(1, Logs(0), {}, {}, {2: 0}).has_leader(memory)


class Around:
    """A look at one queue, with a clock that the test moves."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.led = False
        self.limits = FlowLimits()
        self.session: Any = Session()
        self.reachability = Reachability(self.limits, lambda queue: self.led, lambda: self.now_ms)

    def poll(self, now_ms: int) -> int:
        """Look, and return how often the session was told by now."""
        self.now_ms = now_ms
        self.reachability.poll({7: {1: self.session}})
        return len(self.session.texts)


def test_sessions_are_told_after_the_bound_and_at_each_look_from_then_on() -> None:
    around = Around()
    assert around.poll(1000) == 0
    assert around.poll(1000 + LEADERLESS_MS - 1) == 0
    assert around.poll(1000 + LEADERLESS_MS) == 1
    assert around.poll(1500 + LEADERLESS_MS) == 2
    text = "no leader of queue 'work' in vhost '/' was reachable from this node for 5 s"
    assert around.session.texts[0] == text


def test_leaders_that_answer_nothing_do_not_begin_the_time_anew() -> None:
    around = Around()
    around.poll(0)
    for now in range(1000, LEADERLESS_MS, 1000):
        around.led = True
        assert around.poll(now) == 0
        around.led = False
        assert around.poll(now + 500) == 0
    assert around.poll(LEADERLESS_MS) == 1
    text = "no leader of queue 'work' in vhost '/' was reachable from this node for 5 s"
    assert around.session.texts[0] == f"{text}, but for some that have answered nothing"


def test_nobody_is_told_while_a_leader_is_reached() -> None:
    around = Around()
    around.poll(0)
    around.led = True
    for now in range(LEADERLESS_MS - 1000, 3 * LEADERLESS_MS, 500):
        assert around.poll(now) == 0


@pytest.mark.parametrize("how", ["answered", "nothing waits"])
def test_leader_that_serves_ends_the_time(how: str) -> None:
    around = Around()
    around.poll(0)
    around.led = True
    around.poll(500)
    around.session.answered, around.session.waits = how == "answered", how == "answered"
    around.poll(1000)
    around.session.answered, around.session.waits = False, True
    around.led = False
    assert around.poll(LEADERLESS_MS) == 0
    assert around.poll(2 * LEADERLESS_MS - 1) == 0
    assert around.poll(2 * LEADERLESS_MS) == 1


def test_answer_between_two_polls_begins_the_time_anew() -> None:
    around = Around()
    around.poll(0)
    around.session.answered = True
    assert around.poll(1000) == 0
    assert around.poll(999 + LEADERLESS_MS) == 0
    assert around.poll(1000 + LEADERLESS_MS) == 1


def test_answer_from_before_the_leader_was_lost_ends_no_time() -> None:
    around = Around()
    around.session.answered = True
    around.poll(0)
    around.led = True
    around.poll(500)
    around.led = False
    assert around.poll(LEADERLESS_MS) == 1


def test_queue_without_sessions_is_forgotten() -> None:
    around = Around()
    around.poll(0)
    around.reachability.poll({})
    assert around.poll(LEADERLESS_MS) == 0


def test_nobody_is_told_with_a_bound_of_0() -> None:
    around = Around()
    around.limits.leaderless_ms = 0
    around.poll(0)
    assert around.poll(10 * LEADERLESS_MS) == 0


def test_log_tells_once_that_it_gives_up_and_once_that_a_leader_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    around = Around()
    for now in (0, LEADERLESS_MS, 2 * LEADERLESS_MS):
        around.poll(now)
    around.led = around.session.answered = True
    for now in (3 * LEADERLESS_MS, 4 * LEADERLESS_MS):
        around.poll(now)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "publishes are refused and requests fail" in told[0]
    assert "(nodes 1, 2, 3)" in told[0]
    assert told[1] == "queue 'work' in vhost '/': leader reachable again"


async def _get(world: Any, client: Any) -> Any:
    asked = asyncio.ensure_future(client.get())
    await asyncio.sleep(0)
    world.settle_down()
    got = await asked
    assert got is not None
    return got[0]


class TestSession:
    def test_abandoned_publishes_are_given_back_and_the_session_ends_later(
        self, world: Any, listener: Any, publishes: Any
    ) -> None:
        session = world.open(2, listener)
        world.break_links()
        pending_confirm = PendingConfirm(1, 2)
        session.publish(publishes(b"1", b"2"), pending_confirm)
        session.flush()
        world.settle_down()
        account = session.link.account
        assert account.messages == 2
        assert session.abandon() == [pending_confirm]
        assert account.messages == 0
        assert world.owner.closed == []
        world.cut = False
        session.relocate(world.leader)
        world.settle_down()
        assert world.owner.closed == [session.session]
        assert world.hosts[1].machine.ready_count == 0

    def test_session_that_reached_nobody_is_over_at_once(
        self, world: Any, listener: Any, publishes: Any
    ) -> None:
        """A publisher that publishes again and again leaves no session behind each time."""
        session = world.open(2, listener)
        session.relocate(0)
        pending_confirm = PendingConfirm(1, 1)
        session.publish(publishes(b"1"), pending_confirm)
        session.flush()
        assert session.abandon() == [pending_confirm]
        assert world.owner.closed == [session.session]

    def test_what_had_left_before_may_be_committed(
        self, world: Any, listener: Any, publishes: Any
    ) -> None:
        session = world.open(1, listener)
        session.publish(publishes(b"1"), PendingConfirm(1, 1))
        session.flush()
        assert len(session.abandon()) == 1
        world.settle_down()
        assert world.hosts[1].machine.ready_count == 1
        assert world.owner.closed == [session.session]
        assert listener.confirmed == []

    def test_requests_fail_and_are_not_sent_anew(self, world: Any, listener: Any) -> None:
        session = world.open(2, listener)
        world.break_links()

        async def scenario() -> None:
            attach = asyncio.ensure_future(session.attach(1, Attachment("c", 10)))
            await asyncio.sleep(0)
            session.unreachable("no leader")
            with pytest.raises(AmqpError, match="no leader") as raised:
                await attach
            assert raised.value.code == INTERNAL_ERROR

        asyncio.run(scenario())

    @pytest.mark.parametrize("kind", ["attach", "get"])
    def test_messages_are_not_handed_to_whoever_has_given_up(
        self, world: Any, listener: Any, publishes: Any, kind: str
    ) -> None:
        """Else each of many clients that try again would count as a failed delivery."""
        publisher = world.open(1, listener)
        publisher.publish(publishes(b"1"), None)
        publisher.flush()
        world.settle_down()
        session = world.open(2, listener)
        world.break_links()

        async def scenario() -> None:
            work = session.attach(1, Attachment("c", 10)) if kind == "attach" else session.get()
            asked = asyncio.ensure_future(work)
            await asyncio.sleep(0)
            session.unreachable("no leader")
            with pytest.raises(AmqpError, match="no leader"):
                await asked

        asyncio.run(scenario())
        session.close()
        world.cut = False
        session.relocate(world.leader)
        world.settle_down()
        assert world.owner.closed == [session.session]
        assert world.hosts[1].machine.ready_count == 1
        client = world.open(1, listener)
        found = asyncio.run(_get(world, client))
        assert found.redelivered == b"\0"

    def test_consumer_that_attaches_anew_waits_for_a_leader(
        self, world: Any, listener: Any, publishes: Any
    ) -> None:
        """No client waits for that, so nobody hears of a failure of it."""
        faults: list[dict[str, Any]] = []
        session = world.open(2, listener)
        world.run(session.attach(1, Attachment("c", 10)))

        async def scenario() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
            world.break_links()
            session.consuming.restart(1)
            session.unreachable("no leader")
            gc.collect()
            await asyncio.sleep(0)
            world.cut = False
            session.relocate(world.leader)
            world.settle_down()
            await asyncio.sleep(0)
            gc.collect()
            await asyncio.sleep(0)

        asyncio.run(scenario())
        session.publish(publishes(b"1"), None)
        session.flush()
        world.settle_down()
        assert (listener.bodies, faults) == ([b"1"], [])
        assert session.consuming.subscriptions[1].attached

    def test_session_waits_until_it_is_answered(
        self, world: Any, listener: Any, publishes: Any
    ) -> None:
        session = world.open(2, listener)
        assert not session.waits
        session.publish(publishes(b"1"), PendingConfirm(1, 1))
        assert session.waits
        session.flush()
        assert not session.answered
        world.settle_down()
        assert session.answered
        assert not session.waits

    def test_abandoned_session_does_not_wait(
        self, world: Any, listener: Any, publishes: Any
    ) -> None:
        session = world.open(2, listener)
        world.break_links()
        session.publish(publishes(b"1"), PendingConfirm(1, 1))
        session.flush()
        session.abandon()
        assert not session.waits

    def test_channel_is_told_only_where_publishes_wait(
        self, world: Any, listener: Any, publishes: Any
    ) -> None:
        told: list[str] = []
        listener.on_unreachable = lambda client, text: told.append(text)
        session = world.open(2, listener)
        world.break_links()
        session.unreachable("no leader")
        assert told == []
        session.publish(publishes(b"1"), PendingConfirm(1, 1))
        session.flush()
        session.unreachable("no leader")
        assert told == ["no leader"]


def test_text_about_the_catalog_asks_for_nodes_only_while_nothing_better_is_known() -> None:
    async def body() -> None:
        reach = CatalogReach(1)
        reach.poll()
        assert "(does a majority of the nodes run, and reach it?)" in reach.why_not(3)
        reach.diagnosis = lambda: "n2 has lost its disk"
        assert reach.why_not(3).endswith(" s (n2 has lost its disk)")

    asyncio.run(body())
