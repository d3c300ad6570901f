"""/api/flow: parameters, permissions and fields; a fake gives the answers."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.catalog.command import DeclareQueue, PutPermission
from headrace_broker.catalog.viewer import Viewer
from headrace_broker.model.definition import Permission, Queue
from headrace_broker.model.flow_status import (
    AccountStatus,
    ActivityStatus,
    BalanceStatus,
    CauseStatus,
    ConnectionFlow,
    Explanation,
    GateFlow,
    QueueFlow,
)
from headrace_broker.runtime.explain.flow_report import (
    AmbiguousNameError,
    Edge,
    Listing,
    UnknownNameError,
)

NAME = "10.0.0.5:4711 -> 10.0.1.1:5672"


class Report:
    """Answers with prepared values and records its questions."""

    def __init__(self, group: int) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.viewers: list[Viewer] = []
        self.error: Exception | None = None
        self.missing: tuple[str, ...] = ()
        flow = ActivityStatus(
            "watermark", group, 1500, (1.0, 0.83, 0.4), {"watermark": (1.0, 0.83, 0.4, group)}
        )
        self.connection = ConnectionFlow(
            "n1/1/5", NAME, "till", "n1", "app", "/", "flow", flow, 1, 2, 3, 4
        )
        self.queue = QueueFlow("/", "orders", group, "n2", saturated=True, deferred=9, consumers=3)
        self.account = AccountStatus(
            "n1/1/5",
            "connection",
            NAME,
            "n1",
            "app",
            "/",
            3,
            4,
            balances=(BalanceStatus(group, 3, 4),),
        )

    def _note(self, viewer: Viewer, *what: Any) -> None:
        self.asked.append(what)
        self.viewers.append(viewer)
        if self.error is not None:
            raise self.error

    async def top(self, count: int, viewer: Viewer) -> Listing:
        self._note(viewer, "top", count)
        return Listing([self.connection], self.missing, 2 if self.missing else 0)

    async def queues(self, viewer: Viewer) -> Listing:
        self._note(viewer, "queues")
        return Listing([self.queue], self.missing)

    async def graph(self, viewer: Viewer) -> tuple[list[Edge], tuple[str, ...]]:
        self._note(viewer, "graph")
        edge = Edge("a", "connection", NAME, "n1", "app", "/", "orders", 1, 2, 3, 4, 5, "account")
        return [edge], self.missing

    async def why(self, name: str, vhost: str, viewer: Viewer) -> Explanation:
        self._note(viewer, "why", name, vhost)
        return self.explanation()

    async def why_connection(self, name: str, viewer: Viewer) -> Explanation:
        self._note(viewer, "why_connection", name)
        return self.explanation()

    async def why_queue(self, queue: Queue, viewer: Viewer) -> Explanation:
        self._note(viewer, "why_queue", queue.vhost, queue.name)
        return self.explanation()

    def explanation(self) -> Explanation:
        cause = CauseStatus(
            "", "connection", "", "", "", "/", "orders", 900, 1 << 20, 3.14159, 1024.0, 0.71
        )
        return Explanation(
            kind="connection",
            name=NAME,
            node="n1",
            user="app",
            vhost="/",
            state="flow",
            limit="watermark",
            queue="orders",
            leader="n2",
            since_ms=1500,
            shares=(1.0, 0.83, 0.4),
            by_limit={"watermark": (1.0, 0.83, 0.4)},
            causes=(cause,),
            held=(self.connection,),
            sentence="because",
            hint="do",
            details={
                "connection": self.connection,
                "account": self.account,
                "queue": self.queue,
                "largest_queues": [self.queue],
                "gates": [GateFlow("n1", self.queue.group, 5, 6, 2, False)],
            },
            missing=self.missing,
        )


@pytest.fixture
def report(node: Any) -> Report:
    node.do(DeclareQueue("/", "orders", "quorum"))
    node.do(PutPermission(Permission("alice", "/", "", "", "")))
    node.flow_report = Report(node.view.queue("/", "orders").group)
    return node.flow_report  # type: ignore[no-any-return]


STOPPED = {"last_1s": 1.0, "last_10s": 0.83, "last_60s": 0.4}


def test_connections_are_listed_with_what_stops_them(api: Any, report: Report) -> None:
    assert api("GET", "/api/flow/connections") == (
        200,
        [
            {
                "id": "n1/1/5",
                "name": NAME,
                "user_provided_name": "till",
                "node": "n1",
                "user": "app",
                "vhost": "/",
                "state": "flow",
                "flow": {
                    "limit": "watermark",
                    "queue": "orders",
                    "since_ms": 1500,
                    "stopped": STOPPED,
                    "by_limit": {"watermark": {**STOPPED, "queue": "orders"}},
                },
                "buffered_messages": 1,
                "buffered_bytes": 2,
                "owed_messages": 3,
                "owed_bytes": 4,
            }
        ],
    )
    api("GET", "/api/flow/connections?count=7")
    assert report.asked == [("top", 50), ("top", 7)]
    assert "X-Headrace-Partial" not in api.headers


@pytest.mark.parametrize(
    "count", ["0", "501", "x", "-1", "", "1.5", "9" * 5000, "000000100" * 2, "\u0663"]
)
def test_a_count_that_is_none_is_refused(refused: Any, report: Report, count: str) -> None:
    for path in ("connections", "queues", "graph"):
        reason = refused(400, "GET", f"/api/flow/{path}?count={count}")
        assert reason.startswith("count: must be an integer from 1 to 500")


def test_queues_and_debts_are_listed(api: Any, report: Report) -> None:
    [row] = api("GET", "/api/flow/queues")[1]
    assert (row["vhost"], row["name"], row["leader"]) == ("/", "orders", "n2")
    assert (row["state"], row["messages_deferred"], row["consumers"]) == ("flow", 9, 3)
    assert row["behind"] is False
    assert row["high_watermark_bytes"] is None
    [edge] = api("GET", "/api/flow/graph")[1]
    assert (edge["account"], edge["queue"], edge["limit"]) == ("a", "orders", "account")


def test_why_is_asked_of_a_connection_a_queue_or_a_name(api: Any, report: Report) -> None:
    for query in ("connection=10.0", "queue=orders&vhost=/", "queue=orders", "name=x&vhost=v"):
        assert api("GET", f"/api/flow/why?{query}")[0] == 200
    assert report.asked == [
        ("why_connection", "10.0"),
        ("why_queue", "/", "orders"),
        ("why_queue", "/", "orders"),
        ("why", "x", "v"),
    ]


def test_an_explanation_has_its_sentence_its_causes_and_the_facts(api: Any, report: Report) -> None:
    body = api("GET", "/api/flow/why?connection=10.0")[1]
    assert (body["sentence"], body["hint"], body["stopped"]) == ("because", "do", STOPPED)
    [cause] = body["causes"]
    assert (cause["name"], cause["user"], cause["share"]) == (None, None, 0.71)
    assert cause["message_rate"] == 3.1416
    assert (body["shares_of"], cause["gone"], cause["queued_messages"]) == ("load", False, 0)
    assert body["held"][0]["flow"]["queue"] == "orders"
    details = body["details"]
    assert details["gates"] == [
        {"node": "n1", "byte_count": 5, "bytes_max": 6, "waiting": 2, "open": False, "outflow": 0}
    ]
    assert details["account"]["balances"][0]["queue"] == "orders"
    assert details["queue"] == details["largest_queues"][0]
    assert body["missing"] == []


@pytest.mark.parametrize("query", ["", "connection=", "connection=a&queue=b", "name=a&queue=b"])
def test_why_needs_exactly_one_name(refused: Any, report: Report, query: str) -> None:
    reason = refused(400, "GET", f"/api/flow/why?{query}")
    assert reason == "connection, queue, name: must have exactly one of them"


def test_names_that_are_nowhere_or_ambiguous_are_refused(refused: Any, report: Report) -> None:
    report.error = UnknownNameError("no connection has a name that begins with 'x'")
    reason = refused(404, "GET", "/api/flow/why?connection=x")
    assert reason == "no connection has a name that begins with 'x'"
    report.error = AmbiguousNameError("x", ["'xa'", "'xb'"])
    reason = refused(409, "GET", "/api/flow/why?connection=x")
    assert reason == "'x' may be 'xa', 'xb': say more of the name"
    assert "no queue 'gone'" in refused(404, "GET", "/api/flow/why?queue=gone")


def test_answers_that_lack_something_say_so(api: Any, report: Report) -> None:
    report.missing = ("n2", "n3")
    for path in ("queues", "graph", "why?name=x"):
        api("GET", f"/api/flow/{path}")
        assert api.headers["X-Headrace-Partial"] == "no answer from n2, n3"
    api("GET", "/api/flow/connections")
    lacks = "no answer from n2, n3; 2 rows or more left out"
    assert api.headers["X-Headrace-Partial"] == lacks


def test_who_asks_is_told_to_the_report(api: Any, report: Report, refused: Any) -> None:
    for user, monitors in (("guest", True), ("mon", True), ("alice", False)):
        api("GET", "/api/flow/connections", user=user)
        viewer = report.viewers[-1]
        assert (viewer.user, viewer.monitors) == (user, monitors)
        assert viewer.sees_vhost("/")
    api("GET", "/api/flow/connections", user="pol")
    assert not report.viewers[-1].sees_vhost("/")
    refused(403, "GET", "/api/flow/why?queue=orders", user="pol")
    refused(403, "GET", "/api/flow/connections", user="app")
