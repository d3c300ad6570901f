"""Arrivals by account and queue since the last sample: rows of DEBT_EDGES."""

from __future__ import annotations

import heapq
from typing import NamedTuple

from headrace_broker.flow.account import Account, AccountBalance, Moved
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import Cause
from headrace_broker.runtime.clients.sample_turns import SampleTurns
from headrace_broker.runtime.telemetry.schema import DebtEdge
from headrace_broker.runtime.telemetry.sources import Moment, Sources


class Brought(NamedTuple):
    """Arrivals of an account at all queues."""

    messages: int  # copies of messages, one for each queue
    byte_count: int  # of these


class EdgeTaker:
    """Takes what accounts have not told yet."""

    def __init__(self, sources: Sources, rows_max: int) -> None:
        self.brought: dict[str, Brought] = {}  # at the last look, by account
        self.left_out = 0  # rows that there was no room for
        self._sources = sources  # what is looked at
        self._rows_max = rows_max  # most rows of a look, the largest ones
        sources.ledger.leaving = []

    async def take(self, moment: Moment, turns: SampleTurns) -> list[DebtEdge]:
        """Return what happened since the last call."""
        ledger = self._sources.ledger
        leaving, ledger.leaving = ledger.leaving or [], []
        moved: list[tuple[AccountBalance, Moved]] = []
        self.brought = {}
        for account in (*ledger.accounts.values(), *leaving):
            if account.balances:
                self._look(account, moved)
                await turns.row()
        self.left_out = max(len(moved) - self._rows_max, 0)
        if self.left_out:
            moved = heapq.nlargest(self._rows_max, moved, key=_weight)
        rows: list[DebtEdge] = []
        for balance, each in moved:
            queue = self._sources.view.queue_by_group(balance.group)
            if queue is not None:
                rows += self._rows(moment, balance.account.cause, each, queue)
                await turns.row()
        return rows

    def _look(self, account: Account, moved: list[tuple[AccountBalance, Moved]]) -> None:
        messages = byte_count = 0
        for balance in account.balances.values():
            each = balance.take()
            if each.messages or each.repaid_messages or balance.messages:
                moved.append((balance, each))
                messages += each.messages
                byte_count += each.byte_count
        if messages:
            self.brought[account.cause.account] = Brought(messages, byte_count)

    def _rows(self, moment: Moment, cause: Cause, moved: Moved, queue: Queue) -> list[DebtEdge]:
        """Return a row for each exchange; the first one has the debt.

        Bytes are not counted by exchange: each gets its part by messages.
        """
        whose = (cause.account, cause.kind, cause.name, cause.user, cause.account)
        start = (moment.at_ms, moment.elapsed_ms, self._sources.node, *whose)
        followers = max(len(queue.members) - 1, 0)
        owed: tuple[int, ...] = (
            moved.messages,
            moved.byte_count,
            moved.repaid_messages,
            moved.repaid_bytes,
            moved.owed_messages,
            moved.owed_bytes,
        )
        rows: list[DebtEdge] = []
        bytes_left = moved.byte_count
        parts = _parts(moved)
        for position, (exchange, count) in enumerate(parts):
            last = position == len(parts) - 1
            byte_count = bytes_left if last else moved.byte_count * count // moved.messages
            bytes_left -= byte_count
            place = (exchange, queue.vhost, queue.name, count, byte_count, byte_count * followers)
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
    _, moved = entry
    return moved.byte_count + moved.messages + moved.owed_bytes
