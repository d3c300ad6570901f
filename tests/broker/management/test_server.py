"""The HTTP API over a real socket, with a fake node behind it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import aiohttp
import pytest

from headrace_broker.catalog.machine import Catalog
from headrace_broker.management.server import ManagementServer
from headrace_broker.model.definition import Node, Queue, User
from headrace_broker.model.reply_code import INTERNAL_ERROR, AmqpError
from headrace_broker.model.stats import NodeStats
from headrace_broker.model.status import (
    DamageStatus,
    MessageCounters,
    NodeStatus,
    ObjectTotals,
    Overview,
    QueueCounts,
    QueueStatus,
    ReplicaStatus,
)
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.metrics.requests import HttpMeter
from headrace_broker.runtime.security.authenticator import Verdict
from headrace_broker.runtime.security.basic_credentials import parse_basic

GUEST = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


class FakeNode:
    """A StatusSource with values to choose."""

    def __init__(self) -> None:
        self.reason = ""
        self.password = "guest"
        self.checks: list[tuple[str, str, str]] = []
        self.wait_s = 0.0

    def not_ready_reason(self) -> str:
        return self.reason

    def alarms(self) -> list[Any]:
        return []

    def certificate_ends_s(self) -> float | None:
        return None

    def critical_queues(self) -> list[tuple[str, str]] | None:
        return None

    def leaderless_queues(self) -> list[tuple[str, str]]:
        return []

    def flow_limits(self) -> dict[str, Any]:
        return {}

    def overview(self) -> Overview:
        voters = (ReplicaStatus("n1", "1", "voter"),)
        first = NodeStatus(1, "n1", "h:1", True, 3, voters)
        nodes = (NodeStatus(2, "n2", "h:2", False, 0), first)
        return Overview("test", "n1", "n2", nodes)

    def queues(self) -> Sequence[QueueStatus]:
        def queue(name: str, leader: str, has_counts: bool) -> QueueStatus:
            members = ("n1", "n2")
            return QueueStatus(
                "/",
                name,
                "quorum",
                True,
                False,
                False,
                {},
                leader,
                members,
                QueueCounts(4, 1, 2) if has_counts else None,
                (ReplicaStatus("n1", "1", "voter"), ReplicaStatus("n2", "2.ab", "learner")),
                17,
            )

        return [queue("b", "", False), queue("a", "n1", True)]

    def queue(self, vhost: str, name: str) -> QueueStatus | None:
        return next((queue for queue in self.queues() if queue.name == name), None)

    async def authenticate(self, user: str, password: str, host: str) -> Verdict:
        self.checks.append((user, password, host))
        if self.wait_s:
            return Verdict(False, self.wait_s)
        return Verdict((user, password) == ("guest", self.password))

    def admits(self, user: str, host: str) -> bool:
        return (user, host) == ("guest", "127.0.0.1")


def administration(damages: tuple[DamageStatus, ...] = ()) -> Any:
    """A node whose catalog knows the administrator guest, and damaged replicas if told."""
    catalog = Catalog()
    catalog.put_node(Node(1, "n1", "h:1"))
    catalog.put_user(User("guest", b"", b"", ("administrator",)))
    for name in ("a", "b"):
        catalog.put_queue(Queue("/", name, "quorum", ord(name), (1,)))

    class FlowReport:
        async def moving_queues(self) -> dict[int, Any]:
            return {}

    class Stats:
        async def ask(
            self, question: Any, seconds: float = 9.0
        ) -> tuple[list[Any], tuple[str, ...]]:
            moved = MessageCounters(publish=7, confirm=6, deliver=5, redeliver=1, ack=4)
            totals = ObjectTotals(1, 2, 3, 4, 5), moved
            own = NodeStats(1, "n1", "1", 0, 1, 1, *totals, (), [], [], 10, 2, quarantined=damages)
            return [own], ()

        async def sample_forever(self) -> None:
            await asyncio.Event().wait()

    class Metrics:
        http = HttpMeter()
        per_object = False

    class Administration:
        stats = Stats()
        metrics = Metrics()
        clock = Clock()
        view = catalog
        flow_report = FlowReport()

        async def led_counts(self, queue: Queue) -> tuple[QueueCounts, str]:
            raise AmqpError(INTERNAL_ERROR, "no leader")

    return Administration()


def fetch(
    node: Any,
    path: str,
    headers: dict[str, str] | None = None,
    method: str = "GET",
    damages: tuple[DamageStatus, ...] = (),
) -> tuple[int, Any, Any]:
    """Status, JSON body and headers of one request to a server in front of `node`."""

    async def talk() -> tuple[int, Any, Any]:
        server = ManagementServer(node, administration(damages))
        port = await server.start("127.0.0.1", 0)
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.request(
                    method, f"http://127.0.0.1:{port}{path}", headers=headers
                ) as answer,
            ):
                return answer.status, await answer.json(), answer.headers.copy()
        finally:
            await server.stop()

    return asyncio.run(talk())


def test_health_needs_no_log_in() -> None:
    node = FakeNode()
    assert fetch(node, "/api/health/live")[:2] == (200, {"status": "ok"})
    assert fetch(node, "/api/health/ready")[:2] == (200, {"status": "ok"})


def test_a_node_that_is_not_ready_says_why_and_is_alive_all_the_same() -> None:
    node = FakeNode()
    node.reason = "no quorum"
    body = {"status": "failed", "reason": "no quorum"}
    assert fetch(node, "/api/health/ready")[:2] == (503, body)
    assert fetch(node, "/api/health/live")[0] == 200


@pytest.mark.parametrize("path", ["/api/overview", "/api/nodes", "/api/queues", "/api/nothing"])
def test_everything_else_asks_for_a_log_in(path: str) -> None:
    wrong = {"Authorization": "Basic " + base64.b64encode(b"guest:wrong").decode()}
    for headers in ({}, wrong, {"Authorization": "Bearer x"}):
        status, body, answer_headers = fetch(FakeNode(), path, headers)
        assert (status, body["error"]) == (401, "not_authorized")
        assert answer_headers["WWW-Authenticate"].startswith("Basic")


def test_who_has_failed_too_often_is_told_to_come_back_later() -> None:
    node = FakeNode()
    node.wait_s = 2.5
    status, body, headers = fetch(node, "/api/overview", GUEST)
    assert (status, body["error"]) == (429, "too_many_failures")
    assert headers["Retry-After"] == "3"
    assert "WWW-Authenticate" not in headers


def test_overview_tells_what_the_node_itself_has() -> None:
    status, body, _ = fetch(FakeNode(), "/api/overview", GUEST)
    assert status == 200
    assert (body["cluster_name"], body["node"], body["leader"]) == ("test", "n1", "n2")
    local = body["local"]
    assert local["queue_totals"] == {
        "messages": 12,
        "messages_ready": 10,
        "messages_unacknowledged": 2,
        "messages_delayed": 0,
        "messages_dlx": 0,
    }
    assert local["message_stats"]["publish"] == 7
    assert local["message_stats"]["ack_details"] == {"rate": 0.0}
    assert local["object_totals"]["queues"] == 5
    assert isinstance(body["compiled"], bool)


def test_nodes_come_by_id() -> None:
    _, body, _ = fetch(FakeNode(), "/api/nodes", GUEST)
    assert [(node["id"], node["running"], node["boot"]) for node in body] == [
        (1, True, 3),
        (2, False, 0),
    ]


def test_node_tells_its_members_of_the_catalog_and_its_damages() -> None:
    damages = (DamageStatus("the catalog", "byte 7"),)
    _, body, _ = fetch(FakeNode(), "/api/nodes", GUEST, damages=damages)
    assert body[0]["catalog"] == [{"node": "n1", "member": "1", "role": "voter"}]
    assert body[0]["quarantined"] == [{"what": "the catalog", "reason": "byte 7"}]
    assert body[1]["catalog"] == []
    assert "quarantined" not in body[1]  # it has not answered


def test_queues_come_by_name_and_counts_only_where_they_are_known() -> None:
    _, body, _ = fetch(FakeNode(), "/api/queues", GUEST)
    assert [queue["name"] for queue in body] == ["a", "b"]
    assert (body[0]["messages"], body[0]["consumers"], body[0]["state"]) == (5, 2, "running")
    assert (body[0]["messages_delayed"], body[0]["messages_dlx"]) == (0, 0)
    assert "messages" not in body[1]
    assert "replicas" not in body[1]
    assert body[0]["snapshot_index"] == 17
    assert body[0]["replicas"] == [
        {"node": "n1", "member": "1", "role": "voter"},
        {"node": "n2", "member": "2.ab", "role": "learner"},
    ]
    assert body[1]["state"] == "down"


def test_an_unknown_path_and_a_wrong_method_are_answered_in_json() -> None:
    status, body, _ = fetch(FakeNode(), "/api/nothing", GUEST)
    assert (status, body) == (404, {"error": "not_found", "reason": "there is no /api/nothing"})
    status, body, headers = fetch(FakeNode(), "/api/queues", GUEST, "DELETE")
    assert (status, body["error"]) == (405, "method_not_allowed")
    assert "GET" in headers["Allow"]


def test_a_server_that_cannot_bind_leaves_nothing_running() -> None:
    async def twice() -> None:
        node: Any = FakeNode()
        first = ManagementServer(node, administration())
        second = ManagementServer(node, administration())
        port = await first.start("127.0.0.1", 0)
        with pytest.raises(OSError, match="address"):
            await second.start("127.0.0.1", port)
        await second.stop()
        await first.stop()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(twice())


def test_every_request_asks_the_node_so_that_a_changed_password_counts_at_once() -> None:
    node = FakeNode()
    assert fetch(node, "/api/nodes", GUEST)[0] == 200
    node.password = "changed"
    assert fetch(node, "/api/nodes", GUEST)[0] == 401
    assert node.checks == [("guest", "guest", "127.0.0.1")] * 2


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Basic Z3Vlc3Q6Z3Vlc3Q=", ("guest", "guest")),
        ("basic dTpwOnE=", ("u", "p:q")),
        ("Basic Z3Vlc3Q=", None),
        ("Basic ///", None),
        ("Basic /w==", None),
        ("Bearer Z3Vlc3Q6Z3Vlc3Q=", None),
        ("", None),
    ],
)
def test_basic_credentials(header: str, expected: tuple[str, str] | None) -> None:
    assert parse_basic(header) == expected
