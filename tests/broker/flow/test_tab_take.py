"""Changes of a balance since the last query: nothing twice, nothing missed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.account import Account, AccountBalance, Ledger
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.flow import CONNECTION, Cause
from headrace_broker.model.limits import ACCOUNTS_LEAVING_MAX, BALANCE_EXCHANGES_MAX

GROUP = 7


def opened() -> tuple[Ledger, Account, AccountBalance]:
    ledger = Ledger(FlowLimits())
    account = ledger.open(Cause("a", CONNECTION, "a", "n1"))
    return ledger, account, account.balance(GROUP)


@given(st.lists(st.sampled_from(["borrow", "through", "repay", "sample", "take"]), max_size=60))
def test_takes_add_up_to_what_happened(steps: list[str]) -> None:
    _, _, balance = opened()
    borrowed = repaid = through = 0
    sums = [0, 0, 0]
    for step in [*steps, "take"]:
        if step == "borrow":
            balance.borrow(3, 300)
            borrowed += 3
        elif step == "through":
            balance.borrow(2, 200)
            balance.came_through("x", 2)
            borrowed += 2
            through += 2
        elif step == "repay" and balance.messages:
            balance.repay(1, 0)
            repaid += 1
        elif step == "sample":
            balance.sample(1.0)
        elif step == "take":
            moved = balance.take()
            assert moved.byte_count == 100 * moved.messages
            for at, count in enumerate(
                (moved.messages, moved.repaid_messages, moved.exchanges.get("x", 0))
            ):
                assert count >= 0
                sums[at] += count
    assert sums == [borrowed, repaid, through]


def test_exchanges_are_bounded() -> None:
    _, _, balance = opened()
    for second in range(3):
        for number in range(2 * BALANCE_EXCHANGES_MAX):
            balance.borrow(1, 1)
            balance.came_through(f"{second} {number}", 1)
        balance.sample(1.0)
    moved = balance.take()
    assert moved.messages == 6 * BALANCE_EXCHANGES_MAX
    assert len(moved.exchanges) == BALANCE_EXCHANGES_MAX


def test_account_that_was_closed_is_still_looked_at() -> None:
    ledger, account, balance = opened()
    ledger.leaving = []
    balance.borrow(1, 10)
    balance.repay(1, 10)
    ledger.close(account)
    assert not ledger.accounts
    [left] = ledger.leaving
    assert left.balances[GROUP].take()[:2] == (1, 10)


def test_account_that_owed_when_it_was_closed_leaves_when_it_is_swept() -> None:
    ledger, account, balance = opened()
    ledger.leaving = []
    balance.borrow(1, 10)
    ledger.close(account)
    assert ledger.leaving == []
    balance.repay(1, 10)
    ledger.sweep()
    assert ledger.leaving == [account]


def test_those_that_leave_are_bounded_and_not_kept_for_nobody() -> None:
    ledger = Ledger(FlowLimits())
    choices: tuple[list[Account] | None, ...] = (None, [])
    for looked in choices:
        ledger.leaving = looked
        for number in range(ACCOUNTS_LEAVING_MAX + 1):
            account = ledger.open(Cause(str(number), CONNECTION, "a", "n1"))
            account.balance(GROUP)
            ledger.close(account)
    assert ledger.leaving is not None
    assert len(ledger.leaving) == ACCOUNTS_LEAVING_MAX
