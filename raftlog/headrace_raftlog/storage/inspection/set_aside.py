"""Setting a data directory's log aside: its node cannot keep its promises on that disk.

What was there is moved to the directory `set-aside` within it, and the directory goes on as a new
disk, which may join a cluster and never founds one. There are two steps, for the first is done
while the log is in use: `condemn` says durably that it is to be done, `finish` does it at the next
start, as often as it takes. An earlier `set-aside` is removed then; there is one at most.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from headrace_raftlog.model.errors import IdentityError, LostDirectoryError
from headrace_raftlog.model.membership import can_do_without
from headrace_raftlog.storage.disk.files import Files, read_around, write_all
from headrace_raftlog.storage.inspection.salvage import Salvage
from headrace_raftlog.storage.recovery.opening import lock_directory
from headrace_raftlog.storage.segment.segment import (
    SEGMENT_HEADER_BYTES,
    decode_segment_header,
    header_is_intact,
    segment_sequence,
)
from headrace_raftlog.storage.writing.identity import Identity, read_identity
from headrace_raftlog.storage.writing.mark_file import MARKS_NAME

CONDEMNED_NAME: Final = "condemned"
ASIDE_NAME: Final = "set-aside"


def condemn(directory: str, reason: str, files: Files | None = None) -> None:
    """Condemn the log of a directory, durably: its next start sets it aside.

    Raises OSError: as the system says.
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


def finish(
    directory: str, files: Files | None = None, owner: tuple[str, int] | None = None
) -> bool:
    """Set the log of a condemned directory aside.

    Args:
        directory: the data directory.
        files: the file system, for tests.
        owner: cluster and node, for a directory that does not say it itself any more.

    Returns:
        Whether it was condemned.

    Raises LogLockedError: another process uses the directory; OSError: as the system says; it goes
    on at the next start.
    """
    disk = files if files is not None else Files()
    disk.make_directory(directory)
    if CONDEMNED_NAME not in disk.names(directory):
        return False
    lock = lock_directory(disk, directory)
    try:
        _finish(disk, directory, owner)
    finally:
        disk.close(lock)
    return True


def _finish(disk: Files, directory: str, owner: tuple[str, int] | None) -> None:
    known = readable_identity(directory, disk)
    if known is None and owner is not None:
        known = stand_in(directory, owner, disk)
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


def readable_identity(directory: str, files: Files) -> Identity | None:
    """Return what a directory says of its node, None where it says nothing that can be read.

    Raises IdentityError: its file is of another release.
    """
    try:
        return read_identity(directory, files)
    except LostDirectoryError:
        return None


def stand_in(directory: str, owner: tuple[str, int], files: Files) -> Identity:
    """Write an identity file in place of a missing or damaged one; return its content.

    Boots begin anew: what is claimed of the cluster before sessions open takes care of that.
    """
    number = int.from_bytes(files.random(4), "little") or 1
    identity = Identity(owner[0], owner[1], 1, number)
    identity.write(directory, files)
    return identity


def check_owner(directory: str, owner: tuple[str, int], files: Files) -> None:
    """Refuse to touch segments that are another node's.

    Raises IdentityError: they are; OSError: a file cannot be read.
    """
    for name in files.names(directory):
        if not segment_sequence(name):
            continue
        path = os.path.join(directory, name)
        fd = files.open(path)
        try:
            data = read_around(files, fd, SEGMENT_HEADER_BYTES, 0)
        finally:
            files.close(fd)
        if header_is_intact(data):
            header = decode_segment_header(path, data)
            if (header.cluster, header.node) != owner:
                raise IdentityError(
                    f"{path} belongs to node {header.node} of cluster {header.cluster!r}, "
                    f"this is node {owner[1]} of cluster {owner[0]!r}"
                )


def _begin(files: Files, aside: str, known: Identity) -> None:
    """Make room for the files, unless that has begun before."""
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
    """Return groups without a majority if this node's member is gone, ascending.

    Told from what is intact: the newest membership that the log still shows of each group.

    Raises OSError: a file cannot be read.
    """
    salvage = Salvage(files, directory)
    try:
        salvage.run()
        groups = sorted([*salvage.groups, *salvage.broken])
        return [group for group in groups if not can_do_without(salvage.membership(group), node)]
    finally:
        salvage.close()
