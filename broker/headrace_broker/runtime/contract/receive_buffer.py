"""Size of the kernel's buffer for a client whose socket is not read."""

from __future__ import annotations

import socket

from headrace_broker.model.limits import SOCKET_RECEIVE_BYTES


def bound_receive_buffer(listening: socket.socket) -> None:
    """Make the kernel keep at most SOCKET_RECEIVE_BYTES for each client that connects.

    Linux doubles what it is asked for, for what it needs besides, and fills nearly all of that with
    byte_count: so it is asked for half.

    Source: socket(7), SO_RCVBUF.
    """
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_RECEIVE_BYTES // 2)
