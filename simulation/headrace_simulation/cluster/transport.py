"""asyncio's transport over a socket of the simulated network."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, final

from headrace_simulation.cluster.network import Socket

READ_BYTES: Final = 256 << 10
WRITE_BYTES: Final = 64 << 10


@final
class VirtualTransport(asyncio.Transport):
    """One connection of a process, with what the kernel has not taken yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop, end: Socket, protocol: Any) -> None:
        super().__init__({"socket": end, "peername": _peer_of(end), "ssl_object": None})
        self._loop = loop
        self._end = end
        self._protocol = protocol
        self._buffer: deque[bytes] = deque()
        self._size = 0
        self._high = WRITE_BYTES
        self._low = WRITE_BYTES // 4
        self._is_paused = False  # the protocol, of writing
        self._reads = True
        self._read_due = self._write_due = False
        self._closing = False
        self._over = False
        end.on_readable = self._readable
        end.on_room = self._writable
        end.on_broken = lambda error: loop.call_soon_threadsafe(self._lose, error)
        loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._protocol.connection_made(self)
        if self._end.received or self._end.has_ended:
            self._readable()
        if self._end.is_broken:
            self._loop.call_soon(self._lose, ConnectionResetError())

    # reading

    def _readable(self) -> None:
        if self._reads and not self._read_due and not self._over:
            self._read_due = True
            self._loop.call_soon_threadsafe(self._read)

    def _read(self) -> None:
        self._read_due = False
        if self._over or self._closing or not self._reads:
            return
        data = self._end.read(READ_BYTES)
        if data:
            self._protocol.data_received(data)
            if self._end.received or self._end.has_ended:
                self._readable()
        elif self._end.has_ended and not self._protocol.eof_received():
            self.close()

    def pause_reading(self) -> None:
        """See `asyncio.ReadTransport`."""
        self._reads = False

    def resume_reading(self) -> None:
        """See `asyncio.ReadTransport`."""
        self._reads = True
        self._readable()

    def is_reading(self) -> bool:
        """See `asyncio.ReadTransport`."""
        return self._reads

    # writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `asyncio.WriteTransport`."""
        if self._over or self._closing or not data:
            return
        self._buffer.append(bytes(data))
        self._size += len(data)
        if len(self._buffer) == 1:
            self._flush()
        if self._size > self._high and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """See `asyncio.WriteTransport`."""
        self.write(b"".join(list_of_data))

    def _writable(self) -> None:
        if self._buffer and not self._write_due and not self._over:
            self._write_due = True
            self._loop.call_soon_threadsafe(self._write_on)

    def _write_on(self) -> None:
        self._write_due = False
        if self._over:
            return
        self._flush()
        if self._is_paused and self._size <= self._low:
            self._is_paused = False
            self._protocol.resume_writing()
        if self._closing and not self._buffer:
            self._loop.call_soon(self._lose, None)

    def _flush(self) -> None:
        try:
            while self._buffer:
                data = self._buffer.popleft()
                taken = self._end.send(data)
                self._size -= taken
                if taken < len(data):
                    self._buffer.appendleft(data[taken:])
                    return
        except OSError as error:
            self._buffer.clear()
            self._size = 0
            self._loop.call_soon(self._lose, error)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.WriteTransport`."""
        self._high = WRITE_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """See `asyncio.WriteTransport`."""
        return self._size

    # ends

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport`."""
        return self._closing or self._over

    def close(self) -> None:
        """See `asyncio.BaseTransport`."""
        if self._closing or self._over:
            return
        self._closing = True
        if not self._buffer:
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """See `asyncio.WriteTransport`."""
        self._buffer.clear()
        self._size = 0
        self._closing = True
        self._loop.call_soon(self._lose, None)

    def get_protocol(self) -> Any:
        """See `asyncio.BaseTransport`."""
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        """See `asyncio.BaseTransport`."""
        self._protocol = protocol

    def _lose(self, error: OSError | None) -> None:
        if self._over:
            return
        self._over = True
        self._end.close()
        self._protocol.connection_lost(error)


def _peer_of(end: Socket) -> tuple[str, int]:
    return (end.peer.process.host, 0) if end.peer is not None else ("", 0)
