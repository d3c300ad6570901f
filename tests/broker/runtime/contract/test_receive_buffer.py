"""Bytes that the kernel accepts from a client whose socket is not read."""

from __future__ import annotations

import array
import fcntl
import select
import socket
import termios

import pytest

from headrace_broker.model.limits import SOCKET_RECEIVE_BYTES
from headrace_broker.runtime.contract.receive_buffer import bound_receive_buffer


def flood(client: socket.socket, chunk: bytes) -> None:
    """Send until the kernel takes no more."""
    client.setblocking(False)
    while select.select([], [client], [], 0.2)[1]:
        try:
            client.send(chunk)
        except BlockingIOError:
            continue


def unread(connection: socket.socket) -> int:
    """Return how many bytes wait to be read."""
    count = array.array("i", [0])
    fcntl.ioctl(connection, termios.FIONREAD, count)
    return count[0]


@pytest.mark.parametrize("byte_count", [150, 4096, 65536])
def test_no_more_is_kept_than_the_limit_says(byte_count: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        bound_receive_buffer(listening)
        with socket.create_connection(listening.getsockname()) as client:
            connection, _ = listening.accept()
            with connection:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                flood(client, bytes(byte_count))
                assert SOCKET_RECEIVE_BYTES // 4 < unread(connection) <= SOCKET_RECEIVE_BYTES
