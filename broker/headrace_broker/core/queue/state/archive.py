"""The archive of a queue: settled messages that are kept until they were read.

Its rows have ascending indexes from 0 on; they come at the end and go from the front, and a row
never changes its index. *Groups* read it and say how far they have come; what all of them are done
with is let go, and what is too old or too much is in any case. A group is opened under an *epoch*
that grows within the archive, and an owner with an older one is refused.

An entry of the log that has rows lives until the last of them has gone. Which that is is known when
the entry's last other message leaves: mostly it is archived then, and its row says so.
"""

from __future__ import annotations

from array import array
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.effect import Acquired, Effect, EntryDead
from headrace_broker.core.queue.messages.settings import ARCHIVE_FULL, ARCHIVE_NONE, QueueSettings
from headrace_broker.core.queue.state.archive_effect import ArchiveGroupInfo, ArchiveInfo
from headrace_broker.core.queue.state.archive_row import (
    ArchiveRow,
    decode_rows,
    encode_rows,
    read_row_entries,
)
from headrace_broker.model.limits import LEASE_OPENERS_KEPT_MAX

PAGE_ROWS: Final = 1024  # a page ends before an index that this divides


@final
class ArchivePage:
    """Consecutive rows: a list, or bytes."""

    def __init__(self, start: i64) -> None:
        self.start = start  # index of the first row
        self.count: i64 = 0  # of the rows
        self.rows: list[ArchiveRow] = []  # those of an open page
        self.packed = b""  # bytes of the rows when the page is packed, else b""

    def open(self) -> None:
        """Turn the bytes back into rows."""
        if self.packed:
            self.rows = self.unpack()
            self.packed = b""

    def pack(self) -> None:
        """Turn the rows into bytes."""
        self.packed = encode_rows(self.rows, 0)
        self.rows = []

    def unpack(self) -> list[ArchiveRow]:
        """Return the rows, not to be changed; a packed page stays packed."""
        return decode_rows(self.packed, PAGE_ROWS) if self.packed else self.rows


@final
class ArchiveGroup:
    """Reader of an archive."""

    def __init__(self, name: bytes) -> None:
        self.name = name  # unique in the archive
        self.epoch: i64 = 0  # that of who opened it last
        self.openers: dict[bytes, int] = {}  # newest requests that opened it -> epoch
        self.committed: i64 = 0  # index of the first row that it is not done with
        self.committed_ms: i64 = 0  # when it said so, or was opened

    def open(self, opener: bytes, epoch: i64) -> None:
        """Fence the group's previous owner."""
        self.epoch = epoch
        self.openers[opener] = epoch
        if len(self.openers) > LEASE_OPENERS_KEPT_MAX:
            del self.openers[next(iter(self.openers))]

    def info(self) -> ArchiveGroupInfo:
        """Return its info."""
        return ArchiveGroupInfo(self.name, self.epoch, self.committed, self.committed_ms)


@final
class Archive:
    """The archived rows, and their readers."""

    def __init__(self) -> None:
        self.mode: i64 = ARCHIVE_NONE  # ARCHIVE constant, for what is settled from now on
        # when the queue was told first to have an archive, 0 for never: tells it from any other
        # queue's of that name, even in a cluster that was made anew
        self.since_ms: i64 = 0
        self.now_ms: i64 = 0  # time of the command that is carried out
        self.first: i64 = 0  # index of the first row that there is
        self.following: i64 = 0  # index of the next row
        self.byte_count: i64 = 0  # of the bodies of the messages that have rows
        self.first_ms: i64 = 0  # when the message of the first row was settled, 0 without rows
        self.last_ms: i64 = 0  # and of the last
        self.appended: i64 = 0  # rows that this command has added
        self.pages: list[ArchivePage] = []  # of rows, which leave the first, open one
        self.living: dict[int, int] = {}  # entries needed otherwise -> index of their last row
        self.ended: dict[int, int] = {}  # row -> entry that ends with it, if the row does not say
        self.delivered: dict[int, int] = {}  # ids that came back -> when delivered first
        self.groups: dict[bytes, ArchiveGroup] = {}  # by name, in the order in which they were made
        self.epochs: i64 = 0  # the last epoch that was given
        self.floor: i64 = 0  # no group needs rows before this index

    @property
    def count(self) -> i64:
        """Number of rows that there are."""
        return self.following - self.first

    def configure(self, mode: i64, now_ms: i64) -> None:
        """Archive settled messages in another way from now on; existing rows stay as they are."""
        self.mode = mode
        if mode == ARCHIVE_NONE:
            self.delivered.clear()
        elif self.since_ms == 0:
            self.since_ms = max(now_ms, 1)

    # In

    def note_return(self, message: Acquired) -> None:
        """Remember when a message was delivered first that goes back to where it stood."""
        if message.acquired_count == 0 and message.acquired_ms > 0:
            self.delivered[message.message_id] = message.acquired_ms

    def append(self, message: Acquired, outcome: i64, last: bool) -> None:
        """Add the row of a settled message; `last` if its entry is not needed otherwise."""
        row = ArchiveRow(message, outcome, self.mode == ARCHIVE_FULL)
        row.settled_ms = self.now_ms
        row.last = last
        first: i64 = 0
        if self.delivered:
            first = self.delivered.pop(message.message_id, 0)
        if message.acquired_ms > 0:
            row.acquired += 1
            if message.acquired_count == 0:
                first = message.acquired_ms
        row.first_ms = first
        index = self.following
        if not last:
            self.living[message.entry_index] = index
        elif self.living:
            self.living.pop(message.entry_index, None)
        self._put(row)
        self.appended += 1

    def _put(self, row: ArchiveRow) -> None:
        index = self.following
        if not self.pages or index % PAGE_ROWS == 0:
            self.pages.append(ArchivePage(index))
        if self.first == index:
            self.first_ms = row.settled_ms
        page = self.pages[-1]
        page.rows.append(row)
        page.count += 1
        self.byte_count += row.byte_count
        self.last_ms = row.settled_ms
        self.following = index + 1
        if self.following % PAGE_ROWS == 0 and len(self.pages) > 1:
            page.pack()

    def entry_left(self, entry_index: i64, effects: list[Effect]) -> None:
        """Note that the last message of an entry has left without a row; tell when it is dead."""
        index = self.living.pop(entry_index, -1) if self.living else -1
        if index < 0:
            effects.append(EntryDead(entry_index))
        else:
            self.ended[index] = entry_index

    # Out

    def is_over(self, settings: QueueSettings, now_ms: i64) -> bool:
        """Return whether the first row is to go."""
        count = self.count
        if count == 0:
            return False
        return (
            self.first < self.floor
            or count > settings.archive_max_messages
            or self.byte_count > settings.archive_max_bytes
            or 0 <= settings.archive_max_age_ms <= now_ms - self.first_ms
        )

    def drop_first(self, effects: list[Effect]) -> None:
        """Let the first row go; tell when its entry is dead."""
        page = self.pages[0]
        page.open()
        index = self.first
        at = index - page.start
        row = page.rows[at]
        self.first = index + 1
        self.byte_count -= row.byte_count
        if row.last:
            effects.append(EntryDead(row.entry_index))
        elif index in self.ended:
            del self.ended[index]
            effects.append(EntryDead(row.entry_index))
        elif self.living.get(row.entry_index, -1) == index:
            del self.living[row.entry_index]
        if at + 1 == page.count:
            del self.pages[0]
        self._look_at_first()

    def _look_at_first(self) -> None:
        if not self.pages:
            self.first_ms = 0
            self.last_ms = 0
            return
        page = self.pages[0]
        page.open()
        self.first_ms = page.rows[self.first - page.start].settled_ms

    # Groups

    def find_floor(self) -> None:
        """Find what no group needs; without groups everything is kept."""
        self.floor = 0
        for group in self.groups.values():
            if self.floor == 0 or group.committed < self.floor:
                self.floor = group.committed
            if self.floor == 0:
                return

    # Looking

    def rows_from(self, start: i64, limit: i64) -> list[ArchiveRow]:
        """Return up to `limit` rows from an index on, at which there is one; not to be changed."""
        found: list[ArchiveRow] = []
        stop = min(start + limit, self.following)
        if not self.first <= start < stop:
            return found
        number = start // PAGE_ROWS - self.pages[0].start // PAGE_ROWS
        while start < stop:
            page = self.pages[number]
            rows = page.unpack()
            some = min(stop - start, page.start + page.count - start)
            found.extend(rows[start - page.start : start - page.start + some])
            start += some
            number += 1
        return found

    def info(self) -> ArchiveInfo:
        """Return its info."""
        groups = [group.info() for group in self.groups.values()]
        return ArchiveInfo(
            self.mode,
            self.since_ms,
            self.first,
            self.following,
            self.byte_count,
            self.first_ms,
            self.last_ms,
            groups,
        )

    def entries(self) -> array[int]:
        """Return the log positions of the entries that have rows, ascending, each once."""
        found: array[int] = array("Q")
        for page in self.pages:
            if page.packed:
                read_row_entries(page.packed, found)
            else:
                for at in range(max(self.first - page.start, 0), page.count):
                    found.append(page.rows[at].entry_index)
        once: array[int] = array("Q")
        before: i64 = 0
        for entry_index in sorted(found):
            if entry_index != before:
                once.append(entry_index)
                before = entry_index
        return once

    # Snapshots

    def packed_pages(self) -> list[bytes]:
        """Return the bytes of all pages, which depend on the rows alone."""
        return [
            page.packed or encode_rows(page.rows, max(self.first - page.start, 0))
            for page in self.pages
        ]

    def restore(self, first: i64, pages: list[bytes], alive: dict[int, int]) -> None:
        """Take over `packed_pages` from index `first`; LookupError for malformed ones."""
        self.first = first
        self.following = first
        open_rows: dict[int, int] = {}  # entry -> its last row, which does not say that it ends
        for number in range(len(pages)):
            rows = decode_rows(pages[number], PAGE_ROWS)
            room = PAGE_ROWS - self.following % PAGE_ROWS
            if not rows or len(rows) > room or (number + 1 < len(pages) and len(rows) < room):
                raise LookupError(f"page {number} of an archive with {len(rows)} rows")
            for row in rows:
                if row.last:
                    open_rows.pop(row.entry_index, None)
                else:
                    open_rows[row.entry_index] = self.following
                self._put(row)
        for entry_index, index in open_rows.items():
            if entry_index in alive:
                self.living[entry_index] = index
            else:
                self.ended[index] = entry_index
