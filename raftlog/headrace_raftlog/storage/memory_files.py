"""A disk in memory that remembers what was synced: for tests and simulations of the log.

It tells apart what a program wrote and what would survive a power failure, and can be told to fail
any call, to take short writes and to be full.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from headrace_raftlog.storage.files import Files

SECTOR_BYTES = 512


class MemoryFile:
    """One file's bytes.

    Attributes:
        written: what reads return.
        synced: what survives a power failure for certain.
        unsynced: (offset, bytes) of writes since the last sync, each within one sector, in order.
    """

    def __init__(self, data: bytes = b"") -> None:
        self.written = bytearray(data)
        self.synced = bytearray(data)
        self.unsynced: list[tuple[int, bytes]] = []

    def write(self, data: bytes, offset: int) -> None:
        """Write without sync, sector by sector."""
        overlay(self.written, data, offset)
        position = 0
        while position < len(data):
            room = SECTOR_BYTES - (offset + position) % SECTOR_BYTES
            self.unsynced.append((offset + position, data[position : position + room]))
            position += room

    def sync(self) -> None:
        """Make everything written so far survive."""
        self.synced[:] = self.written
        self.unsynced.clear()


def overlay(target: bytearray, data: bytes, offset: int) -> None:
    """Write bytes into a buffer, which grows with zeros when it must."""
    if len(target) < offset + len(data):
        target.extend(bytes(offset + len(data) - len(target)))
    target[offset : offset + len(data)] = data


class MemoryFiles(Files):
    """File system calls on memory.

    Attributes:
        fault: called before each call with its name and path; raises OSError to make it fail.
        short_write_bytes: most bytes a write takes at once; 0 for all.
        capacity_bytes: space over all files; 0 for endless.
        calls: names and paths of all calls that change something or sync, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fault: Callable[[str, str], None] = lambda call, path: None
        self.short_write_bytes = 0
        self.capacity_bytes = 0
        self.calls: list[tuple[str, str]] = []
        self._names: dict[str, MemoryFile] = {}
        self._synced_names: dict[str, MemoryFile] = {}
        self._open: dict[int, tuple[MemoryFile, str]] = {}
        self._locks: dict[int, str] = {}
        self._next_fd = 1000

    def file(self, path: str) -> MemoryFile:
        """Return a file by its name, for looking into it or damaging it.

        Raises:
            FileNotFoundError: there is none.
        """
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return self._names[path]

    def after_power_loss(
        self, survives: Callable[[str, int, int], bool], *, names_synced: bool
    ) -> MemoryFiles:
        """Return the disk as a power failure now could leave it.

        Args:
            survives: given path, number and offset of each unsynced sector write, whether it
                reached the disk all the same.
            names_synced: whether only synced names (creations, renames, removals) survive; else
                all do.
        """
        disk = MemoryFiles()
        for path, file in (self._synced_names if names_synced else self._names).items():
            data = bytearray(file.synced)
            for number, (offset, sector) in enumerate(file.unsynced):
                if survives(path, number, offset):
                    overlay(data, sector, offset)
            disk.put(path, bytes(data))
        return disk

    def put(self, path: str, data: bytes) -> None:
        """Place a file on the disk, synced."""
        self._names[path] = self._synced_names[path] = MemoryFile(data)

    def _enter(self, call: str, path: str) -> None:
        self.calls.append((call, path))
        self.fault(call, path)

    def _descriptor(self, file: MemoryFile, path: str) -> int:
        self._next_fd += 1
        self._open[self._next_fd] = (file, path)
        return self._next_fd

    def names(self, directory: str) -> list[str]:
        """See `Files.names`."""
        return sorted(
            os.path.basename(path) for path in self._names if os.path.dirname(path) == directory
        )

    def make_directory(self, directory: str) -> None:
        """See `Files.make_directory`."""
        del directory  # a directory is there when a file is in it

    def create(self, path: str) -> int:
        """See `Files.create`."""
        self._enter("create", path)
        if path in self._names:
            raise FileExistsError(errno.EEXIST, "file exists", path)
        self._names[path] = MemoryFile()
        return self._descriptor(self._names[path], path)

    def open(self, path: str, *, write: bool = False) -> int:
        """See `Files.open`."""
        del write
        return self._descriptor(self.file(path), path)

    def close(self, fd: int) -> None:
        """See `Files.close`."""
        if self._locks.pop(fd, None) is None:
            del self._open[fd]

    def size(self, fd: int) -> int:
        """See `Files.size`."""
        return len(self._open[fd][0].written)

    def read(self, fd: int, count: int, offset: int) -> bytes:
        """See `Files.read`."""
        return bytes(self._open[fd][0].written[offset : offset + count])

    def write(self, fd: int, data: bytes, offset: int) -> int:
        """See `Files.write`."""
        file, path = self._open[fd]
        self._enter("write", path)
        taken = min(len(data), self.short_write_bytes or len(data))
        if self.capacity_bytes:
            used = sum(len(other.written) for other in self._names.values())
            growth = max(0, offset + taken - len(file.written))
            if growth > self.capacity_bytes - used:
                taken -= growth - max(0, self.capacity_bytes - used)
            if taken <= 0:
                raise OSError(errno.ENOSPC, "no space left on device", path)
        file.write(data[:taken], offset)
        return taken

    def write_through(self, fd: int, pieces: list[bytes], offset: int) -> int:
        """See `Files.write_through`."""
        taken = self.write(fd, b"".join(pieces), offset)
        self.sync(fd)
        return taken

    def sync(self, fd: int) -> None:
        """See `Files.sync`."""
        file, path = self._open[fd]
        self._enter("sync", path)
        file.sync()

    def rename(self, source: str, target: str) -> None:
        """See `Files.rename`."""
        self._enter("rename", target)
        file = self._names[target] = self._names.pop(source)
        for fd, (opened, _) in self._open.items():
            if opened is file:
                self._open[fd] = (file, target)

    def remove(self, path: str) -> None:
        """See `Files.remove`."""
        self._enter("remove", path)
        self.file(path)
        del self._names[path]

    def sync_directory(self, directory: str) -> None:
        """See `Files.sync_directory`."""
        self._enter("sync_directory", directory)
        for names in (self._synced_names, self._names):
            for path in list(names):
                if os.path.dirname(path) == directory:
                    if path in self._names:
                        self._synced_names[path] = self._names[path]
                    else:
                        del self._synced_names[path]

    def lock(self, path: str) -> int:
        """See `Files.lock`."""
        if path in self._locks.values():
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        self._next_fd += 1
        self._locks[self._next_fd] = path
        return self._next_fd

    def random(self, count: int) -> bytes:
        """See `Files.random`."""
        return bytes(range(1, count + 1))
