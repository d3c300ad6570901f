"""Work that is charged to its cause, here or on another node."""

from __future__ import annotations

import pytest

from headrace_broker.flow.account import Account, Ledger
from headrace_broker.flow.charges import NO_CAUSE, ChargeObserver, Charges
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.flow import CONNECTION, DEAD_LETTERS, Cause
from headrace_broker.model.limits import CAUSES_REMEMBERED_MAX, REMOTE_DEBTS_MAX
from headrace_broker.model.session import session_id

HERE = session_id(1, 1, 1)
THERE = session_id(2, 1, 1)
GROUP = 7


class Observer(ChargeObserver):
    """Notes which nodes are to be told."""

    def __init__(self):
        self.homes = []

    def on_changed(self, home):
        self.homes.append(home)


class Node:
    """Node 1 with one client."""

    def __init__(self):
        self.ledger = Ledger(FlowLimits())
        self.account = self.ledger.open(Cause("a", CONNECTION, "a", "n1"))
        self.unknown = self.ledger.open(Cause("n1/dead-letters", DEAD_LETTERS, "", "n1"))
        self.observer = Observer()
        self.charges = Charges(1, self.ledger, self.unknown, self.observer)
        self.charges.register(HERE, self.account)


@pytest.fixture
def node():
    """Node 1 with one client."""
    return Node()


def test_work_of_a_client_here_is_its_accounts_debt(node):
    charge = node.charges.charge(HERE, GROUP)
    charge.borrow(3, 30)
    assert (node.account.messages, node.account.byte_count) == (3, 30)
    assert node.account.balances[GROUP].messages == 3
    charge.repay(3, 30)
    assert (node.account.messages, node.charges.count, node.observer.homes) == (0, 0, [])


def test_work_of_a_client_elsewhere_is_noted_for_its_node(node):
    charge = node.charges.charge(THERE, GROUP)
    charge.borrow(3, 30)
    assert node.observer.homes == [2]
    assert [(c.cause, c.loan.messages) for c in node.charges.owed_to(2)] == [(THERE, 3)]
    assert (node.account.messages, node.unknown.messages) == (0, 0)
    node.charges.charge(THERE, GROUP).repay(3, 30)
    assert (node.charges.owed_to(2), len(node.charges._proxies)) == ([], 0)
    assert node.observer.homes == [2, 2]


@pytest.mark.parametrize("cause", [NO_CAUSE, session_id(1, 1, 99)])
def test_work_of_nobody_known_is_charged_to_one_account(node, cause):
    node.charges.charge(cause, GROUP).borrow(1, 10)
    assert node.unknown.messages == 1


def test_closed_session_is_remembered_while_its_account_is_open(node):
    node.charges.end(HERE)
    node.charges.charge(HERE, GROUP).borrow(1, 10)
    assert node.account.messages == 1
    node.ledger.close(node.account)  # it stays, for it owes something
    assert node.charges.account(HERE) is node.account
    node.charges.charge(HERE, GROUP).repay(1, 10)
    node.ledger.sweep()
    assert node.charges.account(HERE) is None
    node.charges.charge(HERE, GROUP).borrow(1, 10)
    assert node.unknown.messages == 1


def test_closed_sessions_are_remembered_within_a_bound(node):
    sessions = [session_id(1, 1, number) for number in range(2, CAUSES_REMEMBERED_MAX + 3)]
    for session in sessions:
        node.charges.register(session, node.account)
        node.charges.end(session)
    known = [node.charges.account(session) for session in sessions]
    assert known == [None, *[node.account] * CAUSES_REMEMBERED_MAX]


def test_more_causes_elsewhere_than_there_is_room_for_are_nobodys(node):
    sessions = [session_id(2, 1, number) for number in range(1, REMOTE_DEBTS_MAX + 2)]
    charges = [node.charges.charge(session, GROUP) for session in sessions]
    for charge in charges:
        charge.borrow(1, 1)
    assert (len(node.charges._proxies), node.unknown.messages) == (REMOTE_DEBTS_MAX, 1)
    for charge in charges:
        charge.repay(1, 1)
    assert (node.charges.count, node.unknown.messages) == (0, 0)


def test_more_cannot_be_repaid_than_was_borrowed(node):
    charge = node.charges.charge(HERE, GROUP)
    charge.borrow(1, 1)
    with pytest.raises(AssertionError, match="repaid twice"):
        charge.repay(2, 2)


def test_worked_example_of_fan_out_with_dead_letters(node):
    """A dead letter becomes nine: A owes 1, then 1 - 1 + 9."""
    account = node.account
    assert isinstance(account, Account)
    at_source = node.charges.charge(HERE, GROUP)
    at_source.borrow(1, 10)
    assert account.messages == 1
    outputs = [node.charges.charge(HERE, 100 + n) for n in range(9)]
    for output in outputs:
        output.borrow(1, 10)
    at_source.repay(1, 10)
    assert account.messages == 9
    for left, output in enumerate(outputs):
        assert account.messages == 9 - left
        output.repay(1, 10)
    assert (account.messages, account.byte_count, node.charges.count) == (0, 0, 0)
