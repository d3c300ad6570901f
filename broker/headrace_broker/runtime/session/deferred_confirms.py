"""Publishes of a session that its queue has, with deferred confirms."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.model.ranges import Ranges
from headrace_broker.runtime.contract.port import PendingConfirm

_NOTHING: Final[list[int]] = []


@final
class DeferredConfirm:
    """Deferred confirms of one pending confirm at the queue."""

    def __init__(self, pending_confirm: PendingConfirm, start: i64) -> None:
        self.pending_confirm = pending_confirm
        self.start = start  # number on the publish lane of its first publish
        self.end: i64 = start + pending_confirm.last - pending_confirm.first  # of its last one
        self.numbers = Ranges()  # those deferred, in the numbers of the pending confirm
        self.told = False  # the channel knows of it


@final
class DeferredConfirms:
    """The holds of a session, in the order of its publishes.

    It is as large as what the queue defers, which DEFERRED_MESSAGES_MAX bounds.
    """

    def __init__(self) -> None:
        self._holds: list[DeferredConfirm] = []
        self._heard: list[int] = _NOTHING
        self._completed: i64 = 0

    def __bool__(self) -> bool:
        return len(self._holds) > 0

    def receive(self, rows: list[int]) -> None:
        """Keep what the answer to come says of itself: it counts only together with that."""
        self._heard = rows

    def take_heard(self) -> list[int]:
        """Return the notes about the current answer."""
        heard = self._heard
        self._heard = _NOTHING
        return heard

    def add(self, pending_confirm: PendingConfirm, start: i64, first: i64, stop: i64) -> None:
        """Note that publishes `first` to `stop` - 1 of the lane, all of one ticket, are deferred.

        Args:
            pending_confirm: the last one that was added, or one behind it.
            start: number on the lane of its first publish.
            first: behind those that were added.
            stop: see above.
        """
        holds = self._holds
        if not holds or holds[-1].pending_confirm is not pending_confirm:
            hold = DeferredConfirm(pending_confirm, start)
            holds.append(hold)
            pending_confirm.hold(hold.numbers)
        offset = pending_confirm.first - start
        holds[-1].numbers.append(first + offset, stop + offset)

    def split(
        self, pending_confirms: list[PendingConfirm], free: list[PendingConfirm]
    ) -> list[PendingConfirm]:
        """Return those of which something is deferred, and put the others to the end of `free`.

        Args:
            pending_confirms: all that are answered now, in order.
            free: see above.
        """
        holds = self._holds
        size: i64 = len(holds)
        at = size
        while at > 0 and not holds[at - 1].told:
            at -= 1
        held: list[PendingConfirm] = []
        for pending_confirm in pending_confirms:
            if at < size and holds[at].pending_confirm is pending_confirm:
                holds[at].told = True
                held.append(pending_confirm)
                at += 1
            else:
                free.append(pending_confirm)
        return held

    def complete(self, first: i64, stop: i64, changed: list[PendingConfirm]) -> i64:
        """Note that deferred confirms of publishes `first` to `stop` - 1 are complete.

        Args:
            first: the first of them.
            stop: behind the last one.
            changed: takes the pending confirms of which that is something and that the channel
                knows of.

        Returns:
            Of how many of these nothing is deferred any more.
        """
        holds = self._holds
        low: i64 = bisect_left(holds, int(first), key=_end)
        high = low
        size: i64 = len(holds)
        left: list[DeferredConfirm] = []
        over: i64 = 0
        while high < size and holds[high].start < stop:
            hold = holds[high]
            pending_confirm = hold.pending_confirm
            offset = pending_confirm.first - hold.start
            count = pending_confirm.end_hold(hold.numbers, first + offset, stop + offset)
            self._completed += count
            if count > 0 and hold.told:
                changed.append(pending_confirm)
                over += 0 if hold.numbers else 1
            if hold.numbers:
                left.append(hold)
            high += 1
        if high - low != len(left):
            holds[low:high] = left
        return over

    def take_completed(self) -> i64:
        """Return how many publishes were completed since the last call."""
        completed = self._completed
        self._completed = 0
        return completed


def count_deferred(rows: list[int], first: i64, last: i64) -> i64:
    """Return how many of publishes `first` to `last` are in rows."""
    count: i64 = 0
    for at in range(0, len(rows), 2):
        count += max(min(rows[at + 1], last + 1) - max(rows[at], first), 0)
    return count


def _end(hold: DeferredConfirm) -> int:
    return hold.end
