"""The window of a publish stream: how much its client may have sent since the stream began.

Both figures count from the beginning of the stream, so that what is told late, or is on its way
while it changes, means the same to both sides.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class StreamWindow:
    """Allowance of a client, and what it has sent."""

    def __init__(self) -> None:
        self.messages: i64 = 0  # how many it may have sent
        self.byte_count: i64 = 0  # the same in bytes
        self.received: i64 = 0  # messages that have come
        self.received_bytes: i64 = 0  # the same in bytes
        self._most: i64 = 0  # the largest that was ever allowed
        self._most_bytes: i64 = 0

    @property
    def exceeded(self) -> bool:
        """True if the client has sent more than it was ever allowed: it is not read then."""
        return self.received > self._most or self.received_bytes > self._most_bytes

    def receive(self, messages: i64, byte_count: i64) -> None:
        """Messages have come."""
        self.received += messages
        self.received_bytes += byte_count

    def renew(self, size: i64, size_bytes: i64, held: i64, held_bytes: i64) -> bool:
        """Allow a window beyond what has come, less what of that is held; return whether it grew.

        It grows in steps of half its size, so that the client is not told at each batch.
        """
        messages = self.received + max(size - held, 0)
        byte_count = self.received_bytes + max(size_bytes - held_bytes, 0)
        far = messages - self.messages >= (size + 1) // 2
        far = far or byte_count - self.byte_count >= (size_bytes + 1) // 2
        if not far and not self.exceeded:
            return False
        self._allow(max(messages, self.messages), max(byte_count, self.byte_count))
        return far

    def shut(self) -> None:
        """Allow no more than the received messages."""
        self._allow(self.received, self.received_bytes)

    def open(self, size: i64, size_bytes: i64, held: i64, held_bytes: i64) -> None:
        """Allow again as much as `renew` would, however little more that is."""
        self._allow(
            self.received + max(size - held, 0),
            self.received_bytes + max(size_bytes - held_bytes, 0),
        )

    def _allow(self, messages: i64, byte_count: i64) -> None:
        self.messages = messages
        self.byte_count = byte_count
        self._most = max(self._most, messages)
        self._most_bytes = max(self._most_bytes, byte_count)
