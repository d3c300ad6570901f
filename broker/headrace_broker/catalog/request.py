"""Identity of a request for a change, so that a repeated request is applied once.

A catalog entry is

    u8 version | u16 node | u32 boot | u64 number | command (MessagePack)

with big-endian integers; (node, boot, number) is the request's identity.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import Final, NamedTuple

import msgspec

from headrace_broker.model.limits import CATALOG_REQUEST_WINDOW
from headrace_broker.model.session import NODE_ID_MAX

ENVELOPE_VERSION: Final = 1
REQUEST_BITS: Final = 62  # of a process's first number: no two begin alike, none gets to 2**64

_HEADER: Final = struct.Struct(">BHIQ")
ENVELOPE_BYTES: Final = _HEADER.size


class Request(NamedTuple):
    """Identity of a request."""

    node: int  # id of the asking node, 1 to 1023
    boot: int  # how many times that node was started, from 0
    number: int  # counts up within the boot, from a random number of REQUEST_BITS


def encode_envelope(request: Request, command: bytes) -> bytes:
    """Put a request's identity before its encoded command."""
    return _HEADER.pack(ENVELOPE_VERSION, *request) + command


def decode_envelope(data: bytes) -> Request | None:
    """Return the identity at the front of a catalog entry, or None without one."""
    if len(data) < ENVELOPE_BYTES:
        return None
    version, node, boot, number = _HEADER.unpack_from(data)
    if version != ENVELOPE_VERSION or not 1 <= node <= NODE_ID_MAX or number < 1:
        return None
    return Request(node, boot, number)


class SeenRequests(msgspec.Struct):
    """Requests of one node's newest boot that the catalog has met."""

    boot: int  # that boot
    floor: int = 0  # all numbers up to here count as seen
    above: list[int] = []  # seen numbers above it, ascending, CATALOG_REQUEST_WINDOW at most

    def admit(self, number: int) -> bool:
        """Note a number; return False when it was seen or is too old to tell."""
        if number <= self.floor:
            return False
        position = bisect_left(self.above, number)
        if position < len(self.above) and self.above[position] == number:
            return False
        self.above.insert(position, number)
        if len(self.above) > CATALOG_REQUEST_WINDOW:
            self.floor = self.above[0] - 1
        passed = 0
        while passed < len(self.above) and self.above[passed] == self.floor + 1:
            self.floor += 1
            passed += 1
        del self.above[:passed]
        return True


class RequestTable:
    """Requests seen from each node; those of a boot earlier than the newest are refused."""

    def __init__(self, nodes: dict[int, SeenRequests] | None = None) -> None:
        self.nodes = nodes if nodes is not None else {}

    def boot(self, node: int) -> int:
        """Return the newest boot from which a node's requests were met, -1 before the first."""
        seen = self.nodes.get(node)
        return seen.boot if seen is not None else -1

    def admit(self, request: Request) -> bool:
        """Note a request; return False when it must not be applied (again)."""
        seen = self.nodes.get(request.node)
        if seen is None or request.boot > seen.boot:
            seen = SeenRequests(request.boot)
            self.nodes[request.node] = seen
        elif request.boot < seen.boot:
            return False
        return seen.admit(request.number)
