"""/metrics: read back by Prometheus's own parser."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace_broker.catalog.store import CatalogStore
from headrace_broker.core.queue.settings import QueueSettings
from headrace_broker.flow.account import Ledger
from headrace_broker.flow.activity import SECOND_US, Activity
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.management.server import ManagementServer
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import CONNECTION, EXPIRY, LIMIT_MEMORY, LIMIT_QUEUE, Cause
from headrace_broker.model.flow_status import AlarmStatus
from headrace_broker.model.limits import METRIC_QUEUES_MAX
from headrace_broker.runtime.flow_facts import FlowFacts
from headrace_broker.runtime.port import ConnectionInfo
from headrace_broker.runtime.queue_rates import QueueRates

NOW = 1_000 * SECOND_US


class Machine:
    def __init__(self, number: int) -> None:
        self.ready_count = self.ready_octets = number
        self.unsettled_count = self.unsettled_octets = self.consumer_count = 0
        self.saturated = number == 0
        self.withheld_count = 7 if self.saturated else 0
        self.held_count = self.held_octets = number
        self.settings = QueueSettings()

    def fairness(self, limit: int) -> list[Any]:
        return []

    def consumers(self) -> list[Any]:
        return []


class Host:
    def __init__(self, number: int) -> None:
        self.queue = Queue("/", f'q"{number}', "quorum", number + 1, (1,))
        self.machine = Machine(number)
        self.serving = True


class Report:
    """A node with connections, accounts and queues as a test wants them."""

    def __init__(self) -> None:
        self.now = NOW
        self.infos: dict[str, ConnectionInfo] = {}
        self.ledger = Ledger(FlowLimits())
        self.hosts: dict[int, Any] = {}
        rates = QueueRates(self.hosts, self.ledger, lambda: self.now)
        view = CatalogStore()
        self.facts = FlowFacts(
            "n1", lambda: self.infos, self.ledger, self.hosts, view, rates, lambda: self.now
        )

    def connect(self, number: int) -> ConnectionInfo:
        info = ConnectionInfo(f"n1/1/{number}", "a -> b", "a", 1700)
        info.flow = Activity(self.now, self.ledger.stops)
        self.infos[info.id] = info
        return info


@pytest.fixture
def report(node: Any) -> Report:
    node.flow_report = Report()
    return node.flow_report  # type: ignore[no-any-return]


def scrape(node: Any, path: str = "/metrics", user: str = "mon") -> tuple[int, str]:
    login = base64.b64encode(f"{user}:{user}".encode()).decode()

    async def talk() -> tuple[int, str]:
        server = ManagementServer(node, node)
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


def test_a_node_tells_what_is_stopped_owed_and_held(node: Any, report: Report) -> None:
    _, stopped, blocked = (report.connect(number) for number in range(3))
    stopped.flow.stop(LIMIT_QUEUE, 7, NOW)
    blocked.state = "blocked"
    blocked.flow.stop(LIMIT_MEMORY, 0, NOW)
    account = report.ledger.open(Cause("n1/1/1", CONNECTION, "c", "n1"))
    account.tab(7).borrow(1001, 5000)
    report.ledger.open(Cause("n1/expiry", EXPIRY, "e", "n1")).tab(7).borrow(2, 20)
    report.facts.figures = lambda: {"held": 11}
    alarms = [AlarmStatus("n1", "memory-alarm", "r"), AlarmStatus("n2", "disk-alarm", "r")]
    report.facts.alarms = lambda: alarms
    report.hosts.update({1: Host(0), 2: Host(5)})
    report.now = NOW + 3 * SECOND_US
    status, text = scrape(node)
    found = samples(text)
    assert status == 200
    wanted = {
        "headrace_flow_connections running": 1,
        "headrace_flow_connections flow": 1,
        "headrace_flow_connections blocked": 1,
        "headrace_flow_stopped_connections queue-bytes": 1,
        "headrace_flow_stopped_connections account": 0,
        "headrace_flow_stopped_seconds_total queue-bytes": 3,
        "headrace_flow_stopped_seconds_total memory-alarm": 3,
        "headrace_flow_debt_messages connection": 1001,
        "headrace_flow_debt_octets expiry": 20,
        "headrace_flow_accounts_in_debt": 1,
        "headrace_flow_intake held": 11,
        "headrace_flow_limit account_messages": 1000,
        "headrace_flow_alarm memory-alarm": 1,
        "headrace_flow_alarm disk-alarm": 0,
        "headrace_flow_saturated_queues": 1,
        "headrace_flow_withheld_confirms": 7,
        "headrace_flow_dropped_messages_total": 0,
        "headrace_messages_total publish": 0,
        "headrace_queue_messages ready": 0,
    }
    assert {name: found.get(name) for name in wanted} == wanted


def test_the_number_of_series_does_not_grow_with_clients_and_queues(
    node: Any, report: Report
) -> None:
    report.connect(0)
    before = set(samples(scrape(node)[1]))
    for number in range(300):
        report.connect(number).flow.stop(LIMIT_QUEUE, number, NOW)
        account = report.ledger.open(Cause(f"n1/1/{number}", CONNECTION, f"c{number}", "n1"))
        account.tab(number).borrow(1, 1)
        report.hosts[number] = Host(number)
    assert set(samples(scrape(node)[1])) == before


def test_the_largest_queues_have_series_of_their_own(node: Any, report: Report) -> None:
    for number in range(METRIC_QUEUES_MAX + 30):
        report.hosts[number] = Host(number)
    found = samples(scrape(node, "/metrics/per-object")[1])
    ready = {name: value for name, value in found.items() if "_messages_ready" in name}
    assert len(ready) == METRIC_QUEUES_MAX
    assert ready['headrace_flow_queue_messages_ready q"49 /'] == 49
    assert found['headrace_flow_queue_saturated q"0 /'] == 1


@pytest.mark.parametrize("path", ["/metrics", "/metrics/per-object"])
def test_metrics_are_for_those_who_may_look_at_everything(
    node: Any, report: Report, path: str
) -> None:
    assert scrape(node, path, user="")[0] == 401
    assert scrape(node, path, user="alice")[0] == 403
    assert scrape(node, path, user="guest")[0] == 200
