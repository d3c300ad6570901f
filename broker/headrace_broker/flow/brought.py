"""Origins of messages by queue and time, kept when the clients are gone."""

from __future__ import annotations

from itertools import islice
from typing import Final, final

from headrace_broker.model.flow import Cause
from headrace_broker.model.limits import (
    BROUGHT_EVICTION_CANDIDATES,
    BROUGHT_ORIGINS_MAX,
    BROUGHT_QUEUES_MAX,
    BROUGHT_SLICES_MAX,
)

OTHERS: Final = "others"  # kind of what those brought that are not told apart any more


@final
class Slice:
    """Messages of one origin during a span of time, in seconds of `BroughtRecord.now_s`."""

    def __init__(self, start_s: float, end_s: float, messages: int, byte_count: int) -> None:
        self.start_s = start_s
        self.end_s = end_s
        self.messages = messages
        self.byte_count = byte_count


@final
class Origin:
    """Messages that one account has brought to one queue."""

    def __init__(self, cause: Cause | None) -> None:
        self.cause = cause  # whose it is, None for those that are not told apart
        self.messages = 0  # all that is in the slices
        self.slices: list[Slice] = []  # the oldest first; the older, the longer

    def add(self, new: Slice, now_s: float) -> None:
        """Add arrivals, and merge slices if there are too many."""
        self.messages += new.messages
        at = len(self.slices)
        while at > 0 and self.slices[at - 1].end_s > new.end_s:
            at -= 1
        if at > 0 and self.slices[at - 1].end_s == new.end_s:
            same = self.slices[at - 1]
            same.start_s = min(same.start_s, new.start_s)
            same.messages += new.messages
            same.byte_count += new.byte_count
            return
        self.slices.insert(at, new)
        if len(self.slices) > BROUGHT_SLICES_MAX:
            self._merge(now_s)

    def _merge(self, now_s: float) -> None:
        """Merge the two neighbours whose span is the shortest in relation to its age."""
        best, least = 0, -1.0
        for at in range(len(self.slices) - 1):
            older, newer = self.slices[at], self.slices[at + 1]
            span = (newer.end_s - older.start_s) / (now_s - newer.end_s + 1.0)
            if least < 0.0 or span < least:
                best, least = at, span
        older, newer = self.slices[best], self.slices.pop(best + 1)
        older.start_s = min(older.start_s, newer.start_s)
        older.end_s = newer.end_s
        older.messages += newer.messages
        older.byte_count += newer.byte_count


@final
class BroughtRecord:
    """Messages that accounts of this node have brought to queues since its start, in bounds.

    Of a queue the heaviest origins are told apart. Where queues are too many, one of those that
    with the oldest last arrival is forgotten: who has filled it is unknown then.
    """

    def __init__(self) -> None:
        self.now_s = 0.0  # seconds that samples have gone through
        self.queues: dict[int, dict[str, Origin]] = {}  # by account, by group; latest last

    def note(self, cause: Cause, group: int, messages: int, byte_count: int) -> None:
        """Take note of what an account has handed to a queue since the last sample."""
        origins = self.queues.pop(group, None)
        if origins is None:
            origins = {}
            if len(self.queues) >= BROUGHT_QUEUES_MAX:
                self._evict()
        self.queues[group] = origins
        origin = origins.get(cause.account)
        if origin is None:
            if len(origins) >= BROUGHT_ORIGINS_MAX:
                self._fold(origins)
            origin = origins[cause.account] = Origin(cause)
        origin.add(Slice(self.now_s, self.now_s, messages, byte_count), self.now_s)

    def _fold(self, origins: dict[str, Origin]) -> None:
        """Merge the lightest origin into the rest."""
        lightest = ""
        least = -1
        for account, each in origins.items():
            if each.cause is not None and (least < 0 or each.messages < least):
                lightest, least = account, each.messages
        others = origins.get("")
        if others is None:
            others = origins[""] = Origin(None)
        for part in origins.pop(lightest).slices:
            others.add(part, self.now_s)

    def _evict(self) -> None:
        """Forget the queue that got the least among those that got nothing for longest."""
        forgotten = 0
        least = -1
        for group in list(islice(self.queues, BROUGHT_EVICTION_CANDIDATES)):
            messages = 0
            for origin in self.queues[group].values():
                messages += origin.messages
            if least < 0 or messages < least:
                forgotten, least = group, messages
        del self.queues[forgotten]
