"""Commands of groups that lease messages; layout as in `command`, version 1.

    u64 request | u8 n | n bytes name of the group | fields

    OPEN_GROUP      u64 time to live in ms | u8 n | n bytes id of who opens
    LEASE           u64 epoch | u64 number | u32 messages | u64 octets | u64 time to live in ms
    RENEW           u64 epoch | u64 time to live in ms
    SETTLE_LEASES   u64 epoch | u64 number of the last one
    RELEASE_LEASES  u64 epoch | u64 number of the first one | u8 1 for a failed delivery
    CLOSE_GROUP     u64 epoch, 0 for any

They are not numbered: each may be repeated, and is answered by what holds then. `request` names
whoever waits for the answer.
"""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from headrace_broker.core.queue.command import (
    CLOSE_GROUP,
    COMMAND_VERSION,
    LEASE,
    NUMBER_MAX,
    OPEN_GROUP,
    RELEASE_LEASES,
    RENEW,
    SETTLE_LEASES,
    Command,
    Malformed,
    write_u32,
)
from headrace_broker.core.queue.octet_reader import OctetReader
from headrace_broker.model.limits import (
    LEASE_OPENER_OCTETS_MAX,
    LEASE_TTL_MS_MAX,
    NAME_OCTETS_MAX,
)


class LeaseCommand(Command):
    """Base of the commands of groups.

    Attributes:
        request: who waits for the answer.
        name: of the group.
        epoch: of who works for it.
    """

    def __init__(self, request: i64, name: bytes, epoch: i64) -> None:
        self.request = request
        self.name = name
        self.epoch = epoch


@final
class OpenGroup(LeaseCommand):
    """Give who opens a group an epoch above all others; the same one when it is repeated.

    Attributes:
        ttl_ms: the group's leases live at least so long from now on.
        opener: tells this request from every other.
    """

    def __init__(self, request: i64, name: bytes, ttl_ms: i64, opener: bytes) -> None:
        super().__init__(request, name, 0)
        self.ttl_ms = ttl_ms
        self.opener = opener


@final
class TakeLease(LeaseCommand):
    """Acquire messages that are ready, as the group's lease of that number.

    Attributes:
        number: the next one, or an earlier one to be told of it.
        messages: the most.
        octets: of their bodies, the most; one message may exceed it.
        ttl_ms: the group's leases live at least so long from now on.
    """

    def __init__(
        self,
        request: i64,
        name: bytes,
        epoch: i64,
        number: i64,
        messages: i64,
        octets: i64,
        ttl_ms: i64,
    ) -> None:
        super().__init__(request, name, epoch)
        self.number = number
        self.messages = messages
        self.octets = octets
        self.ttl_ms = ttl_ms


@final
class RenewLeases(LeaseCommand):
    """Let the group's leases live so long from now on."""

    def __init__(self, request: i64, name: bytes, epoch: i64, ttl_ms: i64) -> None:
        super().__init__(request, name, epoch)
        self.ttl_ms = ttl_ms


@final
class SettleLeases(LeaseCommand):
    """Accept all messages of the group's leases up to number `last`."""

    def __init__(self, request: i64, name: bytes, epoch: i64, last: i64) -> None:
        super().__init__(request, name, epoch)
        self.last = last


@final
class ReleaseLeases(LeaseCommand):
    """Give the messages of the group's leases from number `first` on back."""

    def __init__(self, request: i64, name: bytes, epoch: i64, first: i64, failed: bool) -> None:
        super().__init__(request, name, epoch)
        self.first = first
        self.failed = failed


@final
class CloseGroup(LeaseCommand):
    """Give back what a group holds and forget it."""


def encode_open_group(request: i64, name: bytes, ttl_ms: i64, opener: bytes) -> bytes:
    """Encode OPEN_GROUP."""
    out = _command(OPEN_GROUP, request, name)
    write_i64_be(out, ttl_ms)
    out.append(len(opener))
    out.write(opener)
    return out.getvalue()


def encode_lease(
    request: i64, name: bytes, epoch: i64, number: i64, messages: i64, octets: i64, ttl_ms: i64
) -> bytes:
    """Encode LEASE."""
    out = _command(LEASE, request, name)
    write_i64_be(out, epoch)
    write_i64_be(out, number)
    write_u32(out, messages)
    write_i64_be(out, octets)
    write_i64_be(out, ttl_ms)
    return out.getvalue()


def encode_renew(request: i64, name: bytes, epoch: i64, ttl_ms: i64) -> bytes:
    """Encode RENEW."""
    out = _command(RENEW, request, name)
    write_i64_be(out, epoch)
    write_i64_be(out, ttl_ms)
    return out.getvalue()


def encode_settle_leases(request: i64, name: bytes, epoch: i64, last: i64) -> bytes:
    """Encode SETTLE_LEASES."""
    out = _command(SETTLE_LEASES, request, name)
    write_i64_be(out, epoch)
    write_i64_be(out, last)
    return out.getvalue()


def encode_release_leases(request: i64, name: bytes, epoch: i64, first: i64, failed: bool) -> bytes:
    """Encode RELEASE_LEASES."""
    out = _command(RELEASE_LEASES, request, name)
    write_i64_be(out, epoch)
    write_i64_be(out, first)
    out.append(1 if failed else 0)
    return out.getvalue()


def encode_close_group(request: i64, name: bytes, epoch: i64) -> bytes:
    """Encode CLOSE_GROUP."""
    out = _command(CLOSE_GROUP, request, name)
    write_i64_be(out, epoch)
    return out.getvalue()


def _command(kind: int, request: i64, name: bytes) -> BytesWriter:
    out = BytesWriter()
    out.append(kind)
    out.append(COMMAND_VERSION)
    write_i64_be(out, request)
    out.append(len(name))
    out.write(name)
    return out


def decode_lease_command(kind: i64, reader: OctetReader) -> Command:
    """Decode what stands behind kind and version; the caller sees to it that nothing is left."""
    request = reader.u64()
    name = reader.octets(reader.u8())
    if not 1 <= len(name) <= NAME_OCTETS_MAX:
        return Malformed("a group without name")
    if kind == OPEN_GROUP:
        return _decode_open(request, name, reader)
    epoch = reader.u64()
    if kind == LEASE:
        return _decode_lease(request, name, epoch, reader)
    if kind == RENEW:
        ttl_ms = reader.u64()
        if not 1 <= ttl_ms <= LEASE_TTL_MS_MAX:
            return Malformed("RENEW for no time, or too long")
        return RenewLeases(request, name, epoch, ttl_ms)
    if kind == CLOSE_GROUP:
        return CloseGroup(request, name, epoch)
    number = reader.u64()
    if number > NUMBER_MAX:
        return Malformed("a lease's number is out of range")
    if kind == SETTLE_LEASES:
        return SettleLeases(request, name, epoch, number)
    failed = reader.u8()
    if failed > 1:
        return Malformed("RELEASE_LEASES with an unknown flag")
    return ReleaseLeases(request, name, epoch, number, failed == 1)


def _decode_open(request: i64, name: bytes, reader: OctetReader) -> Command:
    ttl_ms = reader.u64()
    opener = reader.octets(reader.u8())
    if ttl_ms > LEASE_TTL_MS_MAX or not 1 <= len(opener) <= LEASE_OPENER_OCTETS_MAX:
        return Malformed("OPEN_GROUP for too long, or by nobody")
    return OpenGroup(request, name, ttl_ms, opener)


def _decode_lease(request: i64, name: bytes, epoch: i64, reader: OctetReader) -> Command:
    number = reader.u64()
    messages = reader.u32()
    octets = reader.u64()
    ttl_ms = reader.u64()
    if not 1 <= number <= NUMBER_MAX or messages == 0 or not 1 <= ttl_ms <= LEASE_TTL_MS_MAX:
        return Malformed("LEASE of no number, of nothing, or for no time or too long")
    return TakeLease(request, name, epoch, number, messages, octets, ttl_ms)
