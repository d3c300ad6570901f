"""Causes of a queue's load: accounts, the heaviest first.

An account's load at a queue is what it owes there and what it has brought in about the last 10 s,
in octets: debts alone would name nobody at a queue that applies at once and withholds its confirms.
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
    pairs = [(account, tab) for account in accounts for tab in account.tabs if tab.group == group]
    return _ranked(pairs, names)


def causes_of(account: AccountStatus | None, names: Names) -> list[CauseStatus]:
    """Return an account's load by queue."""
    return _ranked([(account, tab) for tab in account.tabs], names) if account is not None else []


def heaviest(accounts: Iterable[AccountStatus], names: Names) -> list[CauseStatus]:
    """Return the heaviest loads of all accounts and queues."""
    return _ranked([(account, tab) for account in accounts for tab in account.tabs], names)


def load(tab: BalanceStatus) -> float:
    """Return an account's load at a queue in octets."""
    return tab.octets + RECENT_S * tab.octet_rate


def _ranked(pairs: list[tuple[AccountStatus, BalanceStatus]], names: Names) -> list[CauseStatus]:
    total = sum(load(tab) for _, tab in pairs)
    found = [_cause(account, tab, total, names) for account, tab in pairs if load(tab) > 0]
    found.sort(key=_rank)
    return found[:HEAVIEST_MAX]


def _rank(cause: CauseStatus) -> tuple[float, int, str]:
    return -cause.share, -cause.messages, cause.account


def _cause(account: AccountStatus, tab: BalanceStatus, total: float, names: Names) -> CauseStatus:
    vhost, queue = names.get(tab.group, (account.vhost, ""))
    return CauseStatus(
        account=account.account,
        kind=account.kind,
        name=account.name,
        node=account.node,
        user=account.user,
        vhost=vhost,
        queue=queue,
        messages=tab.messages,
        octets=tab.octets,
        message_rate=tab.message_rate,
        octet_rate=tab.octet_rate,
        share=load(tab) / total,
        user_provided_name=account.user_provided_name,
    )
