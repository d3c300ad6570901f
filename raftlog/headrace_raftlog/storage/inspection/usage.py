"""Use of a log's disk space: `headrace log stat`."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.recovery.recovery import Recovery
from headrace_raftlog.storage.segment.segment import SegmentReader


@dataclass(frozen=True, slots=True)
class FileUsage:
    """One segment.

    Attributes:
        path: file.
        size: bytes.
        live: bytes of records that are needed.
        flags: words: `active`, `torn`, `damaged`, `pinned`.
    """

    path: str
    size: int
    live: int
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupUsage:
    """One group.

    Attributes:
        group: incarnation id.
        entries: entries behind its snapshot.
        kept: live entries up to its snapshot.
        data_bytes: bytes of their records.
        snapshot_index: where its snapshot stands, 0 for none.
        snapshot_bytes: bytes of that.
        last_index: last index of its log.
        last_term: term of the last entry.
    """

    group: int
    entries: int
    kept: int
    data_bytes: int
    snapshot_index: int
    snapshot_bytes: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class LogUsage:
    """A whole log.

    Attributes:
        files: by sequence.
        groups: those with most bytes first.
        group_count: number of groups that would be served.
        quarantined: groups that would not, and why.
        size: bytes of all segments.
        live: bytes that are needed.
        bound: bytes that the segments may take: twice what is needed, and two files.
    """

    files: list[FileUsage]
    groups: list[GroupUsage]
    group_count: int
    quarantined: dict[int, str]
    size: int
    live: int
    bound: int


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

    Raises:
        CorruptLogError: a node would not start with this log.
        OSError: the directory or a file cannot be read.
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
