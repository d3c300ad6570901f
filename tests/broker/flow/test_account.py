"""Accounts: debts, and when owners are resumed."""

from __future__ import annotations

import pytest

from headrace_broker.flow.account import Account, AccountOwner, Ledger
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.flow import CONNECTION, Cause

DATASPACE = 1
OUTPUTS = range(11, 20)


class Reader(AccountOwner):
    """Counts how often it is told to go on, and may do something then."""

    def __init__(self) -> None:
        self.told = 0

    def on_clear_funds(self) -> None:
        self.told += 1


class Borrower(Reader):
    """Hands over more as soon as it may."""

    def __init__(self) -> None:
        super().__init__()
        self.account: Account | None = None

    def on_clear_funds(self) -> None:
        super().on_clear_funds()
        assert self.account is not None
        self.account.balance(DATASPACE).borrow(20, 0)


def cause(name: str) -> Cause:
    return Cause(name, CONNECTION, name, "n1")


def limited(messages: int, byte_count: int = 1 << 40) -> FlowLimits:
    limits = FlowLimits()
    limits.account_messages, limits.account_bytes = messages, byte_count
    return limits


def opened(limits: FlowLimits) -> tuple[Ledger, Account, Reader]:
    ledger, reader = Ledger(limits), Reader()
    return ledger, ledger.open(cause("a"), reader), reader


def test_fan_out_is_charged_to_who_caused_it() -> None:
    """A publishes M through D to nine outputs; it stops past 5 and goes on at the low mark."""
    _, account, reader = opened(limited(5))
    account.balance(DATASPACE).borrow(1, 100)
    assert (account.messages, account.in_debt) == (1, False)
    account.balance(DATASPACE).repay(1, 100)
    for output in OUTPUTS:
        account.balance(output).borrow(1, 100)
    assert account.messages == 1 - 1 + 9
    assert account.in_debt
    for done, output in enumerate(OUTPUTS, 1):
        account.balance(output).repay(1, 100)
        assert account.messages == 9 - done
        stopped = 9 - done > 5 // 2
        assert (account.in_debt, reader.told) == (stopped, 0 if stopped else 1)
    assert (account.messages, account.byte_count, reader.told) == (0, 0, 1)


def test_bytes_stop_as_messages_do() -> None:
    _, account, reader = opened(limited(1000, 10))
    account.balance(DATASPACE).borrow(1, 11)
    assert account.in_debt
    account.balance(DATASPACE).borrow(1, 4)
    account.balance(DATASPACE).repay(1, 9)
    assert account.in_debt
    account.balance(DATASPACE).repay(1, 6)
    assert (account.in_debt, reader.told) == (False, 1)


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_the_smallest_limits_let_one_go_at_a_time(limit: int) -> None:
    _, account, reader = opened(limited(limit))
    for turn in range(1, 4):
        account.balance(DATASPACE).borrow(3, 0)
        assert account.in_debt
        account.balance(DATASPACE).repay(3, 0)
        assert (account.in_debt, reader.told) == (False, turn)


def test_a_raised_limit_lets_go_at_once() -> None:
    ledger, account, reader = opened(limited(5))
    account.balance(DATASPACE).borrow(9, 0)
    ledger.limits.account_messages = 17
    ledger.poll()
    assert reader.told == 0  # 9 is more than half of it
    ledger.limits.account_messages = 18
    ledger.poll()
    ledger.poll()
    assert (account.in_debt, reader.told) == (False, 1)


def test_a_lowered_limit_stops_at_once() -> None:
    ledger, account, reader = opened(limited(100))
    account.balance(DATASPACE).borrow(50, 0)
    ledger.limits.account_messages = 10
    ledger.poll()
    assert account.in_debt
    ledger.poll()
    account.balance(DATASPACE).repay(45, 0)
    assert (account.in_debt, reader.told) == (False, 1)


def test_scarce_memory_lowers_limits_and_gives_them_back() -> None:
    ledger, account, reader = opened(limited(100))
    account.balance(DATASPACE).borrow(50, 0)
    ledger.limits.share = 20
    ledger.poll()
    assert account.in_debt
    ledger.limits.share = 100
    ledger.poll()
    assert (account.in_debt, reader.told) == (False, 1)


def test_who_hands_over_more_when_told_is_told_again_later() -> None:
    ledger, borrower = Ledger(limited(5)), Borrower()
    account = ledger.open(cause("a"), borrower)
    borrower.account = account
    account.balance(2).borrow(6, 0)
    account.balance(2).repay_all()
    assert (account.in_debt, borrower.told, account.messages) == (True, 1, 20)
    account.balance(DATASPACE).repay(17, 0)
    assert borrower.told == 1
    account.owner = None
    account.balance(DATASPACE).repay(3, 0)
    assert (account.in_debt, account.messages) == (False, 0)


def test_nothing_is_repaid_twice() -> None:
    _, account, _ = opened(limited(5))
    account.balance(DATASPACE).borrow(2, 10)
    account.balance(2).borrow(2, 10)
    with pytest.raises(AssertionError, match="twice"):
        account.balance(DATASPACE).repay(3, 10)
    with pytest.raises(AssertionError, match="twice"):
        account.balance(DATASPACE).repay(1, 11)
    assert (account.messages, account.byte_count) == (4, 20)


def test_a_balance_is_closed_once_nothing_is_owed() -> None:
    _, account, _ = opened(limited(5))
    account.balance(DATASPACE).borrow(1, 1)
    account.close_balance(DATASPACE)
    account.close_balance(2)
    assert list(account.balances) == [DATASPACE]
    account.balance(DATASPACE).repay_all()
    account.close_balance(DATASPACE)
    assert account.balances == {}


def test_a_closed_account_stays_until_its_work_is_done() -> None:
    ledger, account, reader = opened(limited(5))
    other = ledger.open(cause("b"))
    account.balance(DATASPACE).borrow(9, 9)
    other.balance(DATASPACE).borrow(1, 90)
    ledger.close(account)
    ledger.sweep()
    assert list(ledger.accounts) == ["a", "b"]
    assert (account.balances[DATASPACE].byte_count, other.balances[DATASPACE].byte_count) == (9, 90)
    account.balance(DATASPACE).repay_all()
    ledger.sweep()
    assert list(ledger.accounts) == ["b"]
    assert reader.told == 0  # it is gone
    other.balance(DATASPACE).repay_all()
    assert (other.messages, other.byte_count) == (0, 0)
    ledger.close(other)
    assert ledger.accounts == {}
