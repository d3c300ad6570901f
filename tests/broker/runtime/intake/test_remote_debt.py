"""Nodes that tell each other what their clients owe."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.broker.runtime.intake.proxies import proxies

from headrace_broker.flow.account import Ledger
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.flow import CONNECTION, Cause
from headrace_broker.model.session import session_id
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.intake import remote_debt as module
from headrace_broker.runtime.intake.remote_debt import DebtHeard, DebtReport, RemoteDebts

GROUP = 7


class StoppedClock(Clock):
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms


class Node:
    """A node with one client."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.number = number
        self.ledger = Ledger(FlowLimits())
        self.debts = RemoteDebts(
            (number, f"n{number}"),
            self.ledger,
            lambda: 1,
            lambda to, data: cluster.send(number, to, data),
            cluster.clock,
        )
        self.session = session_id(number, 1, 1)
        cause = Cause(f"client of {number}", CONNECTION, f"client of {number}", f"n{number}")
        self.account = self.ledger.open(cause)
        self.debts.charges.register(self.session, self.account)

    def owe(self, cause: int, messages: int) -> None:
        """Work of a client waits here."""
        self.debts.charges.charge(cause, GROUP).borrow(messages, 10 * messages)

    def repay(self, cause: int, messages: int) -> None:
        """Some of it is done."""
        self.debts.charges.charge(cause, GROUP).repay(messages, 10 * messages)


class Cluster:
    """Three nodes; what they say is heard at once, unless the link is full."""

    def __init__(self) -> None:
        self.clock = StoppedClock()
        self.full = False
        self.said: list[str] = []
        self.nodes = {number: Node(self, number) for number in (1, 2, 3)}

    def send(self, sender: int, to: int, data: bytes) -> bool:
        if self.full:
            return False
        payload = msgspec.msgpack.decode(data, type=DebtReport | DebtHeard)
        self.said.append(str(payload.__struct_config__.tag))
        debts = self.nodes[to].debts
        if isinstance(payload, DebtReport):
            debts.receive_report(sender, payload)
        else:
            debts.receive_heard(sender, payload)
        return True

    def stop(self) -> None:
        for node in self.nodes.values():
            node.debts.stop()


@pytest.fixture
def cluster(monkeypatch):
    """Three nodes that tell each other in the next turn of the loop."""
    monkeypatch.setattr(module, "REPORT_MS", 0)
    monkeypatch.setattr(module, "REPEAT_MS", 0)
    return Cluster()


async def until(condition):
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


def test_debt_elsewhere_is_the_clients_and_is_shown_where_it_came_in(cluster, run):
    async def scenario():
        home, worker, other = cluster.nodes.values()
        worker.owe(home.session, 3)
        other.owe(home.session, 4)
        await until(lambda: home.account.messages == 7)
        assert home.account.byte_count == 70
        owed = home.debts.causes(GROUP)
        assert [(each.cause.name, each.node, each.messages) for each in owed] == [
            ("client of 1", 3, 4),
            ("client of 1", 2, 3),
        ]
        assert worker.debts.causes(GROUP) == []
        assert proxies(worker.debts, GROUP) == [(home.session, 3, 30)]
        worker.repay(home.session, 3)
        other.repay(home.session, 4)
        await until(lambda: home.account.messages == 0)
        assert home.debts.causes(GROUP) == []
        cluster.stop()

    run(scenario)


def test_changes_of_one_turn_are_told_together(cluster, run):
    async def scenario():
        home, worker, _ = cluster.nodes.values()
        for _ in range(100):
            worker.owe(home.session, 1)
        await until(lambda: home.account.messages)
        assert home.account.messages == 100
        assert cluster.said == ["debt_report", "debt_heard"]
        cluster.stop()

    run(scenario)


def test_what_is_done_within_a_turn_is_not_told(cluster, run):
    async def scenario():
        home, worker, _ = cluster.nodes.values()
        worker.owe(home.session, 1)
        worker.repay(home.session, 1)
        for _ in range(10):
            await asyncio.sleep(0)
        assert cluster.said == []
        cluster.stop()

    run(scenario)


def test_report_that_did_not_leave_is_sent_when_there_is_room(cluster, run):
    async def scenario():
        home, worker, _ = cluster.nodes.values()
        cluster.full = True
        worker.owe(home.session, 1)
        for _ in range(10):
            await asyncio.sleep(0)
        assert home.account.messages == 0
        cluster.full = False
        await until(lambda: home.account.messages == 1)
        cluster.stop()

    run(scenario)


def test_node_that_goes_takes_its_debts_along_and_tells_them_again_when_it_is_back(cluster, run):
    async def scenario():
        home, worker, _ = cluster.nodes.values()
        worker.owe(home.session, 5)
        await until(lambda: home.account.messages == 5)
        home.debts.peer_changed(2, False)
        assert home.account.messages == 0
        worker.debts.peer_changed(1, False)
        worker.debts.peer_changed(1, True)
        await until(lambda: home.account.messages == 5)
        cluster.stop()

    run(scenario)


def test_debt_of_nobody_known_is_no_clients_and_lets_go_at_the_low_mark(cluster, run):
    async def scenario():
        home = cluster.nodes[1]
        cleared = []
        home.debts.on_clear_funds = lambda: cleared.append(True)
        home.ledger.limits.account_messages = 10
        home.owe(0, 11)
        assert home.debts.unknown.in_debt
        [owed] = home.debts.causes(GROUP)
        assert (owed.cause.account, owed.cause.kind) == ("n1/dead-letters", "dead-letters")
        home.repay(0, 11)
        assert (cleared, home.debts.unknown.in_debt) == ([True], False)
        cluster.stop()

    run(scenario)


@pytest.fixture
def run():
    """Run a scenario on an event loop."""
    return lambda scenario: asyncio.run(scenario())
