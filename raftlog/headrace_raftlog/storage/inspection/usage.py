"""Use of a log's disk space: `headrace log stat`."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.recovery.recovery import Recovery
from headrace_raftlog.storage.segment.segment import SegmentReader


@dataclass(frozen=True, slots=True)
class FileUsage:
    """One segment."""

    path: str  # file
    size: int  # bytes
    live: int  # bytes of records that are needed
    flags: tuple[str, ...]  # words: `active`, `torn`, `damaged`, `pinned`


@dataclass(frozen=True, slots=True)
class GroupUsage:
    """One group."""

    group: int  # incarnation id
    entries: int  # entries behind its snapshot
    kept: int  # live entries up to its snapshot
    data_bytes: int  # bytes of their records
    snapshot_index: int  # where its snapshot stands, 0 for none
    snapshot_bytes: int
    last_index: int  # last index of its log
    last_term: int  # term of the last entry


@dataclass(frozen=True, slots=True)
class LogUsage:
    """A whole log."""

    files: list[FileUsage]  # by sequence
    groups: list[GroupUsage]  # those with most bytes first
    group_count: int  # number of groups that would be served
    quarantined: dict[int, str]  # groups that would not, and why
    size: int  # bytes of all segments
    live: int  # bytes that are needed
    bound: int  # bytes that the segments may take: twice what is needed, and two files


def _group_usage(view: StoredGroup) -> GroupUsage:
    first, last = view.first_index(), view.last_index()
    indexes = [*view.live_indexes(), *range(first, last + 1)]
    stored = view.snapshot
    return GroupUsage(
        group=view.group,
        entries=last + 1 - first,
        kept=len(view.live_indexes()),
        data_bytes=sum(view.record_bytes_of(index) for index in indexes),
        snapshot_index=view.snapshot_index,
        snapshot_bytes=stored.size if stored is not None else 0,
        last_index=last,
        last_term=view.term_at(last),
    )


def measure(directory: str, top: int = 20, files: Files | None = None) -> LogUsage:
    """Read a log and say what its space is used for; nothing is changed.

    Args:
        directory: of the segments.
        top: groups to describe.
        files: the file system, for tests.

    Raises CorruptLogError: a node would not start with this log; OSError: the directory or a file
    cannot be read.
    """
    disk = files if files is not None else Files()
    reader = SegmentReader(disk, directory)
    recovery = Recovery(disk, directory, reader)
    try:
        recovery.run()
    finally:
        reader.close()
    ledger = recovery.ledger
    damaged = {stretch.sequence for stretch in recovery.damaged}
    found: list[FileUsage] = []
    for sequence, use in sorted(ledger.segments.items()):
        marks = {
            "active": sequence == recovery.last_sequence,
            "torn": recovery.torn is not None and recovery.torn.sequence == sequence,
            "damaged": sequence in damaged,
            "pinned": use.pinned != "",
        }
        flags = tuple(mark for mark, holds in marks.items() if holds)
        found.append(FileUsage(reader.path(sequence), use.size, use.live, flags))
    groups = [_group_usage(view) for view in recovery.groups.values()]
    groups.sort(key=lambda usage: (-usage.data_bytes - usage.snapshot_bytes, usage.group))
    largest = max((use.size for use in found), default=0)
    return LogUsage(
        files=found,
        groups=groups[:top],
        group_count=len(groups),
        quarantined={group: known.reason for group, known in recovery.quarantined.items()},
        size=ledger.size,
        live=ledger.live,
        bound=2 * ledger.live + 2 * largest,
    )
