"""Accepting connections without loss, and the reason why an address cannot be listened at.

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

    Raises OSError: none can be accepted, or it has gone again.
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


def listening_problem(address: str) -> str:
    """Return why an address cannot be listened at now, as the system says; "" if it can.

    gRPC only says that it cannot.

    Args:
        address: HOST:PORT, an IPv6 host in brackets.
    """
    host, _, port = address.rpartition(":")
    try:
        for family, kind, protocol, _, place in socket.getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(place)
                trial.listen()
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""
