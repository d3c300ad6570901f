"""Taking a log's directory: the lock, whose it is, where to go on."""

from __future__ import annotations

import os
from typing import Final

from headrace_raftlog.model.errors import IdentityError, LogLockedError
from headrace_raftlog.storage.files import Files
from headrace_raftlog.storage.identity import Identity
from headrace_raftlog.storage.options import LogOptions
from headrace_raftlog.storage.recovery import Recovery
from headrace_raftlog.storage.segment import SEGMENT_HEADER_BYTES, SegmentDraft, SegmentHeader
from headrace_raftlog.storage.writer import WriterPosition

LOCK_NAME: Final = "lock"


def lock_directory(files: Files, directory: str) -> int:
    """Lock a log's directory; return the descriptor that holds the lock.

    Raises:
        LogLockedError: it is in use.
    """
    path = os.path.join(directory, LOCK_NAME)
    try:
        return files.lock(path)
    except BlockingIOError:
        raise LogLockedError(
            f"{directory} is in use: another process, or this one a second time, has {path} locked"
        ) from None


def check_identity(identity: Identity | None, header: SegmentHeader, path: str) -> None:
    """Compare a segment's owner with who opens it; None: not checked.

    Raises:
        IdentityError: they differ.
    """
    if identity is None:
        return
    if (header.cluster, header.node) != (identity.cluster, identity.node):
        raise IdentityError(
            f"{path} belongs to node {header.node} of cluster {header.cluster!r}, "
            f"this is node {identity.node} of cluster {identity.cluster!r}"
        )


def find_position(
    files: Files, recovery: Recovery, options: LogOptions, identity: Identity | None
) -> WriterPosition:
    """Return where to go on writing; create the first segment of a new log.

    Raises:
        OSError: as the system says.
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
