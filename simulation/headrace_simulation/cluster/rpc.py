"""Messages of the stand-ins of gRPC, over a connection of the simulated network.

A call is ("call", number, method, metadata, request); "cancel" ends it early. Its answer is a
"head" with metadata, "message" for each message, and "end" with code, details and metadata.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from collections.abc import Callable
from typing import Any, final

from headrace_simulation.cluster.transport import VirtualTransport

Pairs = tuple[tuple[str, Any], ...]


@final
class Messages(asyncio.Protocol):
    """A connection that carries messages: tuples of plain values."""

    def __init__(self) -> None:
        self.transport: VirtualTransport | None = None
        self.on_message: Callable[[tuple[Any, ...]], None] = lambda message: None
        self.on_lost: Callable[[], None] = lambda: None
        self.heard_at = 0.0
        self._data = bytearray()
        self._room = asyncio.Event()
        self._room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, VirtualTransport)
        self.transport = transport
        self.heard_at = asyncio.get_running_loop().time()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self.heard_at = asyncio.get_running_loop().time()
        self._data += data
        while len(self._data) >= 4:
            (size,) = struct.unpack_from(">I", self._data)
            if len(self._data) < 4 + size:
                return
            body = bytes(self._data[4 : 4 + size])
            del self._data[: 4 + size]
            self.on_message(pickle.loads(body))  # noqa: S301  (of this process of the system)

    def send(self, *message: Any) -> None:
        """Send a message."""
        if self.transport is not None:
            body = pickle.dumps(message, protocol=4)
            self.transport.write(struct.pack(">I", len(body)) + body)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._room.clear()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._room.set()

    async def has_room(self) -> None:
        """Wait until the connection takes more."""
        await self._room.wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        del exc
        self._room.set()
        self.on_lost()

    def close(self) -> None:
        """End the connection."""
        if self.transport is not None:
            self.transport.close()
