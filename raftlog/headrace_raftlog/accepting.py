"""Accepting connections of which none is lost.

Who cancels asyncio's `sock_accept` may lose a connection that it has accepted meanwhile: nobody
holds its socket, and the other end waits for an answer until that is collected.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any


async def accept(listening: socket.socket) -> tuple[socket.socket, Any]:
    """Wait for a connection; one that comes while this is cancelled is left to the next call.

    Args:
        listening: a socket that does not block, and on which nobody else waits.

    Returns:
        Its socket, which does not block either, and whence it comes.

    Raises:
        OSError: none can be accepted, or it has gone again.
    """
    loop = asyncio.get_running_loop()
    while True:
        waiting = asyncio.Event()
        loop.add_reader(listening, waiting.set)
        try:
            await waiting.wait()
        finally:
            loop.remove_reader(listening)
        try:
            connection, address = listening.accept()
        except BlockingIOError:
            continue  # it has gone again
        connection.setblocking(False)
        return connection, address
