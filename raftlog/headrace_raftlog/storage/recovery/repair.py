"""Making a recovered log writable again."""

from __future__ import annotations

import contextlib
import os

from headrace_raftlog.storage.disk.files import Files, write_all
from headrace_raftlog.storage.recovery.recovery import Recovery
from headrace_raftlog.storage.segment.record import Batch

_ZEROS = bytes(1 << 20)


def repair(recovery: Recovery) -> None:
    """Make a recovered log writable: without torn batches, and durable.

    The last intact batch is written again: after a crash of the process alone it may never have
    been synced, and after a failed sync the system may hold it for clean. Segments behind the
    last batch are removed; nothing is in them.

    Raises OSError: as the system says; recovery can be tried again.
    """
    files, directory, torn = recovery.files, recovery.directory, recovery.torn
    for sequence, header in recovery.restored.items():
        _write(files, recovery.reader.path(sequence), header.encode(), 0)
    if torn is not None:
        _zero(files, recovery.reader.path(torn.sequence), torn.start, torn.end)
    last = recovery.last
    if last is not None:
        _write_again(files, recovery.reader.path(recovery.last_in), last)
    while recovery.headers and recovery.headers[-1].sequence > recovery.last_sequence:
        sequence = recovery.headers.pop().sequence
        recovery.ledger.close(sequence)
        files.remove(recovery.reader.path(sequence))
    recovery.ledger.newest = recovery.last_sequence
    for name in recovery.superfluous:
        with contextlib.suppress(FileNotFoundError):
            files.remove(os.path.join(directory, name))
    files.sync_directory(directory)


def _zero(files: Files, path: str, start: int, end: int) -> None:
    fd = files.open(path, write=True)
    try:
        position = start
        while position < end:
            chunk = _ZEROS[: end - position]
            write_all(files, fd, [chunk], len(chunk), position)
            position += len(chunk)
    finally:
        files.close(fd)


def _write(files: Files, path: str, data: bytes, offset: int) -> None:
    fd = files.open(path, write=True)
    try:
        write_all(files, fd, [data], len(data), offset)
    finally:
        files.close(fd)


def _write_again(files: Files, path: str, batch: Batch) -> None:
    fd = files.open(path, write=True)
    try:
        data = files.read(fd, batch.stop - batch.start, batch.start)
        write_all(files, fd, [data], len(data), batch.start)
    finally:
        files.close(fd)
