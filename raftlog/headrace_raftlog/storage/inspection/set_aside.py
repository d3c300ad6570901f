"""Setting a data directory's log aside: its node cannot keep what it promised on that disk.

What was there is moved to the directory `set-aside` within it, and the directory goes on as a new
disk, which may join a cluster and never founds one. There are two steps, for the first is done
while the log is in use: `condemn` says durably that it is to be done, `finish` does it at the next
start, as often as it takes. An earlier `set-aside` is removed then; there is one at most.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from headrace_raftlog.model.membership import can_do_without
from headrace_raftlog.storage.files import Files
from headrace_raftlog.storage.identity import Identity, read_identity
from headrace_raftlog.storage.mark_file import MARKS_NAME
from headrace_raftlog.storage.opening import lock_directory
from headrace_raftlog.storage.salvage import Salvage
from headrace_raftlog.storage.segment import segment_sequence
from headrace_raftlog.storage.writer import write_all

CONDEMNED_NAME: Final = "condemned"
ASIDE_NAME: Final = "set-aside"


def condemn(directory: str, reason: str, files: Files | None = None) -> None:
    """Condemn the log of a directory, durably: its next start sets it aside.

    Raises:
        OSError: as the system says.
    """
    disk = files if files is not None else Files()
    path = os.path.join(directory, CONDEMNED_NAME)
    draft = path + ".new"
    with contextlib.suppress(FileNotFoundError):
        disk.remove(draft)
    fd = disk.create(draft)
    try:
        text = (reason + "\n").encode()
        write_all(disk, fd, [text], len(text), 0)
    finally:
        disk.close(fd)
    disk.rename(draft, path)
    disk.sync_directory(directory)


def finish(directory: str, files: Files | None = None) -> bool:
    """Set the log of a condemned directory aside.

    Returns:
        Whether it was condemned.

    Raises:
        LogLockedError: another process uses the directory.
        OSError: as the system says; it goes on at the next start.
    """
    disk = files if files is not None else Files()
    disk.make_directory(directory)
    if CONDEMNED_NAME not in disk.names(directory):
        return False
    lock = lock_directory(disk, directory)
    try:
        _finish(disk, directory)
    finally:
        disk.close(lock)
    return True


def _finish(disk: Files, directory: str) -> None:
    known = read_identity(directory, disk)
    aside = os.path.join(directory, ASIDE_NAME)
    disk.make_directory(aside)
    if known is None:
        _move(disk, directory, aside)
    elif known.formed or not known.rejoins:
        _begin(disk, aside, known)
        _move(disk, directory, aside)
        number = int.from_bytes(disk.random(4), "little") or 1
        new = Identity(known.cluster, known.node, known.boot, number, rejoins=True)
        new.write(directory, disk)
    disk.rename(os.path.join(directory, CONDEMNED_NAME), os.path.join(aside, CONDEMNED_NAME))
    disk.sync_directory(aside)
    disk.sync_directory(directory)


def _begin(files: Files, aside: str, known: Identity) -> None:
    """Make room for what is to be set aside, unless that has begun before."""
    earlier = read_identity(aside, files)
    if earlier is None or earlier.disk != known.disk:
        for name in files.names(aside):
            files.remove(os.path.join(aside, name))
        known.write(aside, files)


def _move(files: Files, directory: str, aside: str) -> None:
    """Move log and marks away."""
    for name in files.names(directory):
        if segment_sequence(name) or name == MARKS_NAME:
            files.rename(os.path.join(directory, name), os.path.join(aside, name))
    files.sync_directory(aside)
    files.sync_directory(directory)


def needed_here(directory: str, node: int, files: Files) -> list[int]:
    """Return groups that could decide nothing any more without this node's member, ascending.

    Told from what is intact: the newest membership that the log still shows of each group.

    Raises:
        OSError: a file cannot be read.
    """
    salvage = Salvage(files, directory)
    try:
        salvage.run()
        groups = sorted([*salvage.groups, *salvage.broken])
        return [group for group in groups if not can_do_without(salvage.membership(group), node)]
    finally:
        salvage.close()
