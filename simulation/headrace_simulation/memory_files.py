"""A disk in memory that knows which writes were synced: for tests and simulations.

It tells apart what a program wrote and what would survive a power failure, and can be told to fail
any call, to take short writes and to be full.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

from headrace_raftlog.storage.disk.files import Files

SECTOR_BYTES = 512


class MemoryFile:
    """One file's bytes.

    Attributes:
        written: what reads return.
        synced: what survives a power failure for certain.
        unsynced: (offset, bytes) of writes since the last sync, each within one sector, in order.
        doubtful: the same of writes whose sync failed: on disk or not, whatever is synced later.
    """

    def __init__(self, data: bytes = b"") -> None:
        self.written = bytearray(data)
        self.synced = bytearray(data)
        self.unsynced: list[tuple[int, bytes]] = []
        self.doubtful: list[tuple[int, bytes]] = []

    def write(self, data: bytes, offset: int) -> None:
        """Write without sync, sector by sector."""
        overlay(self.written, data, offset)
        position = 0
        while position < len(data):
            room = SECTOR_BYTES - (offset + position) % SECTOR_BYTES
            self.unsynced.append((offset + position, data[position : position + room]))
            position += room

    def sync(self, start: int = 0, stop: int = 1 << 62) -> None:
        """Make the writes to a range survive, except those in doubt."""
        later = []
        for offset, sector in self.unsynced:
            if offset < stop and offset + len(sector) > start:
                overlay(self.synced, sector, offset)
                if self.doubtful:
                    self.doubtful = [d for d in self.doubtful if not covers(offset, sector, d)]
            else:
                later.append((offset, sector))
        self.unsynced = later

    def doubt(self) -> None:
        """Note that a sync failed: the system takes the written pages for clean from now on."""
        self.doubtful += self.unsynced
        self.unsynced.clear()

    def pending(self) -> list[tuple[int, bytes]]:
        """Return (offset, bytes) of all sector writes that may or may not survive, in order."""
        return self.doubtful + self.unsynced


def covers(offset: int, sector: bytes, other: tuple[int, bytes]) -> bool:
    """Return whether a write covers every byte of another one."""
    return offset <= other[0] and other[0] + len(other[1]) <= offset + len(sector)


def overlay(target: bytearray, data: bytes, offset: int) -> None:
    """Write bytes into a buffer, which grows with zeros when it must."""
    if len(target) < offset + len(data):
        target.extend(bytes(offset + len(data) - len(target)))
    target[offset : offset + len(data)] = data


class NameChange:
    """A change of a directory that may or may not survive: a creation, renaming or removal.

    Attributes:
        old: path that goes, '' for none.
        new: path that comes, '' for none.
        file: whose path it is.
    """

    def __init__(self, old: str, new: str, file: MemoryFile) -> None:
        self.old = old
        self.new = new
        self.file = file

    def apply(self, names: dict[str, MemoryFile]) -> None:
        """Change names, whether or not earlier changes were made to them."""
        if self.old and names.get(self.old) is self.file:
            del names[self.old]
        if self.new:
            names[self.new] = self.file

    def directory(self) -> str:
        """Return the directory that is changed."""
        return os.path.dirname(self.new or self.old)


class MemoryFiles(Files):
    """File system calls on memory.

    Threads may share one, as they share a disk: each call and each picture of the disk is atomic.
    `fault` is called outside of that, so one that blocks delays its own thread only.

    Attributes:
        synced_names: files by those names that survive a power failure for certain.
        name_changes: what happened to names since their directory was synced, in order.
        fault: called before each call with its name and path; raises OSError to make it fail.
        short_write_bytes: most bytes a write takes at once; 0 for all.
        capacity_bytes: space over all files; 0 for endless.
        calls: names and paths of all calls that change something or sync, in order.
        expected: offsets and counts of reads that were announced, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fault: Callable[[str, str], None] = lambda call, path: None
        self.short_write_bytes = 0
        self.capacity_bytes = 0
        self.calls: list[tuple[str, str]] = []
        self.expected: list[tuple[int, int]] = []
        self.synced_names: dict[str, MemoryFile] = {}
        self.name_changes: list[NameChange] = []
        self._names: dict[str, MemoryFile] = {}
        self._open: dict[int, tuple[MemoryFile, str]] = {}
        self._locks: dict[int, str] = {}
        self._next_fd = 1000
        self._lock = threading.RLock()  # guards all of the above, and the bytes of the files

    def file(self, path: str) -> MemoryFile:
        """Return a file by its name, for looking into it or damaging it.

        Raises:
            FileNotFoundError: there is none.
        """
        with self._lock:
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
        with self._lock:
            for path, file in (self.synced_names if names_synced else self._names).items():
                data = bytearray(file.synced)
                for number, (offset, sector) in enumerate(file.pending()):
                    if survives(path, number, offset):
                        overlay(data, sector, offset)
                disk.put(path, bytes(data))
        return disk

    def put(self, path: str, data: bytes) -> None:
        """Place a file on the disk, synced."""
        with self._lock:
            self._names[path] = self.synced_names[path] = MemoryFile(data)

    def place(self, names: dict[str, MemoryFile], changes: list[NameChange]) -> None:
        """Place files on an empty disk, with unsynced changes of their names."""
        with self._lock:
            self.synced_names = names
            self._names = dict(names)
            self.name_changes = changes
            for change in changes:
                change.apply(self._names)

    def _enter(self, call: str, path: str) -> None:
        self.calls.append((call, path))
        self.fault(call, path)

    def _change(self, old: str, new: str, file: MemoryFile) -> None:
        change = NameChange(old, new, file)
        change.apply(self._names)
        self.name_changes.append(change)

    def _descriptor(self, file: MemoryFile, path: str) -> int:
        self._next_fd += 1
        self._open[self._next_fd] = (file, path)
        return self._next_fd

    def names(self, directory: str) -> list[str]:
        """See `Files.names`."""
        with self._lock:
            return sorted(
                os.path.basename(path) for path in self._names if os.path.dirname(path) == directory
            )

    def make_directory(self, directory: str) -> None:
        """See `Files.make_directory`."""
        del directory  # a directory is there when a file is in it

    def create(self, path: str) -> int:
        """See `Files.create`."""
        self._enter("create", path)
        with self._lock:
            if path in self._names:
                raise FileExistsError(errno.EEXIST, "file exists", path)
            self._change("", path, MemoryFile())
            return self._descriptor(self._names[path], path)

    def open(self, path: str, *, write: bool = False) -> int:
        """See `Files.open`."""
        del write
        with self._lock:
            return self._descriptor(self.file(path), path)

    def close(self, fd: int) -> None:
        """See `Files.close`."""
        with self._lock:
            if self._locks.pop(fd, None) is None:
                del self._open[fd]

    def size(self, fd: int) -> int:
        """See `Files.size`."""
        with self._lock:
            return len(self._open[fd][0].written)

    def read(self, fd: int, count: int, offset: int) -> bytes:
        """See `Files.read`."""
        with self._lock:
            return bytes(self._open[fd][0].written[offset : offset + count])

    def read_cached(self, fd: int, count: int, offset: int) -> bytes | None:
        """See `Files.read_cached`: nothing is, so that every read is one of a disk."""
        del fd, count, offset
        return None

    def expect(self, fd: int, offset: int, count: int) -> None:
        """Note what will be read."""
        self.expected.append((offset, count))

    def write(self, fd: int, data: bytes, offset: int) -> int:
        """See `Files.write`."""
        self._enter("write", self._path(fd))
        with self._lock:
            file, path = self._open[fd]
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

    def reserve(self, fd: int, offset: int, count: int) -> bool:
        """See `Files.reserve`."""
        self._enter("reserve", self._path(fd))
        with self._lock:
            file, path = self._open[fd]
            if self.capacity_bytes:
                used = sum(len(other.written) for other in self._names.values())
                if offset + count - len(file.written) > self.capacity_bytes - used:
                    raise OSError(errno.ENOSPC, "no space left on device", path)
            file.write(bytes(count), offset)
        return True

    def write_through(self, fd: int, pieces: list[bytes], offset: int) -> int:
        """See `Files.write_through`: only this write is synced, as RWF_DSYNC may do."""
        taken = self.write(fd, b"".join(pieces), offset)
        self._sync(fd, offset, offset + taken)
        return taken

    def sync(self, fd: int) -> None:
        """See `Files.sync`."""
        self._sync(fd, 0, 1 << 62)

    def _path(self, fd: int) -> str:
        with self._lock:
            return self._open[fd][1]

    def _sync(self, fd: int, start: int, stop: int) -> None:
        self._enter("sync", self._path(fd))
        with self._lock:
            self._open[fd][0].sync(start, stop)

    def rename(self, source: str, target: str) -> None:
        """See `Files.rename`."""
        self._enter("rename", target)
        with self._lock:
            file = self.file(source)
            self._change(source, target, file)
            for fd, (opened, _) in self._open.items():
                if opened is file:
                    self._open[fd] = (file, target)

    def remove(self, path: str) -> None:
        """See `Files.remove`."""
        self._enter("remove", path)
        with self._lock:
            self._change(path, "", self.file(path))

    def sync_directory(self, directory: str) -> None:
        """See `Files.sync_directory`."""
        self._enter("sync_directory", directory)
        with self._lock:
            later = []
            for change in self.name_changes:
                if change.directory() == directory:
                    change.apply(self.synced_names)
                else:
                    later.append(change)
            self.name_changes = later

    def lock(self, path: str) -> int:
        """See `Files.lock`."""
        with self._lock:
            if path in self._locks.values():
                raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
            self._next_fd += 1
            self._locks[self._next_fd] = path
            return self._next_fd

    def random(self, count: int) -> bytes:
        """See `Files.random`."""
        return bytes(range(1, count + 1))
