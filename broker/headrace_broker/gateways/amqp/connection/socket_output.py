"""Output of a connection on its way into the socket; large bodies go in pieces."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import final

from headrace_broker.codecs.delivery_encoder import BodyFrames
from headrace_broker.model.limits import OUTPUT_FLUSH_BYTES


@final
class SocketOutput:
    """Writes to a transport, in order; one piece of a large body in each turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, told: Callable[[bool], None]) -> None:
        # of the socket; None before it is connected
        self.transport: asyncio.Transport | None = None
        self._loop = loop  # runs the turns
        # whether deliveries may be written, when that changes: not while the transport has as much
        # as it may, nor while anything waits here
        self._told: Callable[[bool], None] | None = told
        self._is_full = False  # the transport has as much as it may
        self._is_writable = True  # as was told
        self._queue: deque[bytes | BodyFrames] = deque()  # a large body, and what is behind it
        self._queued = 0  # bytes of these
        self._leaving = False  # the transport is closed when these are written

    def pause(self) -> None:
        """Stop: the transport has as much as it may."""
        self._is_full = True
        self._tell()

    def resume(self) -> None:
        """Go on: the transport has room."""
        self._is_full = False
        if self._queue:
            self._write_queued()
        else:
            self._tell()

    def write(self, data: bytes) -> None:
        """Write bytes, behind those that wait."""
        transport = self.transport
        if self._queue:
            self._queue.append(data)
            self._queued += len(data)
        elif transport is not None and not transport.is_closing():
            transport.write(data)

    def write_body(self, body: BodyFrames) -> None:
        """Write frames of a body, one piece in each turn in which the transport takes it."""
        if self.transport is None or self.transport.is_closing():
            return
        self._queue.append(body)
        self._queued += body.left
        if len(self._queue) == 1:
            if not self._is_full:
                self._write_queued()
            self._tell()

    def backlog(self) -> int:
        """Return how many bytes the socket has not taken yet."""
        if self.transport is None:
            return 0
        return self._queued + self.transport.get_write_buffer_size()

    def close(self) -> None:
        """Close the transport once everything is written."""
        if self._queue:
            self._leaving = True
        elif self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close the transport now."""
        self.drop()
        if self.transport is not None:
            self.transport.abort()

    def drop(self) -> None:
        """Forget what waits, and tell no more: the socket is gone."""
        self._told = None
        self._queue.clear()
        self._queued = 0

    def _write_queued(self) -> None:
        """Write a piece of what waits; the others follow while the transport takes them."""
        transport = self.transport
        if transport is None or not self._queue or self._is_full:
            return
        transport.write(self._take_piece())
        if self._queue and not self._is_full:
            self._loop.call_soon(self._write_queued)
        elif not self._queue and self._leaving:
            transport.close()
        elif not self._queue:
            self._tell()

    def _take_piece(self) -> bytes:
        """Take a piece of the body that is first, or all that waits before the next one."""
        first = self._queue[0]
        if isinstance(first, BodyFrames):
            before = first.left
            data = first.take(OUTPUT_FLUSH_BYTES)
            self._queued -= before - first.left
            if not first.left:
                self._queue.popleft()
            return data
        small: list[bytes] = []
        size = 0
        while self._queue and size < OUTPUT_FLUSH_BYTES:
            behind = self._queue[0]
            if isinstance(behind, BodyFrames):
                break
            self._queue.popleft()
            small.append(behind)
            size += len(behind)
        self._queued -= size
        return b"".join(small)

    def _tell(self) -> None:
        writable = not self._is_full and not self._queue
        if writable != self._is_writable and self._told is not None:
            self._is_writable = writable
            self._told(writable)
