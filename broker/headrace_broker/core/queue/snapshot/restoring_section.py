"""Reads parts of a snapshot back: messages, leases, publishers, the archive."""

from __future__ import annotations

from mypy_extensions import i64

from headrace_broker.core.queue.command.command import ACCEPT, MODIFY_FAILED, RELEASE
from headrace_broker.core.queue.messages.byte_reader import ByteReader
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.core.queue.messages.publisher import Publisher
from headrace_broker.core.queue.messages.settings import PRIORITY_MAX
from headrace_broker.core.queue.state.archive import ArchiveGroup
from headrace_broker.core.queue.state.consumer import Consumer
from headrace_broker.core.queue.state.lease import HOLDERS, Lease, LeaseGroup, Leaving
from headrace_broker.core.queue.state.lease_effect import EXPIRED, RELEASED, LeaseInfo
from headrace_broker.core.queue.state.queue_state import QueueState
from headrace_broker.core.queue.state.ready_list import KEY_GROUP
from headrace_broker.model.ranges import Ranges


def read_count(reader: ByteReader) -> i64:
    """Read how many items follow, each of at least one byte."""
    count = reader.varint()
    if reader.failed or count > len(reader.data) - reader.position:
        raise LookupError(f"{count} items at {reader.position}")
    return count


def read_text(reader: ByteReader) -> bytes:
    """Read a length and bytes."""
    return reader.read_bytes(reader.varint())


def read_acquired(reader: ByteReader) -> Acquired:
    """Read what `write_message` wrote; the caller looks whether it is one."""
    message = Acquired(
        reader.varint(),
        reader.varint(),
        reader.varint(),
        reader.varint(),
        reader.varint(),
        reader.varint(),
    )
    message.arrived_ms = reader.varint()
    message.expires_ms = reader.varint()
    message.priority = reader.u8()
    message.acquired_ms = reader.varint()
    message.due_ms = reader.varint()
    message.key = read_text(reader)
    return message


def read_message(reader: ByteReader, state: QueueState) -> Acquired:
    """Read a message whose entry is alive."""
    message = read_acquired(reader)
    if reader.failed or message.priority > PRIORITY_MAX:
        raise LookupError(f"message {message.message_id}")
    if message.entry_index not in state.ready.entries.counts:
        raise LookupError(f"message {message.message_id} of a dead entry {message.entry_index}")
    return message


def _rows(reader: ByteReader) -> Ranges:
    rows = Ranges()
    end: i64 = 0
    for row in range(read_count(reader)):
        start = end + reader.varint()
        stop = start + reader.varint()
        if reader.failed or stop <= start or (row > 0 and start == end):
            raise LookupError("a row of nothing, or two that are one")
        rows.append(start, stop)
        end = stop
    return rows


def read_leases(reader: ByteReader, state: QueueState) -> None:
    """Read the leases of groups, and returning messages."""
    leases = state.leases
    leases.epochs = reader.varint()
    holders: dict[int, Consumer] = {}
    for _ in range(read_count(reader)):
        group = _read_group(reader, state)
        if group.name in leases.groups or group.holder.number in holders:
            raise LookupError("a group that is there twice")
        if max(group.epoch, group.holder.number) > leases.epochs:
            raise LookupError("an epoch that was not given")
        leases.groups[group.name] = group
        holders[group.holder.number] = group.holder
    for _ in range(read_count(reader)):
        number = reader.varint()
        operation = reader.u8()
        if operation not in (ACCEPT, RELEASE, MODIFY_FAILED):
            raise LookupError(f"operation {operation}")
        holder = holders.get(number)
        if holder is None:  # its group was closed
            holder = Consumer(HOLDERS, number)
            holders[number] = holder
        messages = _read_held(reader, holder, state)
        leases.leaving.append(Leaving(holder, operation, messages))
    leases.find_due()


def _read_group(reader: ByteReader, state: QueueState) -> LeaseGroup:
    name = read_text(reader)
    group = LeaseGroup(name, reader.varint())
    group.epoch = reader.varint()
    _read_openers(reader, group.openers)
    group.next_number = reader.varint()
    group.settled = reader.varint()
    group.settled_before = reader.varint()
    group.settled_count = reader.varint()
    group.deadline_ms = reader.varint()
    for _ in range(read_count(reader)):
        number = reader.varint()
        group.leases[number] = Lease(number, _read_held(reader, group.holder, state))
    for _ in range(read_count(reader)):
        number = reader.varint()
        how = reader.u8()
        if how not in (EXPIRED, RELEASED):
            raise LookupError(f"a lease that is gone by {how}")
        count = reader.varint()
        byte_count = reader.varint()
        group.gone[number] = LeaseInfo(number, how, count, byte_count, _rows(reader).bounds)
    return group


def _read_held(reader: ByteReader, holder: Consumer, state: QueueState) -> list[Acquired]:
    """Read messages that are unsettled at a group, at least one."""
    messages = [read_message(reader, state) for _ in range(read_count(reader))]
    if not messages:
        raise LookupError("a lease of nothing")
    for message in messages:
        state.unsettled_bytes += message.byte_count
        if message.key.startswith(KEY_GROUP):
            state.ready.groups.hold(holder, message)
    state.unsettled_count += len(messages)
    state.leases.count += len(messages)
    return messages


def read_publishers(reader: ByteReader, state: QueueState) -> None:
    """Read what publishers have sent."""
    for _ in range(read_count(reader)):
        name = read_text(reader)
        if name in state.publishers.known:
            raise LookupError("a publisher that is there twice")
        known = Publisher(reader.varint())
        known.last = reader.varint()
        known.used_ms = reader.varint()
        known.holes = _rows(reader)
        state.publishers.known[name] = known


def read_archive(reader: ByteReader, state: QueueState) -> None:
    """Read archived messages and their readers."""
    archive = state.archived
    archive.since_ms = reader.varint()
    first = reader.varint()
    pages = [read_text(reader) for _ in range(read_count(reader))]
    archive.restore(first, pages, state.ready.entries.counts)
    for _ in range(read_count(reader)):
        message_id = reader.varint()
        archive.delivered[message_id] = reader.varint()
    archive.epochs = reader.varint()
    for _ in range(read_count(reader)):
        group = ArchiveGroup(read_text(reader))
        group.epoch = reader.varint()
        _read_openers(reader, group.openers)
        group.committed = reader.varint()
        group.committed_ms = reader.varint()
        if group.name in archive.groups or group.epoch > archive.epochs:
            raise LookupError("a reader that is there twice, or an epoch that was not given")
        if group.committed > archive.following:
            raise LookupError("a reader that is done with rows that are not there yet")
        archive.groups[group.name] = group
    archive.find_floor()


def _read_openers(reader: ByteReader, openers: dict[bytes, int]) -> None:
    for _ in range(read_count(reader)):
        opener = read_text(reader)
        openers[opener] = reader.varint()
