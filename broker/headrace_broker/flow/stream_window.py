"""The window of a publish stream: how much its client may have sent since the stream began.

Both figures count from the beginning of the stream, so that what is told late, or is on its way
while it changes, means the same to both sides.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class StreamWindow:
    """Allowance of a client, and what it has sent.

    Attributes:
        messages: how many it may have sent.
        octets: the same in octets.
        received: messages that have come.
        received_octets: the same in octets.
    """

    def __init__(self) -> None:
        self.messages: i64 = 0
        self.octets: i64 = 0
        self.received: i64 = 0
        self.received_octets: i64 = 0
        self._most: i64 = 0  # the largest that was ever allowed
        self._most_octets: i64 = 0

    @property
    def exceeded(self) -> bool:
        """True if the client has sent more than it was ever allowed: it is not read then."""
        return self.received > self._most or self.received_octets > self._most_octets

    def receive(self, messages: i64, octets: i64) -> None:
        """Messages have come."""
        self.received += messages
        self.received_octets += octets

    def renew(self, size: i64, size_octets: i64, held: i64, held_octets: i64) -> bool:
        """Allow a window's size beyond the received messages, less the buffered ones.

        It grows in steps of half its size, so that the client is not told at each batch.

        Args:
            size: of the window, in messages, from 1.
            size_octets: the same in octets.
            held: messages that have come and wait.
            held_octets: the same in octets.

        Returns:
            Whether it has grown: the client is to be told.
        """
        messages = self.received + max(size - held, 0)
        octets = self.received_octets + max(size_octets - held_octets, 0)
        far = messages - self.messages >= (size + 1) // 2
        far = far or octets - self.octets >= (size_octets + 1) // 2
        if not far and not self.exceeded:
            return False
        self._allow(max(messages, self.messages), max(octets, self.octets))
        return far

    def shut(self) -> None:
        """Allow no more than the received messages."""
        self._allow(self.received, self.received_octets)

    def open(self, size: i64, size_octets: i64, held: i64, held_octets: i64) -> None:
        """Allow again as much as `renew` would, however little more that is."""
        self._allow(
            self.received + max(size - held, 0),
            self.received_octets + max(size_octets - held_octets, 0),
        )

    def _allow(self, messages: i64, octets: i64) -> None:
        self.messages = messages
        self.octets = octets
        self._most = max(self._most, messages)
        self._most_octets = max(self._most_octets, octets)
