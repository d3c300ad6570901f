"""Messages that wait for a time before they are available."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.effect import Acquired

_SLACK: Final = 64  # places of messages that left, kept in the heap before it is made anew


@final
class DelayedMessages:
    """Delayed messages, ordered by due time."""

    def __init__(self) -> None:
        self.messages: dict[int, Acquired] = {}  # by id
        self.byte_count: i64 = 0  # of their bodies
        self._due: list[tuple[int, int]] = []  # a heap of (time, id); some messages may have left

    @property
    def count(self) -> i64:
        """Number of messages."""
        return len(self.messages)

    def add(self, message: Acquired) -> None:
        """Keep a message until its `due_ms`."""
        self.messages[message.message_id] = message
        self.byte_count += message.byte_count
        heappush(self._due, (message.due_ms, message.message_id))

    def due_ms(self) -> i64:
        """Return when the next one is due, 0 for never."""
        due = self._due
        while due and not self._stands(due[0]):
            heappop(due)
        return due[0][0] if due else 0

    def _stands(self, place: tuple[int, int]) -> bool:
        """Return whether a place in the heap is that of a message; others are of earlier delays."""
        message = self.messages.get(place[1])
        return message is not None and message.due_ms == place[0]

    def pop_due(self, now_ms: i64) -> Acquired | None:
        """Take the next one that is due; None when none is."""
        due = self.due_ms()
        if due == 0 or due > now_ms:
            return None
        return self.pop(self._due[0][1])

    def pop_first(self) -> Acquired:
        """Take the one that is due first; there must be one."""
        self.due_ms()
        message = self.pop(self._due[0][1])
        assert message is not None, "the heap's first is here"
        return message

    def pop(self, message_id: i64) -> Acquired | None:
        """Take a message out; None where it is not here."""
        message = self.messages.pop(message_id, None)
        if message is None:
            return None
        self.byte_count -= message.byte_count
        if len(self._due) > 2 * len(self.messages) + _SLACK:
            self._due = [(m.due_ms, m.message_id) for m in self.messages.values()]
            heapify(self._due)
        return message

    def clear(self) -> list[Acquired]:
        """Drop everything and return it."""
        messages = [self.messages[message_id] for message_id in sorted(self.messages)]
        self.messages.clear()
        self.byte_count = 0
        self._due.clear()
        return messages
