"""Visibility of rows in views."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_broker.catalog.command import DeclareQueue, PutVhost
from headrace_broker.management.http.access import Caller
from headrace_broker.management.page import rows
from headrace_broker.model.definition import Vhost
from headrace_broker.model.flow_status import (
    AccountStatus,
    ActivityStatus,
    ConnectionFlow,
    NodeFlow,
    QueueFlow,
)
from headrace_broker.model.limits import PAGE_TABLE_ROWS_MAX
from headrace_broker.model.stats import NodeStats
from headrace_broker.model.status import MessageCounters, NodeStatus, ObjectTotals
from headrace_broker.runtime.explain.flow_report import Edge, Listing

ADMIN = Caller("guest", ("administrator",))
STRANGER = Caller("alice", ("management",))


def client(number: int, user: str = "guest", limit: str = "", share: float = 0.0) -> ConnectionFlow:
    flow = ActivityStatus(limit, 0, 5, (share, share, share))
    name = f"10.0.0.{number}:1 -> 10.0.0.9:5672"
    return ConnectionFlow(f"n1/1/{number}", name, f"c{number}", "n1", user, "/", "running", flow)


def stats(name: str, ready: int, queues: int = 3) -> NodeStats:
    totals = ObjectTotals(connections=2, channels=3, consumers=4, exchanges=6, queues=queues)
    return NodeStats(
        id=1,
        name=name,
        version="1",
        started_ms=99,
        os_pid=1,
        processors=1,
        totals=totals,
        counters=MessageCounters(),
        listeners=(),
        last=[],
        messages_ready=ready,
        messages_unacknowledged=1,
    )


@pytest.fixture
def queues(node: Any) -> Any:
    """Queues a, b and c in "/", and d in a vhost that only administrators see."""
    node.do(PutVhost(Vhost("hidden")))
    for vhost, name in (("/", "a"), ("/", "b"), ("/", "c"), ("hidden", "d")):
        node.do(DeclareQueue(vhost, name, "quorum"))
    node.here = {"a", "b", "c", "d"}
    return node


def flow(vhost: str, name: str, group: int, **more: Any) -> QueueFlow:
    return QueueFlow(vhost, name, group, "n1", **more)


def test_keys_of_queues_are_as_browsers_write_them():
    assert rows.key_of("/", "a b/c!'()*~é") == "%2F/a%20b%2Fc!'()*~%C3%A9"


def test_totals_are_sums_of_clients_and_one_catalog():
    found = rows.totals([stats("n1", 5), stats("n2", 7, queues=2)], {"publish": 1.0})
    assert (found["connections"], found["queues"], found["messages_ready"]) == (4, 3, 12)
    assert found["rates"] == {"publish": 1.0}
    assert rows.totals([], {})["queues"] == 0


def test_totals_count_what_is_neither_ready_nor_at_consumers():
    told = [msgspec.structs.replace(stats(name, 5), messages_later=7) for name in ("n1", "n2")]
    assert rows.totals(told, {})["messages_later"] == 14


def test_nodes_are_shown_with_what_they_tell_of_themselves():
    known = [NodeStatus(1, "n1", "h:1", True, 1), NodeStatus(2, "n2", "h:2", False, 0)]
    found = rows.nodes(known, {"n1": stats("n1", 0)}, {"n1": NodeFlow("n1", figures={"held": 1})})
    assert found["node/n1"]["figures"] == {"held": 1}
    assert (found["node/n1"]["started_ms"], found["node/n1"]["connections"]) == (99, 2)
    assert (found["node/n2"]["figures"], found["node/n2"]["started_ms"]) == (None, None)


def test_processes_of_a_node_are_one_row_and_what_one_does_not_tell_is_not_known():
    names = {1: "n1", 65: "n1:1", 2: "n2", 66: "n2:1"}
    known = [NodeStatus(each, name, f"h:{each}", True, 1) for each, name in names.items()]
    told = {name: stats(name, 0) for name in ("n1", "n1:1", "n2")}
    told["n1:1"] = msgspec.structs.replace(told["n1:1"], started_ms=77)
    flows = {name: NodeFlow(name, figures={"held": 3, "free": 0}) for name in told}
    found = rows.nodes(known, told, flows)
    assert list(found) == ["node/n1", "node/n2"]
    whole, half = found["node/n1"], found["node/n2"]
    assert whole["figures"] == {"held": 6, "free": 0}
    assert (whole["connections"], whole["started_ms"]) == (4, 77)
    assert [each["name"] for each in whole["shards"]] == ["n1", "n1:1"]
    assert (half["connections"], half["figures"], half["started_ms"]) == (None, None, 99)
    known[3] = msgspec.structs.replace(known[3], running=False)  # it has nothing to tell
    found = rows.nodes(known, told, flows)["node/n2"]
    assert (found["connections"], found["figures"]) == (2, {"held": 3, "free": 0})


def test_connections_are_those_that_one_may_see_the_most_stopped_first(node):
    listing = Listing([client(1, "alice", share=0.1), client(2, share=0.9), client(3)], ("n3",), 4)
    found = rows.connections(listing, "", ADMIN, node.view)
    assert list(found) == ["n1/1/2", "n1/1/1", "n1/1/3", rows.MORE]
    assert found[rows.MORE] == {"shown": 3, "total": 7, "missing": ["n3"]}
    assert list(rows.connections(listing, "", STRANGER, node.view)) == ["n1/1/1", rows.MORE]
    assert list(rows.connections(listing, "C3", ADMIN, node.view)) == ["n1/1/3", rows.MORE]


def test_so_many_connections_are_shown(node):
    listing = Listing([client(number) for number in range(PAGE_TABLE_ROWS_MAX + 3)])
    found = rows.connections(listing, "", ADMIN, node.view)
    assert found[rows.MORE] == {
        "shown": PAGE_TABLE_ROWS_MAX,
        "total": PAGE_TABLE_ROWS_MAX + 3,
        "missing": [],
    }


def test_queues_are_those_that_one_may_see_what_leaders_say_first(queues):
    listing = Listing([flow("/", "b", 102, ready=7, ready_bytes=70), flow("hidden", "d", 104)])
    found = rows.queues(listing, "", ADMIN, queues.view, queues.queue, 0)
    assert list(found) == ["%2F/b", "%2F/a", "%2F/c", "hidden/d", rows.MORE]
    assert found["%2F/b"]["messages_ready"] == 7
    assert found["%2F/a"]["messages_ready"] == 0  # of the replica here
    seen = rows.queues(listing, "", STRANGER, queues.view, queues.queue, 0)
    assert list(seen) == [rows.MORE]
    assert list(rows.queues(listing, "C", ADMIN, queues.view, queues.queue, 0)) == [
        "%2F/c",
        rows.MORE,
    ]


def test_the_overview_shows_who_is_stopped_and_what_is_in_use(queues):
    listing = Listing(
        [
            *(client(1), client(2, share=0.5), client(3, "alice", limit="account")),
            *(flow("/", "a", 101), flow("hidden", "d", 104, ready=1, ready_bytes=1)),
        ]
    )
    stopped = rows.stopped_most(listing, ADMIN, queues.view)
    assert [row["id"] for row in stopped] == ["n1/1/2", "n1/1/3"]
    assert [row["id"] for row in rows.stopped_most(listing, STRANGER, queues.view)] == ["n1/1/3"]
    assert [row["name"] for row in rows.fullest(listing, ADMIN, queues.view)] == ["d"]
    assert rows.fullest(listing, STRANGER, queues.view) == []


def test_the_graph_has_who_is_charged_or_stopped_and_the_queues_that_this_concerns(queues):
    edge = Edge("n1/1/1", "connection", "x", "n1", "guest", "/", "a", 1, 2, 3.0, 4.0, 5.0, "")
    debts = Listing(
        [
            *(client(1), client(2, limit="watermark"), client(3)),
            client(4, "alice", limit="account"),
            AccountStatus("n1/1/1", "connection", "x", "n1", "guest", "/"),
        ]
    )
    listing = Listing([flow("/", "a", 101), flow("/", "b", 102)], ("n2",))
    found = rows.graph([edge], debts, listing, ADMIN, queues.view)
    assert [each["account"] for each in found["edges"]] == ["n1/1/1"]
    assert set(found["connections"]) == {"n1/1/1", "n1/1/2", "n1/1/4"}
    assert set(found["queues"]) == {"%2F/a"}
    assert found["missing"] == ["n2"]
    seen = rows.graph([], debts, listing, STRANGER, queues.view)
    assert set(seen["connections"]) == {"n1/1/4"}
    assert seen["queues"] == {}
