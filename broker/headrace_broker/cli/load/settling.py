"""Messages of a load that are not settled yet, of publishers and of consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

ACK_DIVISOR: Final = 4  # a consumer acknowledges when a quarter of its prefetch count has come,
ACK_BYTES: Final = 1 << 20  # or so many bytes: a queue's watermark may be in bytes,
ACK_S: Final = 0.1  # or after so many seconds: publishers may wait for what is not acknowledged


@final
class Acks:
    """Deliveries received and not acknowledged: a part of the prefetch, and not for long.

    A queue that holds what is not acknowledged may be at its watermark, and then its publishers
    wait for that.
    """

    def __init__(
        self, prefetch: int, send: Callable[[int], None], bytes_max: int = ACK_BYTES
    ) -> None:
        self._prefetch = prefetch  # messages that it may hold
        self._send = send  # acknowledges all up to a delivery tag
        self._bytes_max = bytes_max  # bytes of bodies that it acknowledges at the latest
        self._tag = 0
        self._count = 0
        self._byte_count = 0

    def add(self, tag: int, byte_count: int) -> None:
        """Take a delivery, and acknowledge it with those before where they are enough."""
        self._tag = tag
        self._count += 1
        self._byte_count += byte_count
        if self._count * ACK_DIVISOR >= self._prefetch or self._byte_count >= self._bytes_max:
            self.flush()

    def flush(self) -> None:
        """Acknowledge what has come."""
        if self._count:
            self._count = self._byte_count = 0
            self._send(self._tag)

    async def run(self) -> None:
        """Acknowledge again and again what has come, until cancelled."""
        while True:
            await asyncio.sleep(ACK_S)
            self.flush()


@final
class Window:
    """Messages of a publisher that are not confirmed yet."""

    def __init__(self, size: int) -> None:
        self._size = size  # messages that it holds, 0 for any number: none is confirmed
        self._sent = 0  # the last delivery tag
        self._confirmed = 0  # all tags up to here are confirmed
        self._early: set[int] = set()  # later ones that are
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._empty.set()

    async def room(self, most: int) -> int:
        """Wait until messages may be sent; return how many, `most` at most."""
        if not self._size:
            return most
        await self._room.wait()
        return min(most, self._size - self._waiting)

    async def wait_empty(self) -> None:
        """Wait until everything is confirmed."""
        await self._empty.wait()

    def sent(self, count: int) -> None:
        """Note messages that were sent."""
        if self._size:
            self._sent += count
            self._look()

    def confirm(self, tag: int, multiple: bool) -> int:
        """Note a confirm, with `multiple` of all up to a tag, 0 for all; return of how many."""
        before = self._waiting
        tag = min(tag, self._sent)
        if multiple:
            self._confirmed = max(self._confirmed, tag or self._sent)
            self._early = {early for early in self._early if early > self._confirmed}
        elif tag > self._confirmed:
            self._early.add(tag)
        while self._confirmed + 1 in self._early:
            self._confirmed += 1
            self._early.discard(self._confirmed)
        self._look()
        return before - self._waiting

    @property
    def _waiting(self) -> int:
        return self._sent - self._confirmed - len(self._early)

    def _look(self) -> None:
        waiting = self._waiting
        for event, holds in ((self._room, waiting < self._size), (self._empty, waiting == 0)):
            if holds:
                event.set()
            else:
                event.clear()
