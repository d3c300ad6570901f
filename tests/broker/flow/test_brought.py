"""Origins of messages by queue: kept in bounds, for those too that are gone."""

from __future__ import annotations

import itertools

from headrace_broker.flow.account import Ledger
from headrace_broker.flow.brought import BroughtRecord
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.loan import Loan
from headrace_broker.model.flow import CONNECTION, Cause
from headrace_broker.model.limits import (
    BROUGHT_EVICTION_CANDIDATES,
    BROUGHT_ORIGINS_MAX,
    BROUGHT_QUEUES_MAX,
    BROUGHT_SLICES_MAX,
)

GROUP = 7


def cause(name: str) -> Cause:
    return Cause(name, CONNECTION, name, "n1")


def totals(record: BroughtRecord, group: int = GROUP) -> dict[str, tuple[int, int]]:
    """Messages and bytes by account."""
    return {
        account: (
            sum(each.messages for each in origin.slices),
            sum(each.byte_count for each in origin.slices),
        )
        for account, origin in record.queues.get(group, {}).items()
    }


def test_what_an_account_brought_is_remembered_when_it_is_gone() -> None:
    ledger = Ledger(FlowLimits())
    account = ledger.open(cause("a"))
    for _ in range(3):
        account.balance(GROUP).borrow(5, 50)
        account.balance(GROUP).repay(5, 50)
        ledger.sample(1.0)
    account.balance(GROUP).borrow(1, 10)  # within the last second
    account.balance(GROUP).repay(1, 10)
    ledger.close(account)
    assert ledger.accounts == {}
    assert totals(ledger.brought) == {"a": (16, 160)}
    assert not ledger.is_open("a")


def test_what_came_before_a_channel_closed_is_remembered_once() -> None:
    ledger = Ledger(FlowLimits())
    account = ledger.open(cause("a"))
    account.balance(GROUP).borrow(5, 50)
    account.balance(GROUP).repay(5, 50)
    account.close_balance(GROUP)
    ledger.sample(1.0)
    ledger.close(account)
    assert totals(ledger.brought) == {"a": (5, 50)}


def test_what_is_done_after_the_client_has_left_is_remembered_once() -> None:
    ledger = Ledger(FlowLimits())
    account = ledger.open(cause("a"))
    account.balance(GROUP).borrow(5, 50)
    ledger.close(account)
    assert not ledger.is_open("a")
    ledger.sample(1.0)
    account.balance(GROUP).repay(5, 50)
    ledger.sweep()
    assert totals(ledger.brought) == {"a": (5, 50)}


def test_queue_that_ends_a_session_of_a_client_that_has_left_adds_nothing() -> None:
    ledger = Ledger(FlowLimits())
    account = ledger.open(cause("a"))
    account.balance(GROUP).borrow(5, 50)
    account.balance(GROUP).repay(5, 50)
    ledger.close(account)
    account.close_balance(GROUP)
    assert totals(ledger.brought) == {"a": (5, 50)}


def test_what_dies_in_a_queue_was_not_brought_to_it() -> None:
    ledger = Ledger(FlowLimits())
    account = ledger.open(cause("a"))
    loan = Loan(account, GROUP)
    loan.borrow_unbrought(9, 90)
    ledger.sample(1.0)
    loan.owe(11, 110)
    ledger.sample(1.0)
    assert totals(ledger.brought) == {}
    loan.borrow(2, 20)
    loan.borrow_unbrought(1, 10)
    ledger.sample(1.0)
    assert totals(ledger.brought) == {"a": (2, 20)}


def test_slices_are_few_and_the_older_the_longer() -> None:
    record = BroughtRecord()
    for _ in range(1000):
        record.now_s += 1.0
        record.note(cause("a"), GROUP, 2, 20)
    slices = record.queues[GROUP]["a"].slices
    assert len(slices) == BROUGHT_SLICES_MAX
    assert totals(record) == {"a": (2000, 20_000)}
    assert all(one.end_s < two.start_s for one, two in itertools.pairwise(slices))
    assert slices[-1].end_s == 1000.0
    assert slices[-1].messages < 10  # the newest is short
    assert slices[0].messages > 500


def test_of_many_origins_the_heaviest_are_told_apart_and_nothing_is_lost() -> None:
    record = BroughtRecord()
    record.note(cause("big"), GROUP, 10_000, 100)
    for number in range(10 * BROUGHT_ORIGINS_MAX):
        record.now_s += 1.0
        record.note(cause(str(number)), GROUP, 1, 1)
    found = totals(record)
    assert len(found) == BROUGHT_ORIGINS_MAX + 1
    assert found["big"] == (10_000, 100)
    assert sum(messages for messages, _ in found.values()) == 10_000 + 10 * BROUGHT_ORIGINS_MAX
    others = record.queues[GROUP][""]
    assert len(others.slices) == BROUGHT_SLICES_MAX
    ends = [each.end_s for each in others.slices]
    assert ends == sorted(ends)


def test_of_too_many_queues_a_small_one_that_is_idle_is_forgotten() -> None:
    record = BroughtRecord()
    record.note(cause("a"), 0, 1_000_000, 1)
    for group in range(1, BROUGHT_QUEUES_MAX + 1):
        record.note(cause("a"), group, group, 1)
    assert len(record.queues) == BROUGHT_QUEUES_MAX
    assert 0 in record.queues
    assert 1 not in record.queues
    for group in range(2, 2 * BROUGHT_EVICTION_CANDIDATES):
        record.note(cause("a"), group, 1, 1)  # what is brought something is not idle
    assert len(record.queues) == BROUGHT_QUEUES_MAX
