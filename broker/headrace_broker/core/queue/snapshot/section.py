"""Parts of a snapshot: messages, leases, publishers, the archive (layout in `snapshot`)."""

from __future__ import annotations

from librt.strings import BytesWriter
from mypy_extensions import i64

from headrace_broker.core.queue.messages.batch_page import write_varint
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.core.queue.messages.publisher import Publishers
from headrace_broker.core.queue.state.archive import Archive
from headrace_broker.core.queue.state.lease import LeaseGroup, Leases


def write_text(out: BytesWriter, text: bytes) -> None:
    """Write a length and bytes."""
    write_varint(out, len(text))
    out.write(text)


def write_messages(out: BytesWriter, messages: list[Acquired]) -> None:
    """Write a number and messages."""
    write_varint(out, len(messages))
    for message in messages:
        write_message(out, message)


def write_message(out: BytesWriter, message: Acquired) -> None:
    """Write a message."""
    write_varint(out, message.message_id)
    write_varint(out, message.entry_index)
    write_varint(out, message.position)
    write_varint(out, message.byte_count)
    write_varint(out, message.acquired_count)
    write_varint(out, message.delivery_count)
    write_varint(out, message.arrived_ms)
    write_varint(out, message.expires_ms)
    out.append(int(message.priority))
    write_varint(out, message.acquired_ms)
    write_varint(out, message.due_ms)
    write_text(out, message.key)


def write_rows(out: BytesWriter, bounds: list[int], base: i64) -> None:
    """Write rows as in `Ranges.bounds`, none of which begins before `base`."""
    write_varint(out, len(bounds) // 2)
    end = base
    for at in range(0, len(bounds), 2):
        write_varint(out, bounds[at] - end)
        end = bounds[at + 1]
        write_varint(out, end - bounds[at])


def encode_leases(leases: Leases) -> bytes:
    """Encode what groups hold by lease."""
    out = BytesWriter()
    write_varint(out, leases.epochs)
    write_varint(out, len(leases.groups))
    for group in leases.groups.values():
        _write_group(out, group)
    write_varint(out, len(leases.leaving))
    for leaving in leases.leaving:
        write_varint(out, leaving.holder.number)
        out.append(int(leaving.operation))
        write_messages(out, leaving.messages[leaving.next :])
    return out.getvalue()


def _write_group(out: BytesWriter, group: LeaseGroup) -> None:
    write_text(out, group.name)
    write_varint(out, group.holder.number)
    write_varint(out, group.epoch)
    _write_openers(out, group.openers)
    write_varint(out, group.next_number)
    write_varint(out, group.settled)
    write_varint(out, group.settled_before)
    write_varint(out, group.settled_count)
    write_varint(out, group.deadline_ms)
    write_varint(out, len(group.leases))
    for number, lease in group.leases.items():
        write_varint(out, number)
        write_messages(out, lease.messages)
    write_varint(out, len(group.gone))
    for number, gone in group.gone.items():
        write_varint(out, number)
        out.append(int(gone.state))
        write_varint(out, gone.count)
        write_varint(out, gone.byte_count)
        write_rows(out, gone.rows, 0)


def encode_publishers(publishers: Publishers) -> bytes:
    """Encode what publishers have sent."""
    out = BytesWriter()
    write_varint(out, len(publishers.known))
    for publisher, known in publishers.known.items():
        write_text(out, publisher)
        write_varint(out, known.epoch)
        write_varint(out, known.last)
        write_varint(out, known.used_ms)
        write_rows(out, known.holes.bounds, 0)
    return out.getvalue()


def encode_archive(archive: Archive) -> bytes:
    """Encode archived messages and their readers."""
    out = BytesWriter()
    write_varint(out, archive.since_ms)
    write_varint(out, archive.first)
    pages = archive.packed_pages()
    write_varint(out, len(pages))
    for page in pages:
        write_text(out, page)
    write_varint(out, len(archive.delivered))
    for message_id in sorted(archive.delivered):
        write_varint(out, message_id)
        write_varint(out, archive.delivered[message_id])
    write_varint(out, archive.epochs)
    write_varint(out, len(archive.groups))
    for group in archive.groups.values():
        write_text(out, group.name)
        write_varint(out, group.epoch)
        _write_openers(out, group.openers)
        write_varint(out, group.committed)
        write_varint(out, group.committed_ms)
    return out.getvalue()


def _write_openers(out: BytesWriter, openers: dict[bytes, int]) -> None:
    write_varint(out, len(openers))
    for opener, epoch in openers.items():
        write_text(out, opener)
        write_varint(out, epoch)
