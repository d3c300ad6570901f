"""Debts that nodes tell each other, whatever becomes of what they say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_broker.flow.account import AccountOwner, Ledger
from headrace_broker.flow.charges import ChargeObserver, Charges
from headrace_broker.flow.debt_report import (
    REFRESH_MS,
    REPEAT_MS,
    REPORT_MS,
    Debt,
    DebtAnnouncement,
    ReportedDebts,
)
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.flow import CONNECTION, DEAD_LETTERS, Cause
from headrace_broker.model.session import session_id

A = session_id(1, 1, 1)
GROUP = 7


class Home:
    """A node that is told."""

    def __init__(self):
        self.ledger = Ledger(FlowLimits())
        self.account = self.ledger.open(Cause("a", CONNECTION, "a", "n1"))
        self.debts = ReportedDebts({A: self.account}.get)


@pytest.fixture
def home():
    """A node that is told."""
    return Home()


def test_newest_report_says_all(home):
    home.debts.receive(2, 1, 1, [Debt(A, GROUP, 5, 50), Debt(A, 8, 1, 1)])
    assert (home.account.messages, home.account.byte_count) == (6, 51)
    home.debts.receive(2, 1, 3, [Debt(A, GROUP, 2, 90)])
    home.debts.receive(2, 1, 2, [Debt(A, GROUP, 9, 99)])  # overtaken
    assert (home.account.messages, home.account.byte_count) == (2, 90)
    [(node, loan)] = home.debts.loans()
    assert (node, loan.group, loan.messages) == (2, GROUP, 2)
    home.debts.receive(2, 1, 4, [])
    assert (home.account.messages, home.account.byte_count, home.debts.loans()) == (0, 0, [])


def test_reports_of_several_nodes_add_up_and_a_node_that_goes_takes_its_own_along(home):
    home.debts.receive(2, 1, 1, [Debt(A, GROUP, 5, 50)])
    home.debts.receive(3, 1, 1, [Debt(A, GROUP, 7, 70)])
    assert home.account.messages == 12
    home.debts.drop(2)
    assert home.account.messages == 7


def test_report_of_a_node_that_started_again_is_newer(home):
    home.debts.receive(2, 1, 9, [Debt(A, GROUP, 5, 50)])
    home.debts.receive(2, 2, 1, [Debt(A, GROUP, 1, 10)])
    home.debts.receive(2, 1, 10, [Debt(A, GROUP, 5, 50)])
    assert home.account.messages == 1


def test_report_of_what_nobody_knows_is_harmless(home):
    home.debts.receive(2, 1, 1, [Debt(session_id(1, 1, 77), GROUP, 5, 50), Debt(A, GROUP, 1, 1)])
    assert (home.account.messages, len(home.debts.loans())) == (1, 1)


@pytest.mark.parametrize("again", [Debt(A, GROUP, 2, 20), Debt(A, GROUP, 9, 90)])
def test_debt_that_is_named_twice_is_the_last_one(home, again):
    home.debts.receive(2, 1, 1, [Debt(A, GROUP, 5, 50), again])
    assert home.account.messages == again.messages
    home.debts.drop(2)
    assert (home.account.messages, home.account.byte_count) == (0, 0)


def test_figures_beyond_reason_are_cut(home):
    home.debts.receive(2, 1, 1, [Debt(A, GROUP, 1 << 64, 1 << 64), Debt(A, 8, 0, 5)])
    assert 0 < home.account.messages < 1 << 62
    home.debts.drop(2)
    assert (home.account.messages, home.account.byte_count) == (0, 0)


def test_growing_debt_stops_the_account_and_its_end_lets_it_go_on(home):
    limit = home.ledger.limits.account_messages
    home.debts.receive(2, 1, 1, [Debt(A, GROUP, limit + 1, 10)])
    assert home.account.in_debt
    home.debts.receive(2, 1, 2, [Debt(A, GROUP, limit // 2, 10)])
    assert not home.account.in_debt


def test_debt_that_moves_between_queues_is_not_forgiven_in_between(home):
    cleared = []
    home.account.owner = type(
        "D", (AccountOwner,), {"on_clear_funds": lambda self: cleared.append(1)}
    )()
    limit = home.ledger.limits.account_messages
    home.debts.receive(2, 1, 1, [Debt(A, GROUP, limit + 1, 10)])
    home.debts.receive(2, 1, 2, [Debt(A, 8, limit + 1, 10)])
    assert (cleared, home.account.in_debt) == ([], True)


def test_what_is_repaid_before_it_was_told_is_not_told():
    telling = DebtAnnouncement()
    telling.changed = True
    assert not telling.poll(REPORT_MS, owes=False)
    assert telling.is_over


def test_report_is_repeated_until_it_is_heard_and_debts_are_told_again_now_and_then():
    telling = DebtAnnouncement()
    telling.changed = True
    assert telling.poll(0, owes=True)
    telling.number += 1
    telling.told(0, empty=False)
    assert not telling.poll(REPEAT_MS - 1, owes=True)
    assert telling.poll(REPEAT_MS, owes=True)
    telling.answered(0)
    assert telling.poll(REPEAT_MS, owes=True)
    telling.answered(telling.number)
    assert not telling.poll(REFRESH_MS - 1, owes=True)
    assert telling.poll(REFRESH_MS, owes=True)


class Observer(ChargeObserver):
    def __init__(self, node):
        self._node = node

    def on_changed(self, home):
        self._node.tellings[home].changed = True


class Node:
    """One of three nodes, with two clients of one session each."""

    def __init__(self, number, boot):
        self.number = number
        self.boot = boot
        self.ledger = Ledger(FlowLimits())
        unknown = self.ledger.open(Cause("unknown", DEAD_LETTERS, "", ""))
        self.tellings = {other: DebtAnnouncement() for other in (1, 2, 3) if other != number}
        self.charges = Charges(number, self.ledger, unknown, Observer(self))
        self.reported = ReportedDebts(self.charges.account)
        self.under_way = []
        for session in self.sessions():
            cause = Cause(f"{session:x}", CONNECTION, "", "")
            self.charges.register(session, self.ledger.open(cause))

    def sessions(self):
        return [session_id(self.number, self.boot, number) for number in (1, 2)]

    def tell(self, world, now_ms):
        for home, telling in self.tellings.items():
            owed = self.charges.owed_to(home)
            if telling.poll(now_ms, bool(owed)):
                telling.number += 1
                lines = [
                    Debt(int(c.cause), c.loan.group, int(c.loan.messages), int(c.loan.byte_count))
                    for c in owed
                ]
                world.post("report", self, home, (self.boot, int(telling.number), lines))
                telling.told(now_ms, not owed)


class World:
    """Three nodes whose links lose, repeat and overtake."""

    def __init__(self):
        self.nodes = {number: Node(number, 1) for number in (1, 2, 3)}
        self.wire = []
        self.now_ms = 0

    def post(self, kind, sender, to, body):
        self.wire.append((kind, sender.number, to, body))

    def deliver(self, place, keep=False):
        if not self.wire:
            return
        place %= len(self.wire)
        kind, sender, to, body = self.wire[place]
        if not keep:
            del self.wire[place]
        node = self.nodes[to]
        if kind == "report":
            node.reported.receive(sender, *body)
            self.post("heard", node, sender, body[:2])
        elif body[0] == node.boot:
            node.tellings[sender].answered(body[1])

    def step(self, kind, number, other, place):
        node = self.nodes[number]
        if kind == "borrow":
            cause = self.nodes[other].sessions()[place % 2]
            charge = node.charges.charge(cause, place % 3)
            charge.borrow(1, place)
            node.under_way.append((charge, place))
        elif kind == "repay" and node.under_way:
            charge, byte_count = node.under_way.pop(place % len(node.under_way))
            charge.repay(1, byte_count)
        elif kind == "tell":
            self.now_ms += REPORT_MS
            node.tell(self, self.now_ms)
        elif kind == "deliver":
            self.deliver(place)
        elif kind == "repeat":
            self.deliver(place, keep=True)
        elif kind == "lose" and self.wire:
            del self.wire[place % len(self.wire)]
        elif kind == "down" and number != other:  # only one side may notice
            node.reported.drop(other)
        elif kind == "restart":
            self.nodes[number] = Node(number, node.boot + 1)
            for peer in self.nodes.values():
                if peer.number != number:
                    peer.reported.drop(number)
        self.check()

    def check(self):
        for node in self.nodes.values():
            for account in node.ledger.accounts.values():
                assert account.messages >= 0
                assert account.byte_count >= 0

    def quiet(self):
        """Let everything that is said be heard."""
        for _ in range(4):
            self.now_ms += REFRESH_MS
            for node in self.nodes.values():
                node.tell(self, self.now_ms)
            while self.wire:
                self.deliver(0)

    def views(self):
        """Return the homes' view and the truth: rows that are equal."""
        believed, so = [], []
        for home in self.nodes.values():
            for number, loan in home.reported.loans():
                believed.append(_row(number, loan.account.cause.account, loan))
        for node in self.nodes.values():
            for other in node.tellings:
                living = self.nodes[other].sessions()
                owed = [c for c in node.charges.owed_to(other) if c.cause in living]
                so += [_row(node.number, f"{c.cause:x}", c.loan) for c in owed]
        return sorted(believed), sorted(so)


def _row(node, account, loan):
    return node, account, loan.group, loan.messages, loan.byte_count


OFTEN = ("borrow", "repay", "tell", "deliver")
STEPS = st.tuples(
    st.sampled_from([*OFTEN, *OFTEN, "repeat", "lose", "down", "restart"]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 30),
)


@settings(deadline=None)
@given(st.lists(STEPS, max_size=120))
def test_homes_come_to_know_what_is_owed_and_nothing_is_left_in_the_end(steps):
    world = World()
    for step in steps:
        world.step(*step)
    world.quiet()
    believed, so = world.views()
    assert believed == so
    for node in world.nodes.values():
        while node.under_way:
            charge, byte_count = node.under_way.pop()
            charge.repay(1, byte_count)
    world.quiet()
    for node in world.nodes.values():
        assert (node.charges.count, len(node.charges._proxies)) == (0, 0)
        assert node.reported.loans() == []
        for account in node.ledger.accounts.values():
            assert (account.messages, account.byte_count) == (0, 0)
        assert all(telling.is_over for telling in node.tellings.values())
