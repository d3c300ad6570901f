"""Limits that stop an activity, since when, and for how much of the time."""

from __future__ import annotations

from array import array
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.model.flow import LIMIT_NAMES, NO_LIMIT

SECOND_US: Final = 1_000_000
WINDOWS_S: Final = (1, 10, 60)  # seconds over which shares are told

# Each window is a ring of this many buckets, and the one that is about to leave it.
_WIDTHS_US: Final = (100_000, SECOND_US, 5 * SECOND_US)
_COUNTS: Final = (10, 10, 12)
_SLOTS: Final = 35
_FINEST_US: Final = 100_000


@final
class StopCounter:
    """For how long all activities of a node were stopped since its start, by limit."""

    def __init__(self) -> None:
        self.stopped_us: list[int] = [0] * len(LIMIT_NAMES)  # by LIMIT; counted at the next look

    def add(self, limit: i64, duration_us: i64) -> None:
        """Take note of a stop."""
        self.stopped_us[limit] += duration_us


@final
class _History:
    """For how long one limit stopped one activity in the last minute, in some 300 bytes."""

    def __init__(self) -> None:
        self.group: i64 = 0  # the queue behind the latest stop, 0 for none
        self._slots = array("I", bytes(4 * _SLOTS))
        self._until_us: i64 = 0  # up to here slots are cleared of what has left them
        self._bucket: i64 = 0  # number of the finest bucket of which something has gathered
        self._gathered_us: i64 = 0

    def add(self, start_us: i64, end_us: i64) -> None:
        """Note a stop, none of which is before the end of the last one."""
        bucket = start_us // _FINEST_US
        if end_us >= (bucket + 1) * _FINEST_US:
            self._pour()
            self._spread(start_us, end_us)
            return
        if bucket != self._bucket:
            self._pour()
            self._bucket = bucket
        self._gathered_us += end_us - start_us

    def stopped_us(self, window: i64, now_us: i64) -> i64:
        """Return for how much of a window, an index of WINDOWS_S, it was stopped.

        The stops within the oldest bucket count as if they were spread over it, so the answer is
        wrong by a quarter of a bucket at most.
        """
        self._pour()
        self._clear(now_us)
        offset: i64 = 0
        level: i64 = 0
        while level < window:
            offset += _COUNTS[level] + 1
            level += 1
        width: i64 = _WIDTHS_US[window]
        count: i64 = _COUNTS[window]
        newest = now_us // width
        slots = self._slots
        oldest: i64 = slots[offset + (newest - count) % (count + 1)]
        total = oldest * ((newest + 1) * width - now_us) // width
        bucket = newest - count + 1
        while bucket <= newest:
            slot: i64 = slots[offset + bucket % (count + 1)]
            total += slot
            bucket += 1
        return total

    def _pour(self) -> None:
        if self._gathered_us > 0:
            start = self._bucket * _FINEST_US
            self._spread(start, start + self._gathered_us)
            self._gathered_us = 0

    def _spread(self, start_us: i64, end_us: i64) -> None:
        self._clear(end_us)
        slots = self._slots
        offset: i64 = 0
        level: i64 = 0
        while level < 3:
            width: i64 = _WIDTHS_US[level]
            count: i64 = _COUNTS[level]
            newest = self._until_us // width
            bucket = max(start_us // width, newest - count)
            while bucket * width < end_us:
                piece = min(end_us, (bucket + 1) * width) - max(start_us, bucket * width)
                slot = offset + bucket % (count + 1)
                slots[slot] = slots[slot] + int(piece)
                bucket += 1
            offset += count + 1
            level += 1

    def _clear(self, now_us: i64) -> None:
        """Empty the slots of the buckets that begin by now."""
        before = self._until_us
        if now_us <= before:
            return
        self._until_us = now_us
        slots = self._slots
        offset: i64 = 0
        level: i64 = 0
        while level < 3:
            width: i64 = _WIDTHS_US[level]
            count: i64 = _COUNTS[level]
            newest = now_us // width
            bucket = max(before // width + 1, newest - count)
            while bucket <= newest:
                slots[offset + bucket % (count + 1)] = 0
                bucket += 1
            offset += count + 1
            level += 1


@final
class Activity:
    """The flow state of a connection or channel. Times are of a clock that never goes back."""

    def __init__(self, now_us: i64, counter: StopCounter | None = None) -> None:
        self.limit: i64 = NO_LIMIT  # the LIMIT that stops it now, NO_LIMIT for none
        self.group: i64 = 0  # the queue behind that, 0 for none
        self.since_us = now_us  # when that began, or when it last ended
        self._counter = counter
        self._from_us = now_us  # since then the stop by this limit is not in the history yet
        self._histories: list[_History | None] | None = None  # by limit; most are never stopped

    def stop(self, limit: i64, group: i64, now_us: i64) -> None:
        """A limit stops it; a limit that stopped it before is another's turn now."""
        if self.limit == NO_LIMIT:
            self.since_us = now_us
            self._from_us = now_us
        elif self.limit != limit:
            self.settle(now_us)
        self.limit = limit
        self.group = group

    def go(self, now_us: i64) -> None:
        """End the stop."""
        if self.limit != NO_LIMIT:
            self.settle(now_us)
            self.limit = NO_LIMIT
            self.group = 0
            self.since_us = now_us

    def settle(self, now_us: i64) -> None:
        """Add the time of the current stop up to now."""
        if self.limit == NO_LIMIT:
            return
        history = self._history(self.limit)
        history.group = self.group
        if now_us > self._from_us:
            history.add(self._from_us, now_us)
            if self._counter is not None:
                self._counter.add(self.limit, now_us - self._from_us)
            self._from_us = now_us

    def _history(self, limit: i64) -> _History:
        histories = self._histories
        if histories is None:
            histories = [None] * len(LIMIT_NAMES)
            self._histories = histories
        history = histories[limit]
        if history is None:
            history = _History()
            histories[limit] = history
        return history

    def in_flow(self, now_us: i64) -> bool:
        """Return whether something stops it, or did within the last second."""
        if self.limit != NO_LIMIT:
            return True
        return self._histories is not None and now_us - self.since_us < SECOND_US

    def stopped_us(self, limit: i64, window: i64, now_us: i64) -> i64:
        """Return for how long a limit stopped it in a window, an index of WINDOWS_S."""
        self.settle(now_us)
        histories = self._histories
        if histories is None:
            return 0
        history = histories[limit]
        return history.stopped_us(window, now_us) if history is not None else 0

    def limits(self) -> list[int]:
        """Return the limits that have stopped it so far, that which does now included."""
        histories = self._histories
        if histories is None:
            return [int(self.limit)] if self.limit != NO_LIMIT else []
        limits = range(1, len(LIMIT_NAMES))
        return [each for each in limits if each == self.limit or histories[each] is not None]

    def latest_group(self, limit: i64) -> i64:
        """Return the queue behind the latest stop by a limit, 0 for none."""
        if limit == self.limit:
            return self.group
        histories = self._histories
        history = histories[limit] if histories is not None else None
        return history.group if history is not None else 0
