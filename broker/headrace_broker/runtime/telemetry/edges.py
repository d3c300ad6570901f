"""Arrivals by account and queue since the last sample: rows of DEBT_EDGES."""

from __future__ import annotations

import heapq
from typing import NamedTuple

from headrace_broker.flow.account import Account, AccountBalance, Moved
from headrace_broker.model.definition import Queue
from headrace_broker.runtime.telemetry.schema import DebtEdge
from headrace_broker.runtime.telemetry.sources import Moment, Sources


class Brought(NamedTuple):
    """Arrivals of an account at all queues.

    Attributes:
        messages: copies of messages, one for each queue.
        octets: of these.
    """

    messages: int
    octets: int


class EdgeTaker:
    """Takes what accounts have not told yet.

    Args:
        sources: of the figures.
        rows_max: most rows of a look, the largest ones.

    Attributes:
        brought: at the last look, by account.
        left_out: rows that there was no room for.
    """

    def __init__(self, sources: Sources, rows_max: int) -> None:
        self.brought: dict[str, Brought] = {}
        self.left_out = 0
        self._sources = sources
        self._rows_max = rows_max
        sources.ledger.leaving = []

    def take(self, moment: Moment) -> list[DebtEdge]:
        """Return what happened since the last call."""
        ledger = self._sources.ledger
        leaving, ledger.leaving = ledger.leaving or [], []
        moved: list[tuple[AccountBalance, Moved]] = []
        self.brought = {}
        for account in (*ledger.accounts.values(), *leaving):
            if account.tabs:
                self._look(account, moved)
        self.left_out = max(len(moved) - self._rows_max, 0)
        if self.left_out:
            moved = heapq.nlargest(self._rows_max, moved, key=_weight)
        rows: list[DebtEdge] = []
        for tab, each in moved:
            queue = self._sources.view.queue_by_group(tab.group)
            if queue is not None:
                rows += self._rows(moment, tab, each, queue)
        return rows

    def _look(self, account: Account, moved: list[tuple[AccountBalance, Moved]]) -> None:
        messages = octets = 0
        for tab in account.tabs.values():
            each = tab.take()
            if each.messages or each.repaid_messages or tab.messages:
                moved.append((tab, each))
                messages += each.messages
                octets += each.octets
        if messages:
            self.brought[account.cause.account] = Brought(messages, octets)

    def _rows(
        self, moment: Moment, tab: AccountBalance, moved: Moved, queue: Queue
    ) -> list[DebtEdge]:
        """Return a row for each exchange; the first one has the debt.

        Octets are not counted by exchange: each gets its part by messages.
        """
        cause = tab.account.cause
        whose = (cause.account, cause.kind, cause.name, cause.user, cause.account)
        start = (moment.at_ms, moment.elapsed_ms, self._sources.node, *whose)
        followers = max(len(queue.members) - 1, 0)
        owed: tuple[int, ...] = (
            moved.messages,
            moved.octets,
            moved.repaid_messages,
            moved.repaid_octets,
            int(tab.messages),
            int(tab.octets),
        )
        rows: list[DebtEdge] = []
        octets_left = moved.octets
        parts = _parts(moved)
        for position, (exchange, count) in enumerate(parts):
            last = position == len(parts) - 1
            octets = octets_left if last else moved.octets * count // moved.messages
            octets_left -= octets
            place = (exchange, queue.vhost, queue.name, count, octets, octets * followers)
            rows.append(DebtEdge(*start, *place, *owed))
            owed = ()
        return rows


def _parts(moved: Moved) -> list[tuple[str | None, int]]:
    """Return messages by exchange, the most first, and those of which it is not known."""
    parts: list[tuple[str | None, int]] = list(moved.exchanges.items())
    if len(parts) > 1:
        parts.sort(key=lambda part: -part[1])
    unnamed = moved.messages - sum(count for _, count in parts)
    if unnamed or not parts:
        parts.append((None, unnamed))
    return parts


def _weight(entry: tuple[AccountBalance, Moved]) -> int:
    tab, moved = entry
    return moved.octets + moved.messages + int(tab.octets)
