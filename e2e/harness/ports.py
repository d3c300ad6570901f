"""Ports for listeners whose address has to be known before they listen."""

from __future__ import annotations

import itertools
import os
import socket
from typing import Final

FIRST: Final = 24000  # from here to 32,000: below what kernels give to whoever asks for any port
PER_WORKER: Final = 2000
WORKERS: Final = 4

_numbers = itertools.count(os.getpid() % PER_WORKER)


def free_ports(count: int) -> list[int]:
    """Return unused ports of loopback, outside of those given by chance."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    found: list[int] = []
    for number in itertools.islice(_numbers, PER_WORKER):
        port = FIRST + PER_WORKER * worker + number % PER_WORKER
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"no {count} ports are free from {FIRST + PER_WORKER * worker} on")


def free_addresses(count: int) -> dict[int, str]:
    """Return host:port of nodes 1, 2, ..."""
    return {node: f"127.0.0.1:{port}" for node, port in enumerate(free_ports(count), 1)}
