"""Cuts messages of an archive's rows out of the log entries they stand in, many at a time.

A chunk is two blocks of bytes, as that of a lease (`lease_chunk`) with other heads:

    heads   for each row: `HEAD`
    batch   the messages in the layout of `model.message`; of rows whose bodies are hidden,
                without body
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from headrace_broker.codecs.batch import message_start, properties_stop
from headrace_broker.core.queue.command.command import ENQUEUE_BATCH_OFFSET, U32_MAX
from headrace_broker.core.queue.state.archive_row import ArchiveRow
from headrace_broker.model.limits import CHUNK_ENTRIES_BYTES_MAX
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.replica.reading.entries import Entries

# u64 message id, log position, arrived at, first delivered at (0 for not or not known), settled at
# (Unix time in ms) | u32 deliveries, failed ones, bytes of the body | u8 outcome | u8 1 with body
HEAD: Final = struct.Struct(">QQQQQIIIBB")
_U32: Final = struct.Struct(">I")


class Head(NamedTuple):
    """Fields of `HEAD`."""

    message_id: int
    log_index: int
    arrived_ms: int
    first_ms: int
    settled_ms: int
    acquired: int
    failed: int
    byte_count: int
    outcome: int
    full: int


class Rows(NamedTuple):
    """Some rows of an archive, and which there are."""

    since_ms: int  # as `ArchiveInfo`; so are the next two
    first: int  # index of the first row that there is
    following: int  # index of the next row
    heads: bytes  # of the rows that are here
    batch: bytes  # their messages

    @property
    def row_count(self) -> int:
        """Number of rows here."""
        return len(self.heads) // HEAD.size


def cut_rows(host: QueueHost, entries: Entries, start: int, most: int, bytes_max: int) -> Rows:
    """Cut out rows from an index on, at most `most`, up to and with one that exceeds a size.

    They end early where more has to be read of the log than CHUNK_ENTRIES_BYTES_MAX: that is much
    where bodies are left out, or where many entries take turns. And they end before an entry that
    is missing. None come without the first.
    """
    info = host.machine.archive()
    heads: list[bytes] = []
    pieces: list[bytes] = []
    byte_count = read = 0
    index = -1
    entry: bytes | None = None
    for row in host.machine.archived(start, most):
        if row.entry_index != index:
            if read >= CHUNK_ENTRIES_BYTES_MAX:
                break
            index = int(row.entry_index)
            entry = entries.get(index)
            read += entries.byte_count(index) if entry is None else len(entry)
        if entry is None:  # what else is missing is to be found out
            continue
        piece = _piece(entry, row)
        heads.append(_head(row))
        pieces.append(piece)
        byte_count += len(piece)
        if byte_count >= bytes_max:
            break
    since, first, following = int(info.since_ms), int(info.first), int(info.following)
    return Rows(since, first, following, b"".join(heads), _batch(pieces))


def _piece(entry: bytes, row: ArchiveRow) -> bytes:
    start = message_start(entry, ENQUEUE_BATCH_OFFSET, row.position)
    if row.full:
        return entry[start : message_start(entry, ENQUEUE_BATCH_OFFSET, row.position + 1)]
    return entry[start : properties_stop(entry, start)]


def _head(row: ArchiveRow) -> bytes:
    return HEAD.pack(
        row.message_id,
        row.entry_index,
        row.arrived_ms,
        row.first_ms,
        row.settled_ms,
        min(row.acquired, U32_MAX),
        min(row.failed, U32_MAX),
        row.byte_count,
        row.outcome,
        row.full,
    )


def _batch(pieces: list[bytes]) -> bytes:
    end = 0
    ends = [_U32.pack(len(pieces))]
    for piece in pieces:
        end += len(piece)
        ends.append(_U32.pack(end))
    return b"".join([*ends, *pieces])


def heads_of(rows: Rows) -> list[Head]:
    """Return the heads of a chunk."""
    return [Head._make(head) for head in HEAD.iter_unpack(rows.heads)]
