"""The archive of the naive queue: a list of rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.broker.core.naive_parts import Message, Told

from headrace_broker.core.queue.command.archive_command import (
    ArchiveCommand,
    CloseArchive,
    CommitArchive,
    OpenArchive,
)
from headrace_broker.core.queue.messages.settings import ARCHIVE_FULL, QueueSettings
from headrace_broker.core.queue.state import archive_effect as ae
from headrace_broker.core.queue.state.archive_row import ArchiveRow

Row = tuple[int | bool, ...]
ACKED, REPLACED, PURGED, REMOVED, DEAD_LETTERED = 1, 6, 7, 8, 8
BYTES, SETTLED = 3, 6  # places in a row


@dataclass
class Reader:
    epoch: int = 0
    openers: dict[bytes, int] = field(default_factory=dict)
    committed: int = 0
    committed_ms: int = 0

    def told(self, name: bytes) -> tuple[object, ...]:
        return name, self.epoch, self.committed, self.committed_ms


def told_row(row: ArchiveRow) -> Row:
    return (
        *(row.entry_index, row.position, row.message_id, row.byte_count),
        *(row.arrived_ms, row.first_ms, row.settled_ms),
        *(row.acquired, row.failed, row.outcome, row.full),
    )


class NaiveArchive:
    """Rows by index, and who reads them."""

    def __init__(self) -> None:
        self.settings = QueueSettings()
        self.now = 0
        self.rows: dict[int, Row] = {}
        self.next_row = 0
        self.fresh_rows: list[Row] = []
        self.readers: dict[bytes, Reader] = {}
        self.reader_epochs = 0
        self.archive_since = 0

    def keep(self, message: Message, outcome: int) -> None:
        """Keep a row of a message that has left; rows of a command are in any order."""
        if self.settings.archive:
            self.fresh_rows.append(
                (
                    *(message.entry, message.position, message.number, message.byte_count),
                    *(message.arrived, message.first, self.now),
                    *(message.acquired + (message.taken > 0), message.failed, outcome),
                    self.settings.archive == ARCHIVE_FULL,
                )
            )

    def order_rows(self, first: int, found: list[Row]) -> None:
        """Order the rows of a command as the machine did, which has these from `first` on."""
        new = found[max(self.next_row - first, 0) :]
        assert len(new) <= len(self.fresh_rows)
        for row in new:
            self.fresh_rows.remove(row)  # one that the machine made up is not there
        self.next_row += len(self.fresh_rows)  # these went at once
        self.fresh_rows = []
        for row in new:
            self.rows[self.next_row] = row
            self.next_row += 1
        assert first + len(found) == self.next_row
        assert found == [self.rows[at] for at in range(first, self.next_row)]
        assert not self.are_too_many(first)
        if first - 1 in self.rows:
            assert self.are_too_many(first - 1)
        self.rows = {at: row for at, row in self.rows.items() if at >= first}

    def are_too_many(self, first: int) -> bool:
        there = [row for at, row in self.rows.items() if at >= first]
        settings = self.settings
        if not there:
            return False
        age = int(settings.archive_max_age_ms)
        return (
            len(there) > settings.archive_max_messages
            or sum(row[BYTES] for row in there) > settings.archive_max_bytes
            or 0 <= age <= self.now - there[0][SETTLED]
            or first < min((reader.committed for reader in self.readers.values()), default=0)
        )

    def do_archive_command(self, command: ArchiveCommand, first: int, told: Told) -> None:
        reader = self.readers.get(command.name)
        status = ae.ARCHIVE_OK
        following = self.next_row + len(self.fresh_rows)
        if isinstance(command, OpenArchive) and not self.archive_since:
            status = ae.ARCHIVE_OFF
        elif isinstance(command, OpenArchive):
            if reader is None:
                reader = Reader(committed=first, committed_ms=self.now)
                self.readers[command.name] = reader
            if command.opener not in reader.openers:
                self.reader_epochs += 1
                reader.epoch = reader.openers[command.opener] = self.reader_epochs
                reader.openers = dict(list(reader.openers.items())[-8:])
            elif reader.openers[command.opener] != reader.epoch:
                status = ae.ARCHIVE_FENCED
        elif reader is None:
            closing = isinstance(command, CloseArchive)
            status = ae.ARCHIVE_OK if closing else ae.ARCHIVE_UNKNOWN_GROUP
        elif command.epoch not in {
            reader.epoch,
            0 if isinstance(command, CloseArchive) else reader.epoch,
        }:
            status = ae.ARCHIVE_FENCED
        elif isinstance(command, CloseArchive):
            del self.readers[command.name]
            reader = None
        elif isinstance(command, CommitArchive):
            if command.up_to > following:
                status = ae.ARCHIVE_NOT_YET
            else:
                reader.committed = max(reader.committed, int(command.up_to))
                reader.committed_ms = self.now
        answer = None if reader is None else reader.told(command.name)
        told.answers.append(("archive", command.request, status, answer, first, following))
