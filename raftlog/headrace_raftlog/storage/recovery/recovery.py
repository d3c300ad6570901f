"""Reading a log back: its content, torn batches, damage.

Reading changes nothing on disk; `repair` then makes the log writable again.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.membership import can_do_without
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.group.accounting import Ledger
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.group.lost_entries import newest_membership
from headrace_raftlog.storage.group.membership_pool import MembershipPool
from headrace_raftlog.storage.recovery.group_recovery import FoundGroup
from headrace_raftlog.storage.recovery.group_resolution import Resolution, count_live
from headrace_raftlog.storage.recovery.record_replay import Quarantine, Replay
from headrace_raftlog.storage.segment.damaged_batch import read_damaged_batch
from headrace_raftlog.storage.segment.file_list import FileSpan
from headrace_raftlog.storage.segment.file_survey import Survey
from headrace_raftlog.storage.segment.record import (
    HEADER_BYTES,
    SECTOR_BYTES,
    Batch,
    head_number_at,
    read_whole_batch,
    sector_end,
)
from headrace_raftlog.storage.segment.scan import (
    claimed_bytes,
    later_head,
    named_groups,
    nonzero_end,
)
from headrace_raftlog.storage.segment.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    SegmentReader,
)


@final
class Torn:
    """The remains of the one batch that was being written."""

    def __init__(self, sequence: int, start: int, damage: int, end: int, reason: str) -> None:
        self.sequence = sequence  # its segment
        self.start = start  # where the batch began or should have
        self.damage = damage  # offset of its first record that is not intact
        self.end = end  # sector boundary behind its last byte that is not zero
        self.reason = reason  # what is missing


@final
class DamagedStretch:
    """Bytes that are not intact though they were once synced."""

    def __init__(self, sequence: int, offset: int, reason: str, groups: list[int]) -> None:
        self.sequence = sequence  # the segment
        self.offset = offset  # of the first record that is not intact
        self.reason = reason  # what is wrong there
        self.groups = groups  # ids of the groups with records there


@final
class Recovery:
    """Reads segments in order and builds the groups' indexes."""

    def __init__(self, files: Files, directory: str, reader: SegmentReader) -> None:
        self.files = files
        self.directory = directory
        self.reader = reader
        # what was found, without removed and quarantined groups
        self.groups: dict[int, StoredGroup] = {}
        self.replay = Replay()  # what the records say, before it is judged
        self.quarantined: dict[int, Quarantine] = {}  # groups whose data cannot be trusted, and why
        self.headers: list[SegmentHeader] = []  # every segment's header, in order
        self.spans: list[FileSpan] = []  # the batches of every segment that has some, in order
        self.last: Batch | None = None  # the last intact batch, or None
        self.last_in: i64 = 0  # the segment that it stands in
        # the last segment with a batch, intact or damaged; the first while none has
        self.last_sequence: i64 = 0
        self.end: i64 = SEGMENT_HEADER_BYTES  # where the next batch goes in that one
        self.torn: Torn | None = None  # what is to be cut, or None
        self.damaged: list[DamagedStretch] = []  # what is not intact elsewhere
        # names of files that may go: unfinished ones, and removed ones that came back
        self.superfluous: list[str] = []
        # headers that are damaged on disk and known from the other segments
        self.restored: dict[int, SegmentHeader] = {}
        self.ledger = Ledger(0)  # accounts of the segments
        self.memberships = MembershipPool()  # those that groups share
        self._number: i64 = 1

    @property
    def next_number(self) -> int:
        """Number of the next batch to write."""
        return self._number

    def run(self) -> None:
        """Read everything.

        Raises CorruptLogError: something is damaged, and it is not known which groups that
        concerns; OSError: a file cannot be read.
        """
        survey = Survey(self.files, self.directory, self.reader)
        survey.run()
        self.superfluous = survey.superfluous
        self.restored = survey.restored
        for sequence in sorted(self.restored):
            reason = "the segment header is damaged, and known from the other segments"
            self.damaged.append(DamagedStretch(sequence, 0, reason, []))
        for sequence in survey.sequences:
            self._read_segment(sequence, survey)
        self._resolve()

    def _read_segment(self, sequence: int, survey: Survey) -> None:
        path = self.reader.path(sequence)
        data = survey.take(sequence)
        header = survey.headers[sequence]
        span = survey.spans.get(sequence)
        self.headers.append(header)
        self.ledger.open(sequence, header.size)
        if self.last_sequence == 0:
            self.last_sequence = sequence
        if span is not None:
            self._number = span.first
        elif sequence == survey.listed_in:
            self._number = survey.first_number
        first: i64 = self._number
        position: i64 = SEGMENT_HEADER_BYTES
        salt: i64 = header.salt
        while position >= 0 and position < len(data):
            batch = read_whole_batch(data, position, self._number, salt)
            if batch.end == 0:
                position = self._judge(data, batch, header, span, path)
                continue
            if self.torn is not None:
                self._refuse_torn(f"batch {batch.number} follows in {path}")
            self.replay.take(data, batch, sequence, path)
            self.last = batch
            self.last_in = self.last_sequence = sequence
            self._number += 1
            self.end = position = batch.end
        if self._number > first:
            self.spans.append(FileSpan(sequence, first, self._number - 1))

    def _judge(
        self, data: bytes, batch: Batch, header: SegmentHeader, span: FileSpan | None, path: str
    ) -> i64:
        """Decide whether bytes that are no batch are the end, torn or damaged.

        A batch is begun only when the one before it is synced. So bytes behind a batch's own
        length, or the head of any later batch, or the list of segments, prove that it was
        acknowledged.

        Returns:
            Where to go on reading, -1 at the end of the segment's batches.
        """
        salt: i64 = header.salt
        if batch.stop:  # a record that it places was synced before it was begun
            self.last = batch
            self.last_in = header.sequence
            number: i64 = batch.number + 1
            return self._lose(data, batch, header, number, batch.follows, path)
        end = nonzero_end(data, batch.start)
        later: i64 = later_head(data, batch.start, end, batch.number, salt)
        if span is not None and self._number > span.last:
            if end > batch.start:
                self._note(header, batch, f"{batch.reason}, behind the last batch", [])
            return -1
        if later >= 0 or span is not None:
            after: i64 = span.last + 1 if span is not None else 0
            if later >= 0:
                after = head_number_at(data, later, salt)
            stop: i64 = later if later >= 0 else end
            return self._lose(data, batch, header, after, stop, path)
        if end == batch.start:
            return -1
        if self.torn is not None:
            self._refuse_torn(f"more follows in {path}")
        size = claimed_bytes(data, batch, salt)
        if size and sector_end(batch.start + size) < end:
            stop = sector_end(batch.start + size)
            return self._lose(data, batch, header, batch.number + 1, stop, path)
        self.torn = Torn(header.sequence, batch.start, batch.damage, end, batch.reason)
        return -1

    def _lose(
        self, data: bytes, batch: Batch, header: SegmentHeader, after: i64, stop: i64, path: str
    ) -> i64:
        """Pass over damaged batches up to `after`, when it is known whom they concern.

        Returns:
            Where to go on reading.
        """
        again = self._take_rest(data, batch, header, path)
        if again > 0:
            return again
        named = named_groups(data, batch.start, stop, header.salt)
        groups: set[int] = set()
        for number in range(batch.number, after):
            if number not in named:
                raise CorruptLogError(
                    path,
                    batch.damage,
                    f"{batch.reason}, and which groups batch {number} concerns is unreadable too",
                )
            groups.update(named[number])
        affected = sorted(groups)
        self._note(header, batch, batch.reason, affected)
        reason = f"{path}: damaged record at byte {batch.damage}: {batch.reason}"
        for group in affected:
            self.replay.suspect(group, header.sequence, reason)
        self._number = after
        self.last_sequence = header.sequence
        self.end = stop
        return stop

    def _take_rest(self, data: bytes, batch: Batch, header: SegmentHeader, path: str) -> i64:
        """Read the intact records of a damaged batch that can be split.

        Returns:
            Where to go on reading, 0 for a batch whose records cannot be told apart.
        """
        salt: i64 = header.salt
        later: i64 = later_head(data, batch.start + SECTOR_BYTES, len(data), batch.number, salt)
        stop: i64 = later if later >= 0 else len(data)
        known = read_damaged_batch(data, batch.start, batch.number, stop, salt)
        if known is None or known.end > stop:
            return 0
        end: i64 = known.end
        if later >= 0 and head_number_at(data, later, salt) == batch.number + 1:
            end = later  # what lies between is reserved
        reason = f"{path}: damaged record at byte {batch.damage}: {batch.reason}"
        whole = Batch(batch.number, batch.start)
        affected = set(known.unknown)
        for at in range(len(known.offsets)):
            offset = known.offsets[at]
            if known.intact[at]:
                whole.offsets = [offset]
                self.replay.take(data, whole, header.sequence, path)
            elif offset not in known.blind:
                affected.update(self.replay.take_lost(data, offset, header.sequence, path))
        for group in known.unknown:
            self.replay.suspect(group, header.sequence, reason)
        self._note(header, batch, batch.reason, sorted(affected))
        self._number = batch.number + 1
        self.last_sequence = header.sequence
        self.end = end
        return end

    def _note(self, header: SegmentHeader, batch: Batch, reason: str, groups: list[int]) -> None:
        self.damaged.append(DamagedStretch(header.sequence, batch.damage, reason, groups))

    def _refuse_torn(self, proof: str) -> None:
        torn = self.torn
        assert torn is not None
        raise CorruptLogError(
            self.reader.path(torn.sequence), torn.damage, f"{torn.reason}, and {proof}"
        )

    def _resolve(self) -> None:
        """Judge each group as a whole, now that all that is left of it is known."""
        self.quarantined = self.replay.quarantined
        for found in self.replay.groups.values():
            self._resolve_group(found)
        self.replay.groups = {}
        for tomb in self.replay.removed.values():
            self.ledger.add(tomb.location, HEADER_BYTES)
        for quarantine in self.quarantined.values():
            if quarantine.location:
                self.ledger.add(quarantine.location, quarantine.size)
        for stretch in self.damaged:
            if not self.quarantined.keys().isdisjoint(stretch.groups):
                self.ledger.segments[stretch.sequence].pinned = stretch.reason

    def _resolve_group(self, found: FoundGroup) -> None:
        view = StoredGroup(found.group, self.reader, self.ledger)
        resolution = Resolution(found, view)
        resolution.run()
        known = self.quarantined.get(found.group)
        if known is not None:
            known.kept = self._is_needed(view)
            return
        if not resolution.problem:
            self.groups[found.group] = view
            view.membership = self.memberships.share(view.membership)
            count_live(view)
            return
        at: i64 = resolution.problem_at
        reason = resolution.problem
        if at:
            reason = f"{self.reader.path(at >> 32)}: byte {at & 0xFFFFFFFF}: {reason}"
        known = Quarantine(reason, found.era, found.origin, 0)
        known.kept = self._is_needed(view)
        self.quarantined[found.group] = known

    def _is_needed(self, view: StoredGroup) -> bool:
        """Return whether a quarantined group could not continue without this node's member."""
        return not can_do_without(newest_membership(view), self.headers[0].node)
