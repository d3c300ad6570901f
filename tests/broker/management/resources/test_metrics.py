"""/metrics and what tells single objects: read back by Prometheus's own parser."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace_broker.catalog.store import CatalogStore
from headrace_broker.core.queue.messages.settings import QueueSettings
from headrace_broker.core.queue.state.archive_effect import ArchiveInfo
from headrace_broker.flow.account import Ledger
from headrace_broker.flow.activity import SECOND_US, Activity
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.rate_history import Moves
from headrace_broker.management.metric_server import MetricServer
from headrace_broker.management.server import ManagementServer
from headrace_broker.management.view.exposition import pieces_of
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import CONNECTION, EXPIRY, LIMIT_MEMORY, LIMIT_QUEUE, Cause
from headrace_broker.model.flow_status import AlarmStatus
from headrace_broker.runtime.clients.churn import Churn
from headrace_broker.runtime.contract.port import ConnectionControl, ConnectionInfo
from headrace_broker.runtime.contract.traffic import ClientTraffic
from headrace_broker.runtime.explain.flow_facts import FlowFacts
from headrace_broker.runtime.hosting.queue_rates import QueueRates
from headrace_broker.runtime.metrics.catalogue import METRICS
from headrace_broker.runtime.metrics.detailed import FAMILIES, ObjectSamples, ObjectTable
from headrace_broker.runtime.metrics.flow import flow_samples
from headrace_broker.runtime.metrics.metric import Metric, Sample
from headrace_broker.runtime.metrics.queues import queue_samples
from headrace_raftlog.model.histogram import Histogram

NOW = 1_000 * SECOND_US


class Machine:
    def __init__(self, number: int) -> None:
        self.ready_count = self.ready_bytes = number
        self.unsettled_count = self.unsettled_bytes = 0
        self.consumer_count = int(number == 0)
        self.saturated = number == 0
        self.delayed_count = self.dead_count = self.leased_count = 0
        self.deferred_count = 7 if self.saturated else 0
        self.held_count = self.held_bytes = number
        self.settings = QueueSettings()

    def fairness(self, limit: int) -> list[Any]:
        return []

    def consumers(self) -> list[Any]:
        return []

    def lease_groups(self) -> list[Any]:
        return []

    def archive(self) -> ArchiveInfo:
        return ArchiveInfo(0, 0, 1, 1, 0, 0, 0, [])


class Host:
    def __init__(self, number: int) -> None:
        self.queue = Queue("/", f'q"{number}', "quorum", number + 1, (1,))
        self.machine = Machine(number)
        self.serving = True
        self.moves = Moves()
        self.lead = SimpleNamespace(telling=SimpleNamespace(is_behind=lambda _now_us: True))


class Report:
    """A node with connections, accounts and queues as a test wants them."""

    def __init__(self) -> None:
        self.now = NOW
        self.infos: dict[str, ConnectionInfo] = {}
        self.ledger = Ledger(FlowLimits())
        self.hosts: dict[int, Any] = {}
        recent: Any = SimpleNamespace(reader=lambda: self.hosts.keys)
        rates = QueueRates(self.hosts, recent, self.ledger, lambda: self.now)
        view = CatalogStore()
        self.facts = FlowFacts(
            "n1", lambda: self.infos, self.ledger, self.hosts, view, rates, lambda: self.now
        )

    def connect(self, number: int) -> ConnectionInfo:
        info = ConnectionInfo(f"n1/1/{number}", "a -> b", "a", 1700)
        info.vhost, info.user = "/", "u"
        info.flow = Activity(self.now, self.ledger.stops)
        self.infos[info.id] = info
        return info


@pytest.fixture
def report(node: Any) -> Report:
    report = Report()
    node.metrics.found = lambda: flow_samples(report.facts)
    node.metrics.of_objects = ObjectSamples(report.facts, series_max=200).tables
    return report


def scrape(
    node: Any, path: str = "/metrics", user: str = "mon", anonymous: bool | None = None
) -> tuple[int, str]:
    """Status and text; of the listener for metrics alone where `anonymous` is given."""
    login = base64.b64encode(f"{user}:{user}".encode()).decode()

    async def talk() -> tuple[int, str]:
        server: Any = ManagementServer(node, node)
        if anonymous is not None:
            server = MetricServer(node, node, anonymous)
        port = await server.start("127.0.0.1", 0)
        try:
            headers = {"Authorization": f"Basic {login}"} if user else {}
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer,
            ):
                return answer.status, await answer.text()
        finally:
            await server.stop()

    return asyncio.run(talk())


def samples(text: str) -> dict[str, float]:
    return {
        f"{sample.name}{''.join(f' {value}' for value in sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def own(text: str) -> set[str]:
    """Names and labels of the series of the broker, without those of requests."""
    found = {name for name in samples(text) if name.startswith("headrace_")}
    return {name for name in found if not name.startswith("headrace_http_")}


def test_a_node_tells_what_is_stopped_owed_and_held(node: Any, report: Report) -> None:
    _, stopped, blocked = (report.connect(number) for number in range(3))
    stopped.flow.stop(LIMIT_QUEUE, 7, NOW)
    blocked.state = "blocked"
    blocked.flow.stop(LIMIT_MEMORY, 0, NOW)
    account = report.ledger.open(Cause("n1/1/1", CONNECTION, "c", "n1"))
    account.balance(7).borrow(1001, 5000)
    report.ledger.open(Cause("n1/expiry", EXPIRY, "e", "n1")).balance(7).borrow(2, 20)
    report.facts.figures = lambda: {"buffered_bytes": 11}
    alarms = [AlarmStatus("n1", "memory-alarm", "r"), AlarmStatus("n2", "disk-alarm", "r")]
    report.facts.alarms = lambda: alarms
    report.hosts.update({1: Host(0), 2: Host(5)})
    report.now = NOW + 3 * SECOND_US
    node.reason = "not yet"
    node.leaderless = [("/", "q")]
    status, text = scrape(node)
    found = samples(text)
    assert status == 200
    wanted = {
        "headrace_flow_connections running": 1,
        "headrace_flow_connections flow": 1,
        "headrace_flow_connections blocked": 1,
        "headrace_flow_stopped_connections queue-pending-bytes": 1,
        "headrace_flow_stopped_connections account": 0,
        "headrace_flow_stopped_seconds_total queue-pending-bytes": 3,
        "headrace_flow_stopped_seconds_total memory-alarm": 3,
        "headrace_flow_debt_messages connection": 1001,
        "headrace_flow_debt_bytes expiry": 20,
        "headrace_flow_accounts_in_debt": 1,
        "headrace_flow_buffered_bytes": 11,
        "headrace_flow_limit_messages account-messages": 1000,
        "headrace_flow_limit_bytes account-bytes": 8 << 20,
        "headrace_flow_limit_share_ratio": 1,
        "headrace_flow_alarm memory-alarm": 1,
        "headrace_flow_alarm disk-alarm": 0,
        "headrace_flow_cluster_alarms disk-alarm": 1,
        "headrace_flow_saturated_queues": 1,
        "headrace_flow_behind_queues": 1,
        "headrace_flow_deferred_confirms": 7,
        "headrace_flow_dropped_messages_total": 0,
        "headrace_ready": 0,
        "headrace_queues_leaderless": 1,
        "headrace_queues_quorum_critical": 0,
    }
    assert {name: found.get(name) for name in wanted} == wanted
    assert found["process_resident_memory_bytes"] > 0
    assert "python_gc_collections_total 0" in found


def test_the_number_of_series_does_not_grow_with_clients_and_queues(
    node: Any, report: Report
) -> None:
    report.connect(0)
    before = own(scrape(node)[1])
    for number in range(300):
        report.connect(number).flow.stop(LIMIT_QUEUE, number, NOW)
        account = report.ledger.open(Cause(f"n1/1/{number}", CONNECTION, f"c{number}", "n1"))
        account.balance(number).borrow(1, 1)
        report.hosts[number] = Host(number)
    assert own(scrape(node)[1]) == before


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of functions that some work calls."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_a_scrape_costs_some_calls_for_each_queue_and_connection(report: Report) -> None:
    """The work is linear: what a thousand of each take is ten times what a hundred do."""
    view, churn = CatalogStore(), Churn()
    per_object = ObjectSamples(report.facts)

    def scrape_all() -> None:
        list(flow_samples(report.facts))
        list(queue_samples(report.hosts.values(), view, churn))

    def scrape_objects() -> None:
        for table in per_object.tables(FAMILIES):
            list(pieces_of(table))

    for work, most in ((scrape_all, 20), (scrape_objects, 100)):
        report.hosts.clear()
        report.infos.clear()
        found = []
        for count in (100, 200, 400):
            for number in range(len(report.hosts), count):
                report.hosts[number] = Host(number)
                report.connect(number).flow.stop(LIMIT_QUEUE, number, NOW)
            work()  # what is stopped is counted once
            found.append(calls_of(work))
        first, second, third = found
        assert (second - first) / 100 <= most, found
        assert third - second <= 2.1 * (second - first), found


def test_histograms_are_cumulative_and_in_seconds(node: Any) -> None:
    durations = Histogram((1_000, 1_000_000))
    for us in (900, 1_000, 2_000_000):
        durations.observe(us)
    node.metrics.found = lambda: [Sample("log_sync_duration_seconds", durations)]
    found = samples(scrape(node)[1])
    name = "headrace_log_sync_duration_seconds"
    assert [found[f"{name}_bucket {bound}"] for bound in ("0.001", "1.0", "+Inf")] == [2, 2, 3]
    assert found[f"{name}_count"] == 3
    assert found[f"{name}_sum"] == pytest.approx(2.0019)


def test_requests_are_counted_by_handler_method_and_code(node: Any) -> None:
    node.metrics.http.answered("", "BREW", 404, 0.001)
    node.metrics.http.answered("page", "GET", 200, None)
    found = samples(scrape(node, anonymous=True)[1])
    assert found["headrace_http_requests_total 404 other other"] == 1
    assert found["headrace_http_requests_total 200 page GET"] == 1
    assert "headrace_http_request_duration_seconds_count page" not in found
    assert found["headrace_http_request_duration_seconds_count other"] == 1
    found = samples(scrape(node, anonymous=True)[1])
    assert found["headrace_http_requests_total 200 metrics GET"] == 1
    assert found["headrace_http_request_duration_seconds_bucket metrics +Inf"] == 1


def test_single_objects_are_told_where_the_configuration_allows_it_only(
    node: Any, report: Report
) -> None:
    for path in ("/metrics/per-object", "/metrics/detailed?family=queue_metrics"):
        status, text = scrape(node, path)
        assert status == 404
        assert "metrics.per_object is false" in text


def test_the_fullest_queues_have_series_of_their_own(node: Any, report: Report) -> None:
    node.metrics.per_object = True
    for number in range(100):
        report.hosts[number] = Host(number)
        report.connect(number).buffered_bytes = number
    text = scrape(node, "/metrics/per-object")[1]
    found = samples(text)
    ready = [name for name in found if "queue_messages_ready" in name]
    assert len(ready) == 200 // 3 // 13
    assert found['headrace_detailed_queue_messages_ready / q"99'] == 99
    assert found['headrace_detailed_queue_saturated / q"0'] == 1
    assert found["headrace_detailed_connection_buffered_bytes / u a -> b"] == 89
    assert found["headrace_detailed_objects_left_out queue"] == 95
    assert found["headrace_detailed_objects_left_out connection"] == 89
    assert found["headrace_detailed_objects_left_out channel"] == 0
    assert len(found) <= 200 + 3


class Control(ConnectionControl):
    """A connection with channels that each have published as many messages as their number."""

    def __init__(self, channels: int) -> None:
        self._channels = channels

    def traffic(self) -> list[tuple[int, ClientTraffic]]:
        found = [(number, ClientTraffic()) for number in range(1, self._channels + 1)]
        for number, passed in found:
            passed.publish = number
            passed.deliver, passed.get_no_ack = 2, 3
        return found

    def shut_down(self, reason: str) -> None:
        raise AssertionError(reason)

    def limits_changed(self) -> None:
        raise AssertionError

    def channels(self, now_us: int) -> list[Any]:
        raise AssertionError


def test_channels_have_series_within_the_bound(node: Any, report: Report) -> None:
    node.metrics.per_object = True
    for number in range(3):
        info = report.connect(number)
        info.name, info.channels, info.buffered_bytes = f"c{number}", 30, number
        info.control = Control(30)
    report.connect(3).channels = 1  # it has just closed
    text = scrape(node, "/metrics/detailed?family=channel_metrics")[1]
    found = samples(text)
    assert "# TYPE headrace_detailed_channel_published_total counter" in text
    assert found["headrace_detailed_channel_published_total / u c2 30"] == 30
    assert found["headrace_detailed_channel_delivered_total / u c2 30"] == 5
    shown = [name for name in found if "channel_published_total" in name]
    assert len(shown) == 200 // 5
    assert not any(" c0 " in name for name in shown)
    assert found["headrace_detailed_objects_left_out channel"] == 3 * 30 + 1 - 40


def test_families_and_vhosts_are_chosen(node: Any, report: Report) -> None:
    node.metrics.per_object = True
    report.hosts.update({1: Host(1), 2: Host(2)})
    report.hosts[2].queue = Queue("other", "q", "quorum", 2, (1,))
    report.connect(0)
    path = "/metrics/detailed?family=queue_consumer_count&vhost=other"
    assert set(samples(scrape(node, path)[1])) == {
        "headrace_detailed_queue_consumers other q",
        "headrace_detailed_objects_left_out queue",
    }
    both = samples(scrape(node, f"{path}&vhost=/&family=connection_metrics")[1])
    assert "headrace_detailed_connection_stopped / u a -> b" in both
    assert 'headrace_detailed_queue_consumers / q"1' in both


@pytest.mark.parametrize("query", ["", "?family=queue_metrics&family=nothing"])
def test_a_family_that_is_missing_or_not_known_is_refused(node: Any, query: str) -> None:
    node.metrics.per_object = True
    status, text = scrape(node, f"/metrics/detailed{query}")
    assert status == 400
    assert all(family in text for family in FAMILIES)


def test_many_series_are_written_in_pieces_under_one_head() -> None:
    metric = Metric("x", "Text.", ("n",))
    keys = [(str(number),) for number in range(1201)]
    columns = iter([(metric, [float(number) for number in range(1201)])])
    pieces = list(pieces_of(ObjectTable(("n",), keys, columns)))
    assert [piece.count("\n") for piece in pieces] == [0, 0, 0, 2, 500, 500, 201]
    found = samples("".join(pieces))
    assert len(found) == 1201
    assert found["headrace_x 1200"] == 1200


@pytest.mark.parametrize(
    "name", ["", "a b", 'q"uote', "back\\slash", "line\nbreak", '\\"\n', "ü{}="]
)
def test_names_of_objects_are_escaped(name: str) -> None:
    metric = Metric("x", "Text.", ("n", "m"))
    table = ObjectTable(("n", "m"), [(name, "z")], iter([(metric, [1.5])]))
    [family] = text_string_to_metric_families("".join(pieces_of(table)))
    assert [(each.labels, each.value) for each in family.samples] == [({"n": name, "m": "z"}, 1.5)]


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, metric in METRICS.items():
        assert name.endswith("_total") == (metric.kind == "counter"), name
        assert not name.endswith(("_ms", "_octets", "_us", "_count", "_sum")), name
        assert metric.kind != "histogram" or name.endswith("_duration_seconds"), name
        assert metric.text.endswith("."), name


@pytest.mark.parametrize("path", ["/metrics", "/metrics/per-object"])
def test_metrics_are_for_those_who_may_look_at_everything(
    node: Any, report: Report, path: str
) -> None:
    node.metrics.per_object = True
    for anonymous in (None, False):
        assert scrape(node, path, "", anonymous)[0] == 401
        assert scrape(node, path, "alice", anonymous)[0] == 403
        assert scrape(node, path, "guest", anonymous)[0] == 200
    assert scrape(node, path, "", anonymous=True)[0] == 200
    assert scrape(node, "/api/overview", "guest", anonymous=True)[0] == 404
