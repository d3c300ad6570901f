"""Rows of an archive, and how a page of them is kept as bytes.

    n | n x (how many rows - 1 | u8 outcome | u8 flags | entry | position | message id | bytes
        | arrived | first delivered | settled | acquired | failed)

All but the two bytes are numbers in groups of 7 bits. One item stands for rows in a row of which
each has the next position and message id, and everything else as the one before: what a consumer
acknowledges in one go. Log positions, ids and times are differences with a sign (`zigzag`) to those
of the row before the item; `first delivered` is 0 for never or not known, else 1 more than the
difference to the arrival. The flag that a row is the last of its entry is that of an item's last.
"""

from __future__ import annotations

from array import array
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from headrace_broker.core.queue.messages.batch_page import write_varint
from headrace_broker.core.queue.messages.byte_reader import ByteReader
from headrace_broker.core.queue.messages.effect import (
    REASON_DELIVERY_LIMIT,
    REASON_EXPIRED,
    REASON_MAXLEN,
    REASON_NAMES,
    REASON_REJECTED,
    Acquired,
)

OUTCOME_ACKED: Final = 1
OUTCOME_REJECTED: Final = 2  # there was no dead-letter exchange; as with the next three
OUTCOME_EXPIRED: Final = 3
OUTCOME_DROPPED: Final = 4  # there were too many
OUTCOME_DELIVERY_LIMIT: Final = 5
OUTCOME_REPLACED: Final = 6  # by a newer message with the same key
OUTCOME_PURGED: Final = 7
OUTCOME_REMOVED: Final = 8  # by its id
OUTCOME_DEAD_LETTERED: Final = 8  # and the REASON constant: 9 to 12

OUTCOMES: Final = {  # what is told: the outcome, and why where that does not say it
    OUTCOME_ACKED: ("acked", ""),
    OUTCOME_REJECTED: ("rejected", ""),
    OUTCOME_EXPIRED: ("expired", ""),
    OUTCOME_DROPPED: ("dropped", "maxlen"),
    OUTCOME_DELIVERY_LIMIT: ("dropped", "delivery_limit"),
    OUTCOME_REPLACED: ("dropped", "replaced"),
    OUTCOME_PURGED: ("purged", ""),
    OUTCOME_REMOVED: ("purged", "removed"),
    OUTCOME_DEAD_LETTERED + REASON_REJECTED: ("dead-lettered", REASON_NAMES[REASON_REJECTED]),
    OUTCOME_DEAD_LETTERED + REASON_EXPIRED: ("dead-lettered", REASON_NAMES[REASON_EXPIRED]),
    OUTCOME_DEAD_LETTERED + REASON_MAXLEN: ("dead-lettered", REASON_NAMES[REASON_MAXLEN]),
    OUTCOME_DEAD_LETTERED + REASON_DELIVERY_LIMIT: (
        "dead-lettered",
        REASON_NAMES[REASON_DELIVERY_LIMIT],
    ),
}

_FULL: Final = 1  # flags
_LAST: Final = 2


def outcome_of(reason: i64) -> i64:
    """Return how a message ends that dies for a REASON and has no dead-letter exchange."""
    if reason == REASON_REJECTED:
        return OUTCOME_REJECTED
    if reason == REASON_EXPIRED:
        return OUTCOME_EXPIRED
    return OUTCOME_DROPPED if reason == REASON_MAXLEN else OUTCOME_DELIVERY_LIMIT


@final
class ArchiveRow:
    """Archived message; the rest stands in its log entry."""

    def __init__(self, message: Acquired, outcome: i64, full: bool) -> None:
        self.entry_index = message.entry_index  # log position of its ENQUEUE command
        self.position = message.position  # which message of that command's batch, from 0
        self.message_id = message.message_id  # the queue's
        self.byte_count = message.byte_count  # of its body
        self.arrived_ms = message.arrived_ms  # when it became available first
        self.first_ms: i64 = 0  # when it was delivered first, 0 for never or not known
        self.settled_ms: i64 = 0  # when it was settled
        self.acquired = message.acquired_count  # how often it was delivered
        self.failed = message.delivery_count  # how many of these deliveries failed
        self.outcome = outcome  # an OUTCOME constant
        self.full = full  # whoever reads the row may have the body
        self.last = False  # the last row of its entry, of which nothing else is needed

    def is_followed_by(self, row: ArchiveRow) -> bool:
        """Return whether one item stands for both rows."""
        return (
            self.entry_index == row.entry_index
            and self.position + 1 == row.position
            and self.message_id + 1 == row.message_id
            and self.byte_count == row.byte_count
            and self.arrived_ms == row.arrived_ms
            and self.first_ms == row.first_ms
            and self.settled_ms == row.settled_ms
            and self.acquired == row.acquired
            and self.failed == row.failed
            and self.outcome == row.outcome
            and self.full == row.full
            and not self.last
        )

    def __repr__(self) -> str:
        name, reason = OUTCOMES[int(self.outcome)]
        return (
            f"ArchiveRow(#{self.message_id} at {self.entry_index}/{self.position}, {name} {reason},"
            f" {self.arrived_ms} {self.first_ms} {self.settled_ms},"
            f" {self.acquired} {self.failed} {self.full} {self.last})"
        )


def encode_rows(rows: list[ArchiveRow], start: i64) -> bytes:
    """Encode the rows of a list from index `start` on."""
    stop: i64 = len(rows)
    items: i64 = 0
    for at in range(start, stop):
        if at == start or not rows[at - 1].is_followed_by(rows[at]):
            items += 1
    out = BytesWriter()
    write_varint(out, items)
    before = _nothing()
    at = start
    while at < stop:
        first = rows[at]
        after = at + 1
        while after < stop and rows[after - 1].is_followed_by(rows[after]):
            after += 1
        write_varint(out, after - at - 1)
        _write_item(out, first, rows[after - 1], before)
        before = rows[after - 1]
        at = after
    return out.getvalue()


def _nothing() -> ArchiveRow:
    """Return what stands before the first row."""
    return ArchiveRow(Acquired(0, 0, 0, 0, 0, 0), 0, False)


def _write_item(out: BytesWriter, row: ArchiveRow, last: ArchiveRow, before: ArchiveRow) -> None:
    out.append(int(row.outcome))
    out.append((_FULL if row.full else 0) | (_LAST if last.last else 0))
    write_varint(out, zigzag(row.entry_index - before.entry_index))
    write_varint(out, row.position)
    write_varint(out, zigzag(row.message_id - before.message_id))
    write_varint(out, row.byte_count)
    write_varint(out, zigzag(row.arrived_ms - before.arrived_ms))
    write_varint(out, zigzag(row.first_ms - row.arrived_ms) + 1 if row.first_ms > 0 else 0)
    write_varint(out, zigzag(row.settled_ms - before.settled_ms))
    write_varint(out, row.acquired)
    write_varint(out, row.failed)


def decode_rows(data: bytes, rows_max: i64) -> list[ArchiveRow]:
    """Decode what `encode_rows` gave, at most `rows_max`; LookupError for anything else."""
    reader = ByteReader(data, 0)
    rows: list[ArchiveRow] = []
    before = _nothing()
    left = reader.varint()
    while left > 0:
        left -= 1
        more = reader.varint()
        row = _read_item(reader, before)
        if reader.failed or more >= rows_max - len(rows):
            raise LookupError(f"an archive's row {len(rows)} of at most {rows_max}")
        last = row.last
        row.last = False
        while more > 0:
            rows.append(row)
            row = _next_of(row)
            more -= 1
        row.last = last
        rows.append(row)
        before = row
    if not reader.at_end():
        raise LookupError("bytes after the last row of an archive")
    return rows


def _read_item(reader: ByteReader, before: ArchiveRow) -> ArchiveRow:
    row = _nothing()
    row.outcome = reader.u8()
    flags = reader.u8()
    row.full = flags & _FULL != 0
    row.last = flags & _LAST != 0
    row.entry_index = before.entry_index + unzigzag(reader.varint())
    row.position = reader.varint()
    row.message_id = before.message_id + unzigzag(reader.varint())
    row.byte_count = reader.varint()
    row.arrived_ms = before.arrived_ms + unzigzag(reader.varint())
    first = reader.varint()
    row.first_ms = row.arrived_ms + unzigzag(first - 1) if first > 0 else 0
    row.settled_ms = before.settled_ms + unzigzag(reader.varint())
    row.acquired = reader.varint()
    row.failed = reader.varint()
    if row.outcome not in OUTCOMES or row.entry_index <= 0 or flags > (_FULL | _LAST):
        raise LookupError(f"a row of entry {row.entry_index} with outcome {row.outcome}")
    return row


def _next_of(row: ArchiveRow) -> ArchiveRow:
    """Return the row behind one in the same item."""
    following = _nothing()
    following.entry_index = row.entry_index
    following.position = row.position + 1
    following.message_id = row.message_id + 1
    following.byte_count = row.byte_count
    following.arrived_ms = row.arrived_ms
    following.first_ms = row.first_ms
    following.settled_ms = row.settled_ms
    following.acquired = row.acquired
    following.failed = row.failed
    following.outcome = row.outcome
    following.full = row.full
    return following


def read_row_entries(data: bytes, into: array[int]) -> None:
    """Add the log positions of encoded rows; one item's once."""
    reader = ByteReader(data, 0)
    entry: i64 = 0
    left = reader.varint()
    while left > 0:
        left -= 1
        reader.varint()
        reader.position += 2
        entry += unzigzag(reader.varint())
        into.append(entry)
        for _ in range(8):
            reader.varint()


def zigzag(value: i64) -> i64:
    """Return a number that is small for small numbers of either sign, below 2**62."""
    return -2 * value - 1 if value < 0 else 2 * value


def unzigzag(value: i64) -> i64:
    """Return what `zigzag` was given."""
    return -((value + 1) >> 1) if value & 1 else value >> 1
