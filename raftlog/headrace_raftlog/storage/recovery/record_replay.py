"""Sorting the records of all segments by group, in the order they were written.

Records that only a later release knows are refused here.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.entry import ENTRY_CONFIG
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.membership import decode_membership
from headrace_raftlog.storage.group.snapshot_record import decode_final, part_serial
from headrace_raftlog.storage.recovery.group_recovery import FoundGroup
from headrace_raftlog.storage.segment.record import (
    FLAG_COPY,
    HEADER_BYTES,
    RECORD_BASE,
    RECORD_ENTRY,
    RECORD_FILES,
    RECORD_GONE,
    RECORD_INCOMING,
    RECORD_NAMES,
    RECORD_PART,
    RECORD_PLACED,
    RECORD_QUARANTINE,
    RECORD_RESERVED,
    RECORD_SNAPSHOT,
    RECORD_STATE,
    RECORD_TOMBSTONE,
    Batch,
    decode_state,
    record_era_at,
    record_fields,
    record_index_at,
    record_is_copy_at,
    record_length_at,
    record_payload_at,
    record_term_at,
)

_OF_NO_GROUP: Final = (RECORD_FILES, RECORD_GONE, RECORD_RESERVED, RECORD_PLACED)


@final
class Tombstone:
    """A group that was removed, while files may still hold records of it."""

    def __init__(self, origin: i64, end: i64, location: i64) -> None:
        self.origin = origin  # no segment before this one has records of the group
        self.end = end  # nor has any behind this one, in which the group was removed
        self.location = location  # of the record that says so; 0 while it is not durable


@final
class Quarantine:
    """A group whose data cannot be trusted."""

    def __init__(self, reason: str, era: i64, origin: i64, sequence: i64) -> None:
        self.reason = reason  # what is wrong, with file and offset
        self.era = era  # highest era found of it
        self.origin = origin  # no segment before this one has records of the group
        # segment with the damage, 0 when it is only known from an earlier start
        self.sequence = sequence
        self.location: i64 = 0  # of the record that says so, 0 while it is not durable
        self.size: i64 = 0  # bytes of that record
        self.kept = False  # whether the group could not go on without what is left of it here


@final
class Replay:
    """Takes the batches of a log in order."""

    def __init__(self) -> None:
        self.groups: dict[int, FoundGroup] = {}  # what was found, by group, without removed ones
        self.removed: dict[int, Tombstone] = {}  # groups that were removed
        # groups found damaged, now or at an earlier start, and not begun anew since
        self.quarantined: dict[int, Quarantine] = {}

    def suspect(self, group: i64, sequence: i64, reason: str) -> None:
        """Note that records of a group are not readable."""
        if group in self.removed or group in self.quarantined:
            return
        found = self.groups.get(group)
        origin: i64 = found.origin if found is not None else sequence
        era: i64 = found.era if found is not None else 0
        self.quarantined[group] = Quarantine(reason, era, origin, sequence)

    def take(self, data: bytes, batch: Batch, sequence: i64, path: str) -> None:
        """Take in the records of one batch.

        Raises CorruptLogError: a record is intact and yet none that this release knows.
        """
        groups = self.groups
        base: i64 = sequence << 32
        for start in batch.offsets:
            length, record_type, kind, flags, era, group, term, index = record_fields(data, start)
            if record_type == RECORD_ENTRY:
                found = groups.get(group)
                if found is None:
                    found = self._find(group, sequence)
                    if found is None:
                        continue
                if (
                    index == found.last + 1
                    and era == found.tip_era
                    and term == found.tip_term
                    and kind != ENTRY_CONFIG
                    and flags == 0
                ):
                    found.locations.append(base | start)
                    found.lengths.append(length)
                    found.last = index
                    continue
                copy = flags & FLAG_COPY != 0
                found.take_entry(era, index, term, base | start, length, kind, copy)
            elif record_type == RECORD_TOMBSTONE and group in self.removed:
                self.removed[group].location = base | start
            elif record_type not in _OF_NO_GROUP:
                found = self._find(group, sequence)
                if found is None:
                    continue
                if record_type == RECORD_STATE:
                    found.take_state(era, decode_state(data, start), base | start)
                else:
                    self._take_other(found, record_type, data, start, base | start, path)

    def take_lost(self, data: bytes, start: i64, sequence: i64, path: str) -> list[int]:
        """Take in a record that is not intact but for its header.

        An entry keeps its place; its body has to come from elsewhere. Of a hard state the vote is
        lost: the member takes the next term, in which it has given none. Any other record is missed
        when nothing newer took its place.

        Returns:
            Groups concerned: none or one.
        """
        length, record_type, kind, flags, era, group, term, index = record_fields(data, start)
        if record_type in _OF_NO_GROUP:
            return []
        location: i64 = (sequence << 32) | start
        reason = (
            f"{path}: damaged record at byte {start}: {RECORD_NAMES[record_type]} of group {group}"
        )
        if record_type in (RECORD_TOMBSTONE, RECORD_QUARANTINE):
            self.suspect(group, sequence, reason)
            return [group]
        found = self._find(group, sequence)
        if found is None:
            return []
        if record_type == RECORD_ENTRY:
            found.lost.append((index, location))
            found.take_entry(era, index, term, location, length, kind, flags & FLAG_COPY != 0)
        elif record_type == RECORD_INCOMING:
            found.lost.append((index, location))
            found.take_incoming(era, index, term, location, length)
        elif record_type == RECORD_STATE:
            found.take_lost_state(era, term, index, location)
        elif record_type == RECORD_BASE:
            found.lost_base_era = max(found.lost_base_era, era)
            found.lost_reason = reason
        elif record_type == RECORD_SNAPSHOT:
            found.lost_snapshots.append((era, index, term))
            found.lost_reason = reason
        return [group]

    def _find(self, group: i64, sequence: i64) -> FoundGroup | None:
        """Return the findings about a group, None if it was removed."""
        found = self.groups.get(group)
        if found is None and group not in self.removed:
            found = FoundGroup(group, sequence)
            self.groups[group] = found
        return found

    def _take_other(
        self,
        found: FoundGroup,
        record_type: i64,
        data: bytes,
        offset: i64,
        location: i64,
        path: str,
    ) -> None:
        era: i64 = record_era_at(data, offset)
        index: i64 = record_index_at(data, offset)
        term: i64 = record_term_at(data, offset)
        size: i64 = HEADER_BYTES + record_length_at(data, offset)
        group = found.group
        if record_type == RECORD_TOMBSTONE:
            end: i64 = term if term else location >> 32
            self.removed[group] = Tombstone(index, end, location)
            self.groups.pop(group, None)
            self.quarantined.pop(group, None)
            return
        try:
            if record_type == RECORD_BASE:
                payload = record_payload_at(data, offset)
                member = int.from_bytes(payload[:8], "little")
                found.take_base(era, member, decode_membership(payload[8:]), location, size)
                self._begin(group, era, index, record_is_copy_at(data, offset))
            elif record_type == RECORD_PART:
                serial = part_serial(record_payload_at(data, offset))
                found.take_part(era, serial, term, location, size)
            elif record_type == RECORD_SNAPSHOT:
                stored = decode_final(record_payload_at(data, offset), index, term)
                stored.location = location
                stored.length = size
                found.take_snapshot(era, stored)
            elif record_type == RECORD_INCOMING:
                found.take_incoming(era, index, term, location, size - HEADER_BYTES)
            elif record_type == RECORD_QUARANTINE:
                if era >= found.base_era:
                    found.era = max(found.era, era)
                    reason = record_payload_at(data, offset).decode(errors="replace")
                    known = Quarantine(reason, found.era, found.origin, 0)
                    known.location = location
                    known.size = size
                    self.quarantined[group] = known
            else:
                raise CorruptLogError(path, offset, f"record type {record_type} is not known")
        except ValueError as error:
            raise CorruptLogError(path, offset, f"the record cannot be read: {error}") from error

    def _begin(self, group: i64, era: i64, since: i64, copy: bool) -> None:
        """A group that was begun after it was found damaged is whole again.

        A copy stands behind damage that the original may have stood before; the segment it names
        was the last one complete when the group was begun.
        """
        known = self.quarantined.get(group)
        if known is None:
            return
        if known.sequence and copy and known.sequence > since:
            return
        if known.sequence or era > known.era:
            del self.quarantined[group]
