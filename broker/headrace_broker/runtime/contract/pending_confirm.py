"""Confirm state of publishes: handed over by a channel, returned when it may confirm them."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.model.message import Publish
from headrace_broker.model.ranges import Ranges, count_rows


@final
class PendingConfirm:
    """Consecutive publishes of one channel that went the same way and wait for their confirm.

    The runtime calls `refuse`, `hold` and `end_hold`, and hands tickets back; all else is the
    channel's.

    Attributes:
        first: publish sequence number (the confirm's delivery tag) of the first one, 0 outside of
            confirm mode.
        last: of the last one.
        pending: queues that have not answered yet.
        refused: numbers of those that a queue refused, None for none.
        fenced: a queue refused some because their publisher has published under a later epoch.
        answered: whether the client was told.
        immediate: the one publish, when it has the flag `immediate`.
        takers: then, how many queues may still take it.
        patient: the client waits for confirms, which queues may withhold.
        holds: of each queue that withholds some, their numbers; None when none does or did.
        freed: rows (see `Ranges.bounds`) that no queue withholds, once all queues have answered;
            whoever answers them takes them away.
        untold: numbers that are not answered, None while that is all of them or none.
    """

    def __init__(self, first: i64, last: i64) -> None:
        self.first = first
        self.last = last
        self.pending: i64 = 0
        self.refused: set[int] | None = None
        self.fenced = False
        self.answered = False
        self.immediate: Publish | None = None
        self.takers: i64 = 0
        self.patient = False
        self.holds: list[Ranges] | None = None
        self.freed: list[int] = []
        self.untold: Ranges | None = None

    @property
    def held(self) -> bool:
        """True if a queue defers any of them."""
        return self.holds is not None and len(self.holds) > 0

    def hold(self, numbers: Ranges) -> None:
        """Note that a queue withholds some: those in `numbers`, now or when it is added to."""
        if self.holds is None:
            self.holds = []
        self.holds.append(numbers)

    def end_hold(self, numbers: Ranges, first: i64, stop: i64) -> i64:
        """Note that the queue that withholds `numbers` has completed `first` to `stop` - 1.

        Returns:
            How many of them it withheld.
        """
        gone = numbers.remove(first, stop)
        if not numbers and self.holds is not None and numbers in self.holds:
            self.holds.remove(numbers)
        if gone and self.pending == 0:
            self.freed += self._not_held(gone)
        return count_rows(gone)

    def all_answered(self) -> None:
        """All queues have answered: note what none of them withholds."""
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
