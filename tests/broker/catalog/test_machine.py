"""Nodes, vhosts, users, exchanges and queues of the catalog."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.event import (
    ExchangeAdded,
    ExchangeRemoved,
    NodeAdded,
    QueueAdded,
    QueueRemoved,
    UserChanged,
    VhostAdded,
    VhostRemoved,
)
from headrace_broker.catalog.result import (
    Exists,
    Inequivalent,
    InUse,
    Locked,
    NotFound,
    Ok,
    Refused,
)
from headrace_broker.model.definition import Exchange, Node, User, Vhost
from headrace_broker.model.limits import NAME_BYTES_MAX, REPLICAS_MAX

NODES = tuple(Node(number, f"n{number}", "h:1") for number in (1, 2, 3))
GUEST = User("guest", b"salt", b"hash", loopback_only=True)


class TestBootstrap:
    def test_gives_nodes_vhost_exchanges_and_user_in_this_order(self, empty: Any) -> None:
        assert empty.do(commands.Bootstrap(NODES, "/", GUEST)) == Ok()
        assert empty.events[:4] == [*map(NodeAdded, NODES), VhostAdded(Vhost("/"))]
        assert empty.events[-1] == UserChanged("guest", GUEST)
        names = [event.exchange.name for event in empty.events[4:-1]]
        assert names == [
            "amq.direct",
            "amq.fanout",
            "amq.headers",
            "amq.match",
            "amq.rabbitmq.trace",
            "amq.topic",
        ]
        assert empty.catalog.bootstrapped
        assert empty.catalog.user("guest").loopback_only
        assert empty.catalog.exchange("/", "amq.match").type == "headers"
        assert empty.catalog.exchange("/", "amq.rabbitmq.trace").internal

    def test_second_one_changes_nothing(self, driver: Any) -> None:
        other = User("guest", b"other", b"other")
        assert driver.do(commands.Bootstrap((), "/", other)) == Exists()
        assert driver.catalog.user("guest").salt == b"salt"

    def test_without_valid_nodes_is_refused_and_can_be_tried_again(self, empty: Any) -> None:
        for bad in (
            (Node(0, "n", "h:1"),),
            (Node(1024, "n", "h:1"),),
            (Node(1, "", "h:1"),),
            (Node(1, "same", "h:1"), Node(2, "same", "h:2")),
        ):
            assert isinstance(empty.do(commands.Bootstrap(bad, "/", GUEST)), Refused)
            assert empty.catalog.nodes() == []
        assert empty.do(commands.Bootstrap(NODES, "/", GUEST)) == Ok()


class TestNodes:
    def test_changed_address_replaces_the_node_and_unchanged_ones_are_not_told(
        self, driver: Any
    ) -> None:
        moved = Node(2, "n2", "elsewhere:1")
        same = driver.catalog.node(1)
        assert driver.do(commands.DeclareNodes((same, moved))) == Ok()
        assert driver.events == [NodeAdded(moved)]
        assert driver.catalog.node(2) == moved
        assert driver.do(commands.DeclareNodes((same, moved))) == Exists()

    def test_name_of_another_node_is_refused(self, driver: Any) -> None:
        result = driver.do(commands.DeclareNodes((Node(9, "n1", "h:1"),)))
        assert result == Refused("two nodes have the same name")

    def test_nodes_may_swap_their_names(self, driver: Any) -> None:
        swap = (Node(1, "n2", "h:1"), Node(2, "n1", "h:2"))
        assert driver.do(commands.DeclareNodes(swap)) == Ok()


class TestVhosts:
    def test_new_vhost_has_its_own_default_exchanges(self, driver: Any) -> None:
        assert driver.do(commands.DeclareVhost("v")) == Ok(Vhost("v"))
        assert driver.catalog.exchange("v", "amq.direct") is not None
        assert driver.do(commands.DeclareVhost("v")) == Exists(Vhost("v"))

    def test_deleted_vhost_takes_everything_along(self, driver: Any) -> None:
        driver.do(commands.DeclareVhost("v"))
        driver.do(commands.DeclareQueue("v", "q", "quorum", replicas=3))
        kept = driver.queue("q")
        assert driver.do(commands.DeleteVhost("v")) == Ok(Vhost("v"))
        assert driver.events[-1] == VhostRemoved(Vhost("v"))
        assert isinstance(driver.events[0], QueueRemoved)
        assert driver.catalog.exchanges("v") == []
        assert driver.catalog.queues() == [kept]
        assert driver.do(commands.DeleteVhost("v")) == NotFound("vhost 'v'")

    @pytest.mark.parametrize("name", ["", "x" * (NAME_BYTES_MAX + 1), "\u20ac" * 86])
    def test_name_of_wrong_length_is_refused(self, driver: Any, name: str) -> None:
        assert isinstance(driver.do(commands.DeclareVhost(name)), Refused)

    def test_unknown_vhost_is_not_found(self, driver: Any) -> None:
        missing = NotFound("vhost 'w'")
        assert driver.do(commands.DeclareQueue("w", "q", "classic")) == missing
        assert driver.do(commands.DeclareExchange(Exchange("w", "x", "direct"))) == missing


class TestUsers:
    def test_put_replaces_and_delete_removes(self, driver: Any) -> None:
        user = User("guest", b"new", b"new", ("monitoring",))
        assert driver.do(commands.PutUser(user)) == Ok(user)
        assert driver.events == [UserChanged("guest", user)]
        assert driver.do(commands.DeleteUser("guest")) == Ok(user)
        assert driver.events == [UserChanged("guest", None)]
        assert driver.catalog.user("guest") is None
        assert driver.do(commands.DeleteUser("guest")) == NotFound("user 'guest'")
        assert isinstance(driver.do(commands.PutUser(User("", b"", b""))), Refused)


class TestExchanges:
    def test_declared_twice_is_the_same(self, driver: Any) -> None:
        wanted = driver.exchange("x", "topic")
        assert driver.events == [ExchangeAdded(wanted)]
        assert driver.do(commands.DeclareExchange(wanted)) == Exists(wanted)

    @pytest.mark.parametrize(
        ("field", "other", "name"),
        [
            ("type", "fanout", "type"),
            ("durable", False, "durable"),
            ("auto_delete", True, "auto_delete"),
            ("internal", True, "internal"),
            ("arguments", {"alternate-exchange": "y"}, "alternate-exchange"),
        ],
    )
    def test_declared_otherwise_is_inequivalent(
        self, driver: Any, field: str, other: object, name: str
    ) -> None:
        driver.exchange("x", "topic")
        fields: dict[str, Any] = {"type": "topic", field: other}
        changed = Exchange("/", "x", **fields)
        result = driver.do(commands.DeclareExchange(changed))
        assert isinstance(result, Inequivalent)
        assert result.field == name
        assert result.what == "exchange 'x' in vhost '/'"

    def test_text_of_inequivalence_is_that_of_rabbitmq(self, driver: Any) -> None:
        driver.exchange("x", "topic")
        result = driver.do(commands.DeclareExchange(Exchange("/", "x", "direct")))
        assert result.text == (
            "inequivalent arg 'type' for exchange 'x' in vhost '/': "
            "received 'direct' but current is 'topic'"
        )

    def test_unknown_type_is_refused(self, driver: Any) -> None:
        result = driver.do(commands.DeclareExchange(Exchange("/", "x", "x-none")))
        assert result == Refused("unknown exchange type 'x-none'")

    def test_default_exchanges_stay(self, driver: Any) -> None:
        for name in ("amq.direct", "amq.rabbitmq.trace", ""):
            result = driver.do(commands.DeleteExchange("/", name))
            assert isinstance(result, Refused)
            assert f"'{name}'" in result.reason
        assert driver.catalog.exchange("/", "amq.direct") is not None

    def test_deleted_exchange_is_gone(self, driver: Any) -> None:
        wanted = driver.exchange("x")
        assert driver.do(commands.DeleteExchange("/", "x")) == Ok(wanted)
        assert driver.events == [ExchangeRemoved(wanted)]
        missing = NotFound("exchange 'x' in vhost '/'")
        assert driver.do(commands.DeleteExchange("/", "x")) == missing

    def test_if_unused_looks_at_bindings_that_leave(self, driver: Any) -> None:
        driver.exchange("x")
        driver.exchange("y")
        driver.bind("x", "y", kind="exchange")
        used = InUse("exchange 'x' in vhost '/'")
        assert driver.do(commands.DeleteExchange("/", "x", if_unused=True)) == used
        assert isinstance(driver.do(commands.DeleteExchange("/", "y", if_unused=True)), Ok)


class TestQueues:
    def test_groups_count_from_one_and_are_never_used_again(self, driver: Any) -> None:
        assert driver.queue("a").group == 1
        assert driver.queue("b").group == 2
        driver.do(commands.DeleteQueue("/", "b"))
        again = driver.queue("b")
        assert again.group == 3
        assert driver.catalog.queue_by_group(3) == again
        assert driver.catalog.queue_by_group(2) is None

    def test_refused_declaration_uses_no_group(self, driver: Any) -> None:
        driver.do(commands.DeclareQueue("/", "a", "stream"))
        assert driver.queue("a").group == 1

    def test_quorum_queue_has_its_replicas_on_different_nodes(self, driver: Any) -> None:
        queue = driver.queue("q", "quorum", replicas=3, preferred_node=2)
        assert driver.events == [QueueAdded(queue)]
        assert queue.members == (2, 1, 3)

    def test_classic_queue_has_one_replica(self, driver: Any) -> None:
        assert driver.queue("q", replicas=3, preferred_node=3).members == (3,)

    def test_fewer_nodes_than_wanted_gives_all_nodes(self, driver: Any) -> None:
        assert driver.queue("q", "quorum", replicas=7).members == (1, 2, 3)

    def test_replicas_spread_over_the_nodes_and_deletion_frees_them(self, driver: Any) -> None:
        places = [driver.queue(f"q{number}").members for number in range(4)]
        assert places == [(1,), (2,), (3,), (1,)]
        driver.do(commands.DeleteQueue("/", "q1"))
        assert [driver.catalog.replica_count(node) for node in (1, 2, 3)] == [2, 0, 1]
        assert driver.queue("q5").members == (2,)

    def test_declared_again_is_the_same_queue(self, driver: Any) -> None:
        queue = driver.queue("q", "quorum", replicas=3, arguments={"x-expires": 9, "note": 1})
        same = commands.DeclareQueue(
            "/", "q", "quorum", arguments={"x-queue-type": "quorum", "x-expires": 9, "note": 2}
        )
        assert driver.do(same) == Exists(queue)

    @pytest.mark.parametrize(
        ("fields", "name", "received", "current"),
        [
            ({"kind": "quorum"}, "x-queue-type", "'quorum'", "'classic'"),
            ({"durable": False}, "durable", "'false'", "'true'"),
            ({"auto_delete": True}, "auto_delete", "'true'", "'false'"),
            ({"arguments": {}}, "x-b", "none", "the value '1' of type 'signedint'"),
            ({"arguments": {"x-b": True}}, "x-b", "'true'", "'1'"),
            (
                {"arguments": {"x-a": "s", "x-b": 1}},
                "x-a",
                "the value 's' of type 'longstr'",
                "none",
            ),
            ({"arguments": {"x-b": 1.0}}, "x-b", "'1.0'", "'1'"),
            (
                {"arguments": {"x-b": "1"}},
                "x-b",
                "the value '1' of type 'longstr'",
                "the value '1' of type 'signedint'",
            ),
        ],
    )
    def test_declared_otherwise_is_inequivalent(
        self, driver: Any, fields: dict[str, Any], name: str, received: str, current: str
    ) -> None:
        driver.queue("q", arguments={"x-b": 1})
        wanted = {"kind": "classic", "arguments": {"x-b": 1}, **fields}
        if name == "x-queue-type":
            wanted["arguments"] = {"x-b": 1, name: wanted["kind"]}
        result = driver.do(commands.DeclareQueue("/", "q", **wanted))
        assert result == Inequivalent("queue 'q' in vhost '/'", name, received, current)

    @pytest.mark.parametrize("asked", [{}, {"x-queue-type": ""}, {"x-queue-type": "classic"}])
    def test_type_of_a_queue_that_is_there_need_not_be_said(
        self, driver: Any, asked: dict[str, Any]
    ) -> None:
        queue = driver.queue("q", arguments={"x-queue-type": "classic"})
        assert queue.kind == "classic"
        kind = "classic" if asked.get("x-queue-type") else "quorum"  # the default may be another
        command = commands.DeclareQueue("/", "q", kind, arguments=asked)
        assert driver.do(command) == Exists(queue)

    def test_exclusive_queue_is_locked_to_others_before_anything_else(self, driver: Any) -> None:
        mine = driver.queue("q", exclusive=True, owner="c1", durable=False)
        locked = Locked("queue 'q' in vhost '/'")
        ask = commands.DeclareQueue
        assert driver.do(ask("/", "q", "classic", exclusive=True, owner="c2")) == locked
        assert driver.do(ask("/", "q", "classic")) == locked
        again = ask("/", "q", "classic", exclusive=True, owner="c1", durable=False)
        assert driver.do(again) == Exists(mine)
        assert "exclusive access to locked queue 'q'" in locked.text

    def test_shared_queue_cannot_become_exclusive(self, driver: Any) -> None:
        driver.queue("q")
        wanted = commands.DeclareQueue("/", "q", "classic", exclusive=True, owner="c1")
        assert isinstance(driver.do(wanted), Locked)

    def test_owner_is_kept_for_exclusive_queues_only(self, driver: Any) -> None:
        assert driver.queue("q", owner="c1").owner == ""

    @pytest.mark.parametrize(
        "fields",
        [
            {"kind": "stream"},
            {"replicas": 0},
            {"replicas": REPLICAS_MAX + 1},
            {"exclusive": True},
            {"name": ""},
            {"name": "n" * 256},
        ],
    )
    def test_invalid_declaration_is_refused(self, driver: Any, fields: dict[str, Any]) -> None:
        wanted = {"name": "q", "kind": "quorum", **fields}
        assert isinstance(driver.do(commands.DeclareQueue("/", **wanted)), Refused)

    def test_cluster_without_nodes_places_nothing(self, empty: Any) -> None:
        empty.do(commands.DeclareVhost("/"))
        result = empty.do(commands.DeclareQueue("/", "q", "classic"))
        assert result == Refused("the cluster has no nodes")

    def test_late_deletion_spares_the_queue_that_was_declared_anew(self, driver: Any) -> None:
        first = driver.queue("q")
        driver.do(commands.DeleteQueue("/", "q", first.group))
        assert driver.events == [QueueRemoved(first)]
        second = driver.queue("q")
        missing = NotFound("queue 'q' in vhost '/'")
        assert driver.do(commands.DeleteQueue("/", "q", first.group)) == missing
        assert driver.do(commands.DeleteQueue("/", "q", second.group)) == Ok(second)


class TestDropTransient:
    def test_owner_takes_its_exclusive_queues_along(self, driver: Any) -> None:
        mine = [driver.queue(name, exclusive=True, owner="c1") for name in ("a", "b")]
        other = driver.queue("c", exclusive=True, owner="c2")
        assert driver.do(commands.DropTransient(owner="c1")) == Ok(tuple(mine))
        assert driver.events == [QueueRemoved(queue) for queue in mine]
        assert driver.catalog.queues() == [other]
        assert driver.catalog.queues_of_owner("c1") == []

    def test_booted_node_loses_what_only_its_memory_held(self, driver: Any) -> None:
        lost = [
            driver.queue("transient", preferred_node=2, durable=False),
            driver.queue("auto", preferred_node=2, auto_delete=True),
            driver.queue("exclusive", preferred_node=2, exclusive=True, owner="c1"),
        ]
        kept = [
            driver.queue("logged", preferred_node=2),
            driver.queue("replicated", "quorum", preferred_node=2, replicas=3),
            driver.queue("elsewhere", preferred_node=1, durable=False),
        ]
        assert driver.do(commands.DropTransient(node=2)) == Ok(tuple(lost))
        assert driver.catalog.queues() == kept

    def test_queues_that_are_younger_than_the_bound_stay(self, driver: Any) -> None:
        old = driver.queue("old", durable=False, preferred_node=1)
        young = driver.queue("young", durable=False, preferred_node=1)
        drop = commands.DropTransient(node=1, group_below=young.group)
        assert driver.do(drop) == Ok((old,))
        assert driver.catalog.queues() == [young]

    def test_owner_and_node_at_once_drop_each_queue_once(self, driver: Any) -> None:
        queue = driver.queue("q", exclusive=True, owner="c1", preferred_node=1)
        assert driver.do(commands.DropTransient(owner="c1", node=1)) == Ok((queue,))

    def test_nothing_named_drops_nothing(self, driver: Any) -> None:
        driver.queue("q", durable=False)
        assert driver.do(commands.DropTransient()) == Ok(())


def test_barrier_changes_nothing(driver: Any) -> None:
    before = driver.catalog.contents()
    assert driver.do(commands.Barrier()) == Ok()
    assert driver.catalog.contents() == before
