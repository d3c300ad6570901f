"""Disks that fail a sync, lie, or lose what was not synced, by a library preloaded into a node.

It cannot show what happens below or beside the calls that it sees: reordering within the disk, torn
sectors, names and lengths of files that were not synced, writes through mappings, and reads that
fail. The crash explorer of raftlog shows most of these, on a disk in memory.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

SOURCE: Final = Path(__file__).with_name("disk_fault.c")
CONTROL: Final = struct.Struct("=ii")
RECORD: Final = struct.Struct("=6q")
WRITE: Final = 1


class _Write(msgspec.Struct, frozen=True):
    """The bytes that a write replaced."""

    file: tuple[int, int]  # device, inode
    offset: int
    size: int  # of the file before
    before: bytes


def build_library(directory: Path, root: Path) -> dict[str, str]:
    """Build the library; return the variables for all nodes whose directories are in `root`.

    Raises:
        FileNotFoundError: there is no C compiler.
    """
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / "disk_fault.so"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("no C compiler to build the faulty disk with; install gcc")
    options = ("-shared", "-fPIC", "-O1", "-Wall", "-Werror")
    target = ("-o", str(library), str(SOURCE), "-ldl", "-lpthread")
    subprocess.run([compiler, *options, *target], check=True)
    return {"LD_PRELOAD": str(library), "DISK_FAULT_ROOT": str(root.absolute())}


class FaultyDisk:
    """The disk of one node, which is right at first; made before the node starts.

    Args:
        node: the node's directory; its data are in `store`.
    """

    def __init__(self, node: Path) -> None:
        self._store = node / "store"
        self._control = node / "disk_fault"
        self._journal = node / "disk_journal"
        node.mkdir(parents=True, exist_ok=True)
        self._control.write_bytes(CONTROL.pack(0, 0))

    def fail_syncs(self, count: int) -> None:
        """Fail that many of the next syncs with EIO."""
        self._set(0, count)

    @property
    def syncs_to_fail(self) -> int:
        """Number of syncs that are still to fail."""
        return int(CONTROL.unpack(self._control.read_bytes())[0])

    def lie(self) -> None:
        """Report syncs that make nothing durable as done from now on, until `lose_unsynced`."""
        self._set(4, 1)

    def _set(self, offset: int, value: int) -> None:
        with self._control.open("r+b") as file:
            file.seek(offset)
            file.write(struct.pack("=i", value))

    def lose_unsynced(self) -> int:
        """Undo all writes of the killed node that no honest sync followed; be honest from now on.

        Returns:
            The number of writes that were lost.
        """
        paths = {
            (found.st_dev, found.st_ino): path
            for path in self._store.rglob("*")
            if path.is_file() and (found := path.stat())
        }
        pending: dict[tuple[int, int], list[_Write]] = {}
        for kind, write in self._records():
            if kind == WRITE:
                pending.setdefault(write.file, []).append(write)
            else:
                pending.pop(write.file, None)
        lost = 0
        for file, writes in pending.items():
            if file in paths:
                lost += len(writes)
                _undo(paths[file], writes)
        self._journal.unlink(missing_ok=True)
        self._set(4, 0)
        return lost

    def _records(self) -> Iterator[tuple[int, _Write]]:
        """Yield the journal; a record that the kill cut off was followed by no write."""
        data = self._journal.read_bytes() if self._journal.exists() else b""
        at = 0
        while at + RECORD.size <= len(data):
            kind, device, inode, offset, count, size = RECORD.unpack_from(data, at)
            at += RECORD.size
            before = data[at : at + count] if kind == WRITE else b""
            at += len(before)
            yield kind, _Write((device, inode), offset, size, before)


def _undo(path: Path, writes: list[_Write]) -> None:
    with path.open("r+b") as file:
        for write in reversed(writes):
            file.seek(write.offset)
            file.write(write.before)
        os.ftruncate(file.fileno(), writes[0].size)
