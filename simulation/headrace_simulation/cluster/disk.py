"""The disk of a simulated machine: it loses what is not synced, takes its time, and fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, Final, final

from headrace_raftlog.storage.disk.files import Files
from headrace_simulation.cluster import stdlib
from headrace_simulation.cluster.process import Process
from headrace_simulation.cluster.world import World
from headrace_simulation.memory_files import MemoryFile, MemoryFiles, overlay

HANG_LOOK_S: Final = 0.05  # how often a call that hangs looks whether the disk answers again
SYNC_BYTES_S: Final = 200e6
CALL_S: Final = 20e-6  # what a call takes that waits for nothing
OWED_S_MAX: Final = 200e-6  # for which calls may be ahead of the world: each wait switches threads
DIRECTORY_FD: Final = 1 << 30  # descriptors of directories begin here


@final
class VirtualDisk(MemoryFiles):
    """Files of one machine. What survives the machine is here; descriptors are its processes'."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__()
        self.name = name
        self.world = world
        self.sync_s = 0.001  # what a sync takes, on average
        self.is_hung = False  # every call that reaches the disk waits
        self.lies = False  # syncs do nothing
        self.fails: dict[str, int] = {}  # errno of the next call of a kind
        self.read_s = 0.0002
        self._owed_s = 0.0  # of calls so far, for which nobody has waited yet
        self._directories: dict[int, str] = {}
        self._owners: dict[int, Process] = {}

    # time and faults

    def _enter(self, call: str, path: str) -> None:
        if call.startswith("sync"):
            self._spend(self.sync_s)
        else:
            self._owed_s += CALL_S
            if self.is_hung or self._owed_s >= OWED_S_MAX:
                self._spend(0.0)
        error = self.fails.pop(call, 0)
        if error:
            raise OSError(error, os.strerror(error), path)

    def _spend(self, seconds: float) -> None:
        """Block the calling thread for the time that the disk takes."""
        thread = stdlib.current_thread()
        if thread is None:
            return
        seconds = seconds * self.world.rng.uniform(0.5, 1.5) + self._owed_s
        self._owed_s = 0.0
        thread.block(seconds, may_wake=False)
        while self.is_hung:
            thread.block(HANG_LOOK_S, may_wake=False)

    def _sync(self, fd: int, start: int, stop: int) -> None:
        path = self._path(fd)
        self._enter("sync", path)
        if not self.lies:
            self._open[fd][0].sync(start, stop)

    def sync_directory(self, directory: str) -> None:
        """See `Files.sync_directory`."""
        if not self.lies:
            super().sync_directory(directory)

    def write_through(self, fd: int, pieces: list[bytes], offset: int) -> int:
        """See `Files.write_through`; time for the bytes is a sync's."""
        data = b"".join(pieces)
        taken = self.write(fd, data, offset)
        self._owed_s += taken / SYNC_BYTES_S
        self._sync(fd, offset, offset + taken)
        return taken

    def read(self, fd: int, count: int, offset: int) -> bytes:
        """See `Files.read`."""
        self._spend(self.read_s)
        error = self.fails.pop("read", 0)
        if error:
            raise OSError(error, os.strerror(error))
        return super().read(fd, count, offset)

    def random(self, count: int) -> bytes:
        """See `Files.random`."""
        return self.world.rng.randbytes(count)

    # descriptors and directories

    def _descriptor(self, file: MemoryFile, path: str) -> int:
        fd = super()._descriptor(file, path)
        self._own(fd)
        return fd

    def _own(self, fd: int) -> None:
        process = stdlib.process()
        if process is not None:
            self._owners[fd] = process

    def lock(self, path: str) -> int:
        """See `Files.lock`."""
        if path not in self._names:
            self.put(path, b"")
        fd = super().lock(path)
        self._own(fd)
        return fd

    def close(self, fd: int) -> None:
        """See `Files.close`."""
        self._owners.pop(fd, None)
        if self._directories.pop(fd, None) is None:
            super().close(fd)

    def open_directory(self, path: str) -> int:
        """See `Files.open_directory`."""
        self._next_fd += 1
        self._directories[self._next_fd] = path
        self._own(self._next_fd)
        return self._next_fd

    def leads_to(self, path: str, fd: int, directory: int | None = None) -> bool:
        """See `Files.leads_to`."""
        if fd in self._directories:
            return self._directories[fd] == path
        if directory is not None:
            path = os.path.join(self._directories[directory], path)
        if fd in self._locks:
            return self._locks[fd] == path
        return self._names.get(path) is self._open[fd][0]

    def names(self, directory: str) -> list[str]:
        """See `Files.names`: directories are there when a file is in them."""
        found = set(super().names(directory))
        prefix = directory.rstrip("/") + "/"
        for path in self._names:
            if path.startswith(prefix) and "/" in path[len(prefix) :]:
                found.add(path[len(prefix) :].split("/", 1)[0])
        return sorted(found)

    def release(self, process: Process) -> None:
        """Close what a process that ended had open."""
        for fd in [fd for fd, owner in self._owners.items() if owner is process]:
            self.close(fd)

    # what happens to machines

    def lose_power(self) -> None:
        """Lose unsynced writes and names, or some of them."""
        rng = self.world.rng
        share = rng.choice((0.0, 0.5, 1.0))
        names_synced = rng.random() < 0.7
        kept = dict(self.synced_names if names_synced else self._names)
        if not names_synced:
            share = 1.0
        files: dict[str, MemoryFile] = {}
        for path, file in kept.items():
            data = bytearray(file.synced)
            for offset, sector in file.pending():
                if rng.random() < share:
                    overlay(data, sector, offset)
            files[path] = MemoryFile(bytes(data))
        self._place(files)

    def wipe(self) -> None:
        """Lose everything."""
        self._place({})

    def wipe_some(self, is_lost: Callable[[str], bool]) -> None:
        """Lose some files, by their paths; nobody has them open."""
        for names in (self._names, self.synced_names):
            for path in [path for path in names if is_lost(path)]:
                del names[path]
        changes = [(each, each.new or each.old) for each in self.name_changes]
        self.name_changes = [each for each, path in changes if not is_lost(path)]

    def copy(self) -> dict[str, bytes]:
        """Return the content of all files."""
        return {path: bytes(file.written) for path, file in self._names.items()}

    def put_back(self, files: dict[str, bytes]) -> None:
        """Replace everything by an older copy."""
        self._place({path: MemoryFile(data) for path, data in files.items()})

    def _place(self, files: dict[str, MemoryFile]) -> None:
        self._names = files
        self.synced_names = dict(files)
        self.name_changes = []
        self._open.clear()
        self._locks.clear()
        self._directories.clear()
        self._owners.clear()

    def rot(self) -> str:
        """Flip a bit of a file of the log; return which one, "" where there is none."""
        rng = self.world.rng
        paths = sorted(p for p in self._names if p.endswith(".log") and self._names[p].written)
        if not paths:
            return ""
        path = rng.choice(paths)
        data = self._names[path].written
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
        self._names[path].synced = bytearray(data)
        return f"{path} byte {at}"

    def fail_next(self, call: str, number: int = errno.EIO) -> None:
        """Make the next call of a kind fail."""
        self.fails[call] = number


def _dispatch(files: type[Files], name: str) -> Callable[..., Any]:
    original = getattr(files, name)

    def call(self: Files, *args: Any, **options: Any) -> Any:
        process = stdlib.process()
        if process is None:
            return original(self, *args, **options)
        return getattr(process.disk, name)(*args, **options)

    return call


CALLS: Final = (
    *("names", "make_directory", "create", "open", "close", "size", "read", "read_cached"),
    *("expect", "write", "reserve", "write_through", "sync", "rename", "remove"),
    *("sync_directory", "lock", "open_directory", "leads_to", "random"),
)


def install(files: type[Files]) -> None:
    """Replace production's `Files` by the disk of the simulated process that calls it."""
    for name in CALLS:
        setattr(files, name, _dispatch(files, name))
