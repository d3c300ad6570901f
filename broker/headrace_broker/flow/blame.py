"""Causes of a queue's load: accounts, the heaviest first.

An account's load at a queue is what it owes there and what it has brought in about the last 10 s,
in bytes: debts alone would name nobody at a queue that applies at once and defers its confirms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace_broker.model.flow_status import AccountStatus, BalanceStatus, CauseStatus

RECENT_S: Final = 10  # seconds in which what was brought counts as load
HEAVIEST_MAX: Final = 10  # causes and queues in an answer; more than people read

Names = dict[int, tuple[str, str]]


def causes_at(group: int, accounts: Iterable[AccountStatus], names: Names) -> list[CauseStatus]:
    """Return the accounts that load a queue, with their shares."""
    pairs = [
        (account, balance)
        for account in accounts
        for balance in account.balances
        if balance.group == group
    ]
    return _ranked(pairs, names)


def causes_of(account: AccountStatus | None, names: Names) -> list[CauseStatus]:
    """Return an account's load by queue."""
    return (
        _ranked([(account, balance) for balance in account.balances], names)
        if account is not None
        else []
    )


def heaviest(accounts: Iterable[AccountStatus], names: Names) -> list[CauseStatus]:
    """Return the heaviest loads of all accounts and queues."""
    return _ranked(
        [(account, balance) for account in accounts for balance in account.balances], names
    )


def load(balance: BalanceStatus) -> float:
    """Return an account's load at a queue in bytes."""
    return balance.byte_count + RECENT_S * balance.byte_rate


def _ranked(pairs: list[tuple[AccountStatus, BalanceStatus]], names: Names) -> list[CauseStatus]:
    total = sum(load(balance) for _, balance in pairs)
    found = [
        _cause(account, balance, total, names) for account, balance in pairs if load(balance) > 0
    ]
    found.sort(key=_rank)
    return found[:HEAVIEST_MAX]


def _rank(cause: CauseStatus) -> tuple[float, int, str]:
    return -cause.share, -cause.messages, cause.account


def _cause(
    account: AccountStatus, balance: BalanceStatus, total: float, names: Names
) -> CauseStatus:
    vhost, queue = names.get(balance.group, (account.vhost, ""))
    return CauseStatus(
        account=account.account,
        kind=account.kind,
        name=account.name,
        node=account.node,
        user=account.user,
        vhost=vhost,
        queue=queue,
        messages=balance.messages,
        byte_count=balance.byte_count,
        message_rate=balance.message_rate,
        byte_rate=balance.byte_rate,
        share=load(balance) / total,
        user_provided_name=account.user_provided_name,
    )
