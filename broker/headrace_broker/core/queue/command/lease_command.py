"""Commands of groups that lease messages, version 1: what follows the name in `group_command`.

    OPEN_GROUP      u64 time to live in ms | u8 n | n bytes id of who opens
    LEASE           u64 epoch | u64 number | u32 messages | u64 bytes | u64 time to live in ms
    RENEW           u64 epoch | u64 time to live in ms
    SETTLE_LEASES   u64 epoch | u64 number of the last one
    RELEASE_LEASES  u64 epoch | u64 number of the first one | u8 1 for a failed delivery
    CLOSE_GROUP     u64 epoch, 0 for any

They are those of a group, and are not numbered.
"""

from __future__ import annotations

from typing import final

from librt.strings import write_i64_be
from mypy_extensions import i64

from headrace_broker.core.queue.command.command import (
    CLOSE_GROUP,
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
from headrace_broker.core.queue.command.group_command import (
    GroupCommand,
    begin_command,
    encode_numbers,
)
from headrace_broker.core.queue.messages.byte_reader import ByteReader
from headrace_broker.model.limits import LEASE_OPENER_BYTES_MAX, LEASE_TTL_MS_MAX, NAME_BYTES_MAX


class LeaseCommand(GroupCommand):
    """Base of the commands of groups that lease."""


@final
class OpenGroup(LeaseCommand):
    """Give who opens a group an epoch above all others; the same one when it is repeated."""

    def __init__(self, request: i64, name: bytes, ttl_ms: i64, opener: bytes) -> None:
        super().__init__(request, name, 0)
        self.ttl_ms = ttl_ms  # the group's leases live at least so long from now on
        self.opener = opener  # tells this request from every other


@final
class TakeLease(LeaseCommand):
    """Acquire messages that are ready, as the group's lease of that number."""

    def __init__(
        self,
        request: i64,
        name: bytes,
        epoch: i64,
        number: i64,
        messages: i64,
        byte_count: i64,
        ttl_ms: i64,
    ) -> None:
        super().__init__(request, name, epoch)
        self.number = number  # the next one, or an earlier one to be told of it
        self.messages = messages  # the most
        self.byte_count = byte_count  # of their bodies, the most; one message may exceed it
        self.ttl_ms = ttl_ms  # the group's leases live at least so long from now on


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
    out = begin_command(OPEN_GROUP, request, name)
    write_i64_be(out, ttl_ms)
    out.append(len(opener))
    out.write(opener)
    return out.getvalue()


def encode_lease(
    request: i64, name: bytes, epoch: i64, number: i64, messages: i64, byte_count: i64, ttl_ms: i64
) -> bytes:
    """Encode LEASE."""
    out = begin_command(LEASE, request, name)
    write_i64_be(out, epoch)
    write_i64_be(out, number)
    write_u32(out, messages)
    write_i64_be(out, byte_count)
    write_i64_be(out, ttl_ms)
    return out.getvalue()


def encode_renew(request: i64, name: bytes, epoch: i64, ttl_ms: i64) -> bytes:
    """Encode RENEW."""
    return encode_numbers(RENEW, request, name, [epoch, ttl_ms])


def encode_settle_leases(request: i64, name: bytes, epoch: i64, last: i64) -> bytes:
    """Encode SETTLE_LEASES."""
    return encode_numbers(SETTLE_LEASES, request, name, [epoch, last])


def encode_release_leases(request: i64, name: bytes, epoch: i64, first: i64, failed: bool) -> bytes:
    """Encode RELEASE_LEASES."""
    out = begin_command(RELEASE_LEASES, request, name)
    write_i64_be(out, epoch)
    write_i64_be(out, first)
    out.append(1 if failed else 0)
    return out.getvalue()


def encode_close_group(request: i64, name: bytes, epoch: i64) -> bytes:
    """Encode CLOSE_GROUP."""
    return encode_numbers(CLOSE_GROUP, request, name, [epoch])


def decode_lease_command(kind: i64, reader: ByteReader) -> Command:
    """Decode what stands behind kind and version; the caller sees to it that nothing is left."""
    request = reader.u64()
    name = reader.read_bytes(reader.u8())
    if not 1 <= len(name) <= NAME_BYTES_MAX:
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


def _decode_open(request: i64, name: bytes, reader: ByteReader) -> Command:
    ttl_ms = reader.u64()
    opener = reader.read_bytes(reader.u8())
    if ttl_ms > LEASE_TTL_MS_MAX or not 1 <= len(opener) <= LEASE_OPENER_BYTES_MAX:
        return Malformed("OPEN_GROUP for too long, or by nobody")
    return OpenGroup(request, name, ttl_ms, opener)


def _decode_lease(request: i64, name: bytes, epoch: i64, reader: ByteReader) -> Command:
    number = reader.u64()
    messages = reader.u32()
    byte_count = reader.u64()
    ttl_ms = reader.u64()
    if not 1 <= number <= NUMBER_MAX or messages == 0 or not 1 <= ttl_ms <= LEASE_TTL_MS_MAX:
        return Malformed("LEASE of no number, of nothing, or for no time or too long")
    return TakeLease(request, name, epoch, number, messages, byte_count, ttl_ms)
