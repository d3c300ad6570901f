"""Confirm state of publishes: handed over by a channel, returned when it may confirm them."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.model.message import Publish
from headrace_broker.model.ranges import Ranges, count_rows


@final
class PendingConfirm:
    """Consecutive publishes of one channel that went the same way and wait for their confirm.

    The runtime calls `refuse`, `hold` and `end_hold`, and hands pending confirms back; all else is
    the channel's.
    """

    def __init__(self, first: i64, last: i64) -> None:
        self.first = first  # publish sequence number of the first one, 0 without confirms
        self.last = last  # of the last one
        self.pending: i64 = 0  # queues that have not answered yet
        self.refused: set[int] | None = None  # numbers of those that a queue refused, None for none
        self.fenced = False  # refused by a queue as of an older epoch of their publisher
        self.unreachable = ""  # why no leader of a queue that was to have them is reached
        self.answered = False  # whether the client was told
        self.immediate: Publish | None = None  # the one publish, when it has the flag `immediate`
        self.takers: i64 = 0  # then, how many queues may still take it
        self.patient = False  # the client waits for confirms, which queues may defer
        self.holds: list[Ranges] | None = None  # what each queue defers; None: nothing, ever
        # rows (see `Ranges.bounds`) that no queue defers, once all queues have answered; whoever
        # answers them takes them away
        self.freed: list[int] = []
        self.untold: Ranges | None = None  # not answered; None for all of them or none

    @property
    def held(self) -> bool:
        """True if a queue defers any of them."""
        return self.holds is not None and len(self.holds) > 0

    def hold(self, numbers: Ranges) -> None:
        """Note that a queue defers some: those in `numbers`, now or when it is added to."""
        if self.holds is None:
            self.holds = []
        self.holds.append(numbers)

    def end_hold(self, numbers: Ranges, first: i64, stop: i64) -> i64:
        """Note that a queue has completed some of what it defers; return how many."""
        gone = numbers.remove(first, stop)
        if not numbers and self.holds is not None and numbers in self.holds:
            self.holds.remove(numbers)
        if gone and self.pending == 0:
            self.freed += self._not_held(gone)
        return count_rows(gone)

    def all_answered(self) -> None:
        """All queues have answered: note what none of them defers."""
        if self.held:
            whole = Ranges()
            whole.append(self.first, self.last + 1)
            self.untold = whole
            self.freed = self._not_held(whole.bounds)

    def _not_held(self, rows: list[int]) -> list[int]:
        left = Ranges()
        for at in range(0, len(rows), 2):
            left.append(rows[at], rows[at + 1])
        for numbers in self.holds or []:
            for at in range(0, len(rows), 2):
                held = numbers.cut(rows[at], rows[at + 1])
                for each in range(0, len(held), 2):
                    left.remove(held[each], held[each + 1])
        return left.bounds

    def refuse(self, first: i64, last: i64) -> None:
        """Note that a queue refused the publishes with the numbers `first` to `last`."""
        refused = self.refused
        if refused is None:
            refused = set()
            self.refused = refused
        number = first
        while number <= last:
            refused.add(number)
            number += 1
