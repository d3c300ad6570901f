"""Reading whatever is intact of a log that a node would not start with; nothing is changed.

Missing files, damaged segment headers and unreadable stretches are noted and passed over. What is
found of a group can therefore be older than what it held, or have gaps: it is good for saving
messages, and never for taking part in the group again.
"""

from __future__ import annotations

import os
from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.membership import NOBODY, Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.group.accounting import Ledger
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.group.lost_entries import newest_membership
from headrace_raftlog.storage.inspection.inspect import Damage
from headrace_raftlog.storage.recovery.group_recovery import FoundGroup
from headrace_raftlog.storage.recovery.group_resolution import Resolution
from headrace_raftlog.storage.recovery.record_replay import Replay
from headrace_raftlog.storage.segment.damaged_batch import read_damaged_batch
from headrace_raftlog.storage.segment.file_survey import read_file
from headrace_raftlog.storage.segment.record import (
    HEADER_BYTES,
    SECTOR_BYTES,
    Batch,
    decode_entry,
    head_number_at,
    read_whole_batch,
    record_bytes,
)
from headrace_raftlog.storage.segment.scan import later_head, nonzero_end
from headrace_raftlog.storage.segment.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentReader,
    decode_segment_header,
    segment_name,
    segment_sequence,
)
from headrace_raftlog.storage.writing.snapshot_store import read_snapshot


@final
class SalvagedGroup:
    """Intact rest of one group."""

    def __init__(self, view: StoredGroup, found: FoundGroup | None, problem: str) -> None:
        """Take over a view, and where its log does not come out, the records that there are."""
        self.snapshot: Snapshot | None = None  # the newest one that is intact, or None
        # why no node would serve it, '' where one would, at least once it is mended
        self.problem = problem
        self._view = view
        self._places: dict[int, tuple[int, int]] = {}
        try:
            self.snapshot = read_snapshot(view)
        except CorruptLogError as error:
            self.problem = self.problem or error.reason
        if found is not None:
            self._collect(found)
        # highest index of which anything was found
        self.last = max([int(view.last), *self._places])

    def entry(self, index: int) -> Entry:
        """Return an entry.

        Raises:
            KeyError: none was found.
            CorruptLogError: it is not intact.
            OSError: its file cannot be read.
        """
        place = self._places.get(index)
        if place is None:
            return self._view.entry(index)
        location, size = place
        reader = self._view.reader
        data = reader.read(location >> 32, location & 0xFFFFFFFF, size)
        if record_bytes(data, 0, len(data), reader.salt) != size:
            path = reader.path(location >> 32)
            raise CorruptLogError(path, location & 0xFFFFFFFF, f"entry {index} is not intact there")
        return decode_entry(data, 0)

    def _collect(self, found: FoundGroup) -> None:
        """Take the newest record of each index: of the latest era, then the last one written."""
        eras: dict[int, int] = {}
        found.set_aside()
        for strays in (found.strays, found.incoming):
            if strays is None:
                continue
            for at in range(len(strays.indexes)):
                index, era = strays.indexes[at], strays.eras[at]
                if era >= max(found.base_era, eras.get(index, 0)):
                    eras[index] = era
                    self._places[index] = (strays.locations[at], HEADER_BYTES + strays.lengths[at])


@final
class Salvage:
    """Intact rest of a log."""

    def __init__(self, files: Files, directory: str) -> None:
        # views of the groups whose logs come out; entries of them can still be damaged
        self.groups: dict[int, StoredGroup] = {}
        # of the others, a view in parts, what was found of them, and what is wrong
        self.broken: dict[int, tuple[StoredGroup, FoundGroup, str]] = {}
        self.damaged: list[Damage] = []  # what could not be read, in order
        self._files = files
        self._reader = SegmentReader(files, directory)
        self._directory = directory
        self._replay = Replay()

    def run(self) -> None:
        """Read everything.

        Raises OSError: the directory cannot be read.
        """
        sequences = [segment_sequence(name) for name in self._files.names(self._directory)]
        sequences = [sequence for sequence in sequences if sequence]
        salt = self._salt(sequences)
        self._reader.salt = salt
        before = 0
        for sequence in sequences:
            if before and sequence > before + 1:
                path = os.path.join(self._directory, segment_name(before + 1))
                self.damaged.append(Damage(path, 0, "not there; it may have been given back"))
            before = sequence
            if salt:
                self._read_segment(sequence, salt)
        ledger = Ledger(0)
        for found in self._replay.groups.values():
            self._resolve(found, ledger)

    def close(self) -> None:
        """Close the files."""
        self._reader.close()

    def membership(self, group: int) -> Membership:
        """Return the newest membership of a group that is readable."""
        view = self.groups.get(group)
        if view is None:
            view, found, _ = self.broken[group]
            if view.membership == NOBODY:
                return found.membership
        return newest_membership(view)

    def group(self, group: int) -> SalvagedGroup:
        """Return the rest of a group.

        Raises KeyError: nothing is.
        """
        view = self.groups.get(group)
        if view is not None:
            return SalvagedGroup(view, None, "")
        return SalvagedGroup(*self.broken[group])

    def _salt(self, sequences: list[int]) -> int:
        """Return the salt that the intact segment headers agree on, 0 where none is intact."""
        for sequence in sequences:
            path = self._reader.path(sequence)
            try:
                data = self._reader.read(sequence, 0, SEGMENT_HEADER_BYTES)
                return decode_segment_header(path, data).salt
            except (CorruptLogError, OSError):
                continue
        for sequence in sequences:
            self.damaged.append(Damage(self._reader.path(sequence), 0, "no header is intact"))
        return 0

    def _read_segment(self, sequence: int, salt: int) -> None:
        path = self._reader.path(sequence)
        try:
            data = read_file(self._files, path)
        except OSError as error:
            self.damaged.append(Damage(path, 0, str(error)))
            return
        try:
            decode_segment_header(path, data)
        except CorruptLogError as error:
            self.damaged.append(Damage(path, error.offset, error.reason))
        position: i64 = SEGMENT_HEADER_BYTES
        number: i64 = 0
        while position < len(data):
            number = head_number_at(data, position, salt) or number
            batch = read_whole_batch(data, position, number, salt)
            if batch.end:
                self._replay.take(data, batch, sequence, path)
                position = batch.end
            else:
                position = self._pass(data, batch, sequence, path, salt)
                if position < 0:
                    return
            number += 1

    def _pass(self, data: bytes, batch: Batch, sequence: int, path: str, salt: int) -> i64:
        """Read the intact records of a damaged batch; return where the next one can begin."""
        end = nonzero_end(data, batch.start)
        if end == batch.start:
            return -1
        later: i64 = later_head(data, batch.start + SECTOR_BYTES, end, 0, salt)
        stop: i64 = later if later >= 0 else end
        self.damaged.append(Damage(path, batch.damage, batch.reason))
        known = read_damaged_batch(data, batch.start, batch.number, stop, salt)
        if known is None:
            return batch.follows if batch.stop else later
        one = Batch(batch.number, batch.start)
        for at in range(len(known.offsets)):
            one.offsets = [known.offsets[at]]
            if known.intact[at]:
                self._replay.take(data, one, sequence, path)
            elif known.offsets[at] not in known.blind:
                self._replay.take_lost(data, known.offsets[at], sequence, path)
        following = later >= 0 and head_number_at(data, later, salt) == batch.number + 1
        return later if following else known.end

    def _resolve(self, found: FoundGroup, ledger: Ledger) -> None:
        known = self._replay.quarantined.get(found.group)
        view = StoredGroup(found.group, self._reader, ledger)
        resolution = Resolution(found, view)
        resolution.run()
        if not resolution.problem:
            self.groups[found.group] = view
            return
        self.broken[found.group] = (view, found, known.reason if known else resolution.problem)
