"""Waiting batches as bytes: what a long queue keeps of them in memory and in snapshots.

    n | n x entry | n x (first id | next | count | beyond | size | arrived | expires)

All are numbers in groups of 7 bits. Log positions, first ids and times of arrival are differences
to what stands before them (of ids: to the id after the batch before). `count` messages wait from
position `next` on, `beyond` positions follow them. `size` is that of every body plus 1, or 0,
after which stand 4 bytes for each of the entry's messages. `expires` is 0 for never, else the
time from arrival plus 1.
"""

from __future__ import annotations

from array import array
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from headrace_broker.core.queue.messages.batch import Batch
from headrace_broker.core.queue.messages.batch_sizes import UNEQUAL, BatchSizes
from headrace_broker.core.queue.messages.byte_reader import ByteReader

_RUN_MIN: Final = 8  # log positions without a gap from which adding them together is faster


def write_varint(out: BytesWriter, value: i64) -> None:
    """Write a number from 0 to 2**63-1 in groups of 7 bits, the lowest first."""
    while value > 0x7F:
        out.append(int(value & 0x7F) | 0x80)
        value >>= 7
    out.append(int(value))


def encode_batches(batches: list[Batch]) -> bytes:
    """Encode batches in the order of their ids and log positions, of which all have messages."""
    out = BytesWriter()
    write_varint(out, len(batches))
    entry: i64 = 0
    for batch in batches:
        write_varint(out, batch.entry_index - entry)
        entry = batch.entry_index
    following: i64 = 0
    arrived: i64 = 0
    for batch in batches:
        sizes = batch.sizes
        write_varint(out, batch.id_base + batch.next - following)
        following = batch.id_base + batch.stop
        write_varint(out, batch.next)
        write_varint(out, batch.stop - batch.next)
        write_varint(out, sizes.count - batch.stop)
        if sizes.size == UNEQUAL:
            write_varint(out, 0)
            out.write(sizes.table)
        else:
            write_varint(out, sizes.size + 1)
        write_varint(out, batch.arrived_ms - arrived)
        arrived = batch.arrived_ms
        expires = batch.expires_ms
        write_varint(out, expires - arrived + 1 if expires > 0 else 0)
    return out.getvalue()


def decode_batches(data: bytes) -> list[Batch]:
    """Decode what `encode_batches` gave; LookupError for anything else."""
    reader = ByteReader(data, 0)
    entries = _entries(reader)
    batches: list[Batch] = []
    entry: i64 = 0
    following: i64 = 0
    arrived: i64 = 0
    for index in range(len(entries)):
        entry += entries[index]
        first = following + reader.varint()
        start = reader.varint()
        stop = start + reader.varint()
        count = stop + reader.varint()
        size = reader.varint() - 1
        table = reader.read_bytes(count * 4) if size == UNEQUAL else b""
        arrived += reader.varint()
        lifetime = reader.varint()
        expires: i64 = arrived + lifetime - 1 if lifetime > 0 else 0
        if start == stop or first < 0 or arrived < 0 or reader.failed:
            raise LookupError(f"batch {index} of {len(entries)}")
        sizes = BatchSizes(count, size, table)
        batches.append(Batch(entry, first - start, start, stop, sizes, arrived, expires))
        following = first + stop - start
    if not reader.at_end():
        raise LookupError("bytes after the last batch")
    return batches


def read_entries(data: bytes, into: array[int]) -> None:
    """Add the log positions of encoded batches, ascending.

    A queue of single messages has millions, most without a gap between them: those are added
    together.
    """
    reader = ByteReader(data, 0)
    left = reader.varint()
    size: i64 = len(data)
    if left > size:
        raise LookupError(f"{left} batches")
    entry: i64 = 0
    while left > 0:
        entry += reader.varint()
        into.append(entry)
        left -= 1
        at = reader.position
        most: i64 = min(left, size - at)
        run: i64 = 0
        while run < most and data[at + run] == 1:
            run += 1
        if run >= _RUN_MIN:
            into.extend(range(entry + 1, entry + run + 1))
            entry += run
            left -= run
            reader.position = at + run


def _entries(reader: ByteReader) -> list[int]:
    count = reader.varint()
    if count > len(reader.data):
        raise LookupError(f"{count} batches")
    return [reader.varint() for _ in range(count)]
