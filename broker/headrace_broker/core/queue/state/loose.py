"""Messages that wait on their own, in the order of their ids."""

from __future__ import annotations

from bisect import bisect_right
from heapq import heapify, heappop, heappush
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.effect import Acquired

_SLACK: Final = 64  # ids of messages that left, kept in a heap before it is made anew


@final
class LooseMessages:
    """Single messages: returned ones, and ones that were never part of a batch."""

    def __init__(self) -> None:
        self.messages: dict[int, Acquired] = {}  # by id
        self.byte_count: i64 = 0  # of their bodies
        self._ids: list[int] = []  # a heap with all ids, and of some that left
        self._sorted: list[int] = []  # the same in order during a scan; else empty
        self._expiring: list[tuple[int, int]] = []  # a heap of (time, id); some messages left

    def add(self, message: Acquired) -> None:
        """Add a message whose id is not here."""
        self.messages[message.message_id] = message
        self.byte_count += message.byte_count
        heappush(self._ids, message.message_id)
        if message.expires_ms > 0:
            heappush(self._expiring, (message.expires_ms, message.message_id))
        if self._sorted:
            if self._sorted[-1] < message.message_id:
                self._sorted.append(message.message_id)
            else:
                self._sorted = []

    def first_id(self) -> i64:
        """Return the lowest id, 0 when there is none."""
        ids = self._ids
        messages = self.messages
        while ids and ids[0] not in messages:
            heappop(ids)
        return ids[0] if ids else 0

    def pop(self, message_id: i64) -> Acquired | None:
        """Take a message out; None where it is not here."""
        message = self.messages.pop(message_id, None)
        if message is not None:
            self.byte_count -= message.byte_count
            if len(self._ids) > 2 * len(self.messages) + _SLACK:
                self._ids = list(self.messages)
                heapify(self._ids)
            if len(self._expiring) > 2 * len(self.messages) + _SLACK:
                kept = self.messages.values()
                self._expiring = [(m.expires_ms, m.message_id) for m in kept if m.expires_ms > 0]
                heapify(self._expiring)
        return message

    def expires_ms(self) -> i64:
        """Return when the next one expires, 0 for never."""
        expiring = self._expiring
        while expiring and not self._stands(expiring[0]):
            heappop(expiring)
        return expiring[0][0] if expiring else 0

    def pop_expired(self, now_ms: i64) -> Acquired | None:
        """Take the one that has expired first; None when none has."""
        expires = self.expires_ms()
        if expires == 0 or expires > now_ms:
            return None
        return self.pop(self._expiring[0][1])

    def _stands(self, place: tuple[int, int]) -> bool:
        message = self.messages.get(place[1])
        return message is not None and message.expires_ms == place[0]

    def after(self, message_id: i64, limit: i64) -> list[Acquired]:
        """Return up to `limit` messages with ids above one, by their ids."""
        if not self.messages:
            return []
        if not self._sorted or len(self._sorted) > 2 * len(self.messages) + _SLACK:
            self._sorted = sorted(self.messages)
        ids = self._sorted
        messages = self.messages
        found: list[Acquired] = []
        for at in range(bisect_right(ids, message_id), len(ids)):
            if len(found) >= limit:
                break
            message = messages.get(ids[at])
            if message is not None:
                found.append(message)
        return found

    def in_order(self) -> list[Acquired]:
        """Return all messages by their ids."""
        return [self.messages[message_id] for message_id in sorted(self.messages)]

    def clear(self) -> None:
        """Forget everything."""
        self.messages.clear()
        self.byte_count = 0
        self._ids.clear()
        self._expiring.clear()
        self._sorted = []
