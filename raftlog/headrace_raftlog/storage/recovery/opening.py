"""Opening a log's directory: the lock, its owner, the write position."""

from __future__ import annotations

import os
from typing import Final

from headrace_raftlog.model.errors import IdentityError, LogLockedError
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.recovery.recovery import Recovery
from headrace_raftlog.storage.recovery.repair import repair
from headrace_raftlog.storage.segment.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentDraft,
    SegmentHeader,
    SegmentReader,
)
from headrace_raftlog.storage.writing.identity import Identity
from headrace_raftlog.storage.writing.write_job import WriteJob, quarantine_job, state_job
from headrace_raftlog.storage.writing.write_position import WriterPosition

LOCK_NAME: Final = "lock"


def lock_directory(files: Files, directory: str) -> int:
    """Lock a log's directory, created with its parents; return what holds the lock.

    Raises LogLockedError: it is in use.
    """
    files.make_directory(directory)
    path = os.path.join(directory, LOCK_NAME)
    try:
        return files.lock(path)
    except BlockingIOError:
        raise LogLockedError(
            f"{directory} is in use: another process, or this one a second time, has {path} locked"
        ) from None


def check_identity(identity: Identity | None, header: SegmentHeader, path: str) -> None:
    """Compare a segment's owner with who opens it; None: not checked.

    Raises IdentityError: they differ.
    """
    if identity is None:
        return
    if (header.cluster, header.node) != (identity.cluster, identity.node):
        raise IdentityError(
            f"{path} belongs to node {header.node} of cluster {header.cluster!r}, "
            f"this is node {identity.node} of cluster {identity.cluster!r}"
        )


def recover(
    files: Files, directory: str, reader: SegmentReader, identity: Identity | None
) -> Recovery:
    """Read a log back and make it writable; see `SharedLog.open`.

    Raises:
        CorruptLogError: something is damaged, and it is not known what; nothing was changed.
        IdentityError: the segments are another node's; nothing was changed.
        OSError: as the system says.
    """
    recovery = Recovery(files, directory, reader)
    recovery.run()
    for header in recovery.headers:
        check_identity(identity, header, reader.path(header.sequence))
    repair(recovery)
    return recovery


def find_position(
    files: Files, recovery: Recovery, options: LogOptions, identity: Identity | None
) -> WriterPosition:
    """Return the write position; create the first segment of a new log.

    Raises OSError: as the system says.
    """
    if recovery.headers:
        header = recovery.headers[-1]
        fd = files.open(recovery.reader.path(header.sequence), write=True)
        spans = list(recovery.spans)
        first = spans.pop().first if spans else recovery.next_number
        return WriterPosition(header, fd, recovery.end, recovery.next_number, first, spans)
    salt = int.from_bytes(files.random(4), "little") | 1
    node, cluster = (identity.node, identity.cluster) if identity is not None else (0, "")
    header = SegmentHeader(1, options.segment_bytes, salt, node, cluster)
    draft = SegmentDraft(files, recovery.directory, header)
    return WriterPosition(header, draft.finish(), SEGMENT_HEADER_BYTES, 1, 1, [])


def found_jobs(salt: int, recovery: Recovery) -> list[WriteJob]:
    """Encode what a later start must know of the damage that this one found.

    That is which groups are quarantined, and the hard states that took the place of lost ones.
    """
    jobs = [
        quarantine_job(salt, group, known.era, known.reason)
        for group, known in recovery.quarantined.items()
        if known.location == 0
    ]
    jobs.extend(
        state_job(salt, view, view.hard_state)
        for view in recovery.groups.values()
        if view.state_lost
    )
    return jobs
