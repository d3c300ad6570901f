"""Consistent-hash exchanges: each message goes to one destination, equal ones to the same.

A binding's routing key is its weight. What is hashed is the message's routing key, or the header or
property that the exchange's arguments name; messages without it are equal to each other.

The destination is found by weighted rendezvous hashing: each gets a number that only message and
destination decide, scaled by its weight, and the smallest wins. So shares are exact whatever the
weights, no table grows with them, the order of bindings does not matter, and when a binding comes
or goes only messages of that destination move. It costs some 30 ns for each destination, where a
ring of points would trade memory for evenness; and jump hashing, which RabbitMQ uses, moves
messages between destinations that stay when another one than the last goes.

Source: Thaler, Ravishankar, Using Name-Based Mappings to Increase Hit Rates, IEEE/ACM Transactions
on Networking 6 (1998); weights by Schindelhauer, Schomaker, Weighted Distributed Hash Tables, SPAA
2005. Arguments: https://github.com/rabbitmq/rabbitmq-server, rabbitmq_consistent_hash_exchange.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from math import log
from typing import Any, Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from headrace_broker.core.property_reader import (
    CORRELATION_ID,
    MESSAGE_ID,
    TIMESTAMP,
    PropertyReader,
    header_key,
)
from headrace_broker.core.routing.matcher import Destination, Matcher, Subject
from headrace_broker.model.binding_key import BindingKey, binding_key
from headrace_broker.model.definition import Binding
from headrace_broker.model.exchange_argument import HASH_HEADER, HASH_PROPERTY

_PROPERTIES: Final[dict[str, int]] = {
    "correlation_id": CORRELATION_ID,
    "message_id": MESSAGE_ID,
    "timestamp": TIMESTAMP,
}

_U32: Final = 0xFFFFFFFF
_SPAN: Final = 4294967296.0  # numbers that `_mix` gives
_TIMESTAMP_BYTES: Final = 8
_BYTES_STEP_SHIFT: Final = 4  # 16 bytes of properties that are looked through are a step


@final
class HashMember:
    """A destination's share of an exchange; `seed` is 64 bits of its name."""

    def __init__(self, rank: str, destination: Destination) -> None:
        seed = digest(rank.encode("utf-8", "surrogateescape"))
        self.rank = rank  # orders destinations where their numbers are equal; the same on all nodes
        self.destination = destination  # where it leads
        self.count: i64 = 0  # its bindings
        self.weight: i64 = 0  # of all of them together
        self.seed_high: i64 = i64(read_i32_be(seed, 0)) & _U32
        self.seed_low: i64 = i64(read_i32_be(seed, 4)) & _U32


@final
class ConsistentHashMatcher(Matcher):
    """Destinations with weights; `hash-header` or `hash-property` says what is hashed."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        header: object = arguments.get(HASH_HEADER)
        by: object = arguments.get(HASH_PROPERTY)
        self._header = header.encode("utf-8", "surrogateescape") if isinstance(header, str) else b""
        self._property: i64 = _PROPERTIES.get(by, 0) if isinstance(by, str) else 0
        self._by_header = isinstance(header, str)
        self.reads_properties = self._by_header or self._property != 0
        self._reader = PropertyReader()
        self._weights: dict[BindingKey, int] = {}
        self._members: dict[Destination, HashMember] = {}
        self._ranks: list[str] = []  # ascending, those of `_ranked`
        self._ranked: list[HashMember] = []

    def add(self, binding: Binding, destination: Destination) -> None:
        """Add a binding; several to one destination add up."""
        weight = int(binding.routing_key)
        member = self._members.get(destination)
        if member is None:
            rank = f"{binding.destination_type} {binding.destination}"
            member = HashMember(rank, destination)
            self._members[destination] = member
            place = bisect_left(self._ranks, rank)
            self._ranks.insert(place, rank)
            self._ranked.insert(place, member)
        member.count += 1
        member.weight += weight
        self._weights[binding_key(binding)] = weight

    def remove(self, binding: Binding, destination: Destination) -> None:
        """Remove a binding."""
        weight = self._weights.pop(binding_key(binding))
        member = self._members[destination]
        member.count -= 1
        member.weight -= weight
        if member.count == 0:
            del self._members[destination]
            place = bisect_left(self._ranks, member.rank)
            del self._ranks[place]
            del self._ranked[place]

    def match(self, subject: Subject, found: dict[Destination, None]) -> None:
        """Find the one destination; none where all weights are 0."""
        key = digest(self._hashed(subject))
        high: i64 = i64(read_i32_be(key, 0)) & _U32
        low: i64 = i64(read_i32_be(key, 4)) & _U32
        best: HashMember | None = None
        best_score: float = 0.0
        subject.work += len(self._ranked) + (len(subject.properties) >> _BYTES_STEP_SHIFT)
        for member in self._ranked:
            if member.weight > 0:
                number = _mix(_mix(low ^ member.seed_low) ^ high ^ member.seed_high)
                score = -log((float(number) + 0.5) / _SPAN) / float(member.weight)
                if best is None or score < best_score:
                    best = member
                    best_score = score
        if best is not None:
            found[best.destination] = None

    def _hashed(self, subject: Subject) -> bytes:
        if not self.reads_properties:
            return subject.routing_keys[0].encode("utf-8", "surrogateescape")
        block = subject.properties
        reader = self._reader
        if not reader.scan_block(block, 0, len(block)):
            return b""
        if self._by_header:
            start = reader.headers_start
            return header_key(block, start, reader.headers_stop, self._header) or b""
        if self._property == TIMESTAMP:
            start = reader.value_start(block, TIMESTAMP)
            return b"" if start < 0 else block[start : start + _TIMESTAMP_BYTES]
        return reader.text(block, self._property) or b""


def digest(data: bytes) -> bytes:
    """Return 8 bytes that are the same on all nodes and after every start."""
    return hashlib.blake2b(data, digest_size=8).digest()


def _mix(number: i64) -> i64:
    """Return 32 bits of which each depends on all 32 bits of `number`; products stay below 2**63.

    Source: Wang's and Mueller's integer hash, https://stackoverflow.com/a/12996028.
    """
    number = ((number >> 16) ^ number) * 0x45D9F3B & _U32
    number = ((number >> 16) ^ number) * 0x45D9F3B & _U32
    return (number >> 16) ^ number
