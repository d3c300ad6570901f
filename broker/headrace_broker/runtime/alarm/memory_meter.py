"""Memory limit and memory use of this process.

Where a control group limits memory, the kernel kills by what the whole group uses: that is what
counts, whoever is in it. Several nodes in one limited group have the same figures and the same
alarm. Without such a limit, a node counts the resident memory of all its processes against the
machine's; several nodes on one machine do not know of each other.

What the kernel can take back at any time does not count: cached file pages that are clean, and
caches of its own. So reading a long log does not look like a lack of memory.

Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst, proc_pid_statm(5).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")
# Keys of memory.stat: what can be taken back, and what of that has to be written to disk before.
V2_DROPPABLE: Final = (b"inactive_file", b"active_file", b"slab_reclaimable")
V2_DIRTY: Final = (b"file_dirty", b"file_writeback")
V1_DROPPABLE: Final = (b"total_inactive_file", b"total_active_file")
V1_DIRTY: Final = (b"total_dirty", b"total_writeback")
NO_LIMIT: Final = 1 << 63  # bytes
LIMITS_EVERY: Final = 5  # of so many looks one reads the limits anew; they may change


class MemoryReading(NamedTuple):
    """One look."""

    used: int  # bytes that cannot be taken back
    total: int  # bytes that may be used
    place: str  # where the limit comes from, for people


class _Group:
    """A control group whose limit applies to this process: its own or one above it."""

    def __init__(
        self,
        directory: Path,
        limits: tuple[str, ...],
        usage: str,
        droppable: tuple[bytes, ...],
        dirty: tuple[bytes, ...],
    ) -> None:
        self.place = str(directory)
        self.limit = 0  # bytes; more than the machine has when there is none
        self._limits = [str(directory / name) for name in limits if (directory / name).is_file()]
        self._usage = str(directory / usage)
        self._stat = str(directory / "memory.stat")
        self._droppable = droppable
        self._dirty = dirty

    def exists(self) -> bool:
        return os.path.isfile(self._usage) and os.path.isfile(self._stat)

    def read_limit(self) -> None:
        self.limit = min((_number(_data(path)) for path in self._limits), default=NO_LIMIT)

    def read(self) -> MemoryReading:
        stat = _table(self._stat)
        used = _number(_data(self._usage))
        used -= sum(int(stat.get(key, 0)) for key in self._droppable)
        used += sum(int(stat.get(key, 0)) for key in self._dirty)
        return MemoryReading(max(used, 0), self.limit, self.place)


class MemoryMeter:
    """Reads what the kernel says, below `root`; OSError or ValueError without /proc."""

    def __init__(self, root: Path = Path("/"), has_siblings: bool = False) -> None:
        proc = root / "proc"
        self._proc = str(proc)
        # of the process that started those of a node: where its children are named, "" for none
        parent = os.getppid()
        self._family = f"{proc}/{parent}/task/{parent}/children" if has_siblings else ""
        self._machine = _machine(str(proc / "meminfo"))
        self._groups = list(_find_groups(root))
        self._count = 0

    def read(self) -> MemoryReading:
        """Look now: of several limits, the nearest. Raises OSError or ValueError likewise."""
        if self._count % LIMITS_EVERY == 0:
            for group in self._groups:
                group.read_limit()
        self._count += 1
        found = [group.read() for group in self._groups if group.limit < self._machine]
        if not found:
            resident = sum(self._resident(pid) for pid in self._pids())
            return MemoryReading(resident, self._machine, "the machine")
        return max(found, key=lambda reading: reading.used / max(reading.total, 1))

    def _pids(self) -> list[str]:
        """Return the processes of the node; this one alone where the kernel does not name them."""
        try:
            return _data(self._family).decode().split() if self._family else ["self"]
        except FileNotFoundError:
            return ["self"]

    def _resident(self, pid: str) -> int:
        """Return the bytes of a process, 0 for one that ended meanwhile."""
        try:
            return int(_data(f"{self._proc}/{pid}/statm").split()[1]) * PAGE_BYTES
        except (FileNotFoundError, ProcessLookupError):
            if pid == "self":
                raise
            return 0


def _find_groups(root: Path) -> Iterator[_Group]:
    """Find the groups of this process, the innermost first."""
    proc = root / "proc"
    paths: dict[str, str] = {}
    for line in _lines(proc / "self/cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0":
            paths["cgroup2"] = path
        elif "memory" in controllers.split(","):
            paths["cgroup"] = path
    for line in _lines(proc / "self/mountinfo"):
        head, _, tail = line.partition(" - ")
        kind, _, options = tail.split(" ", 2)
        if kind not in paths or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        below, mounted_at = head.split(" ")[3:5]
        top = root / mounted_at.lstrip("/")
        make = _v2 if kind == "cgroup2" else _v1
        yield from _upwards(top, _relative(paths[kind], below), make)


def _upwards(top: Path, path: str, make: Callable[[Path], _Group]) -> Iterator[_Group]:
    directory = top / path
    if not directory.is_dir():  # a mount that shows this process's group as its root
        directory = top
    while True:
        group = make(directory)
        if group.exists():
            yield group
        if directory == top:
            return
        directory = directory.parent


def _relative(path: str, below: str) -> str:
    """Return where a group is beneath a mount of the hierarchy's part `below`."""
    if below != "/" and (path == below or path.startswith(below + "/")):
        path = path[len(below) :]
    return path.strip("/") if ".." not in path.split("/") else ""


def _v2(directory: Path) -> _Group:
    # Past memory.high a group is held back so much that it is of no use any more.
    limits = ("memory.max", "memory.high")
    return _Group(directory, limits, "memory.current", V2_DROPPABLE, V2_DIRTY)


def _v1(directory: Path) -> _Group:
    limits = ("memory.limit_in_bytes",)
    return _Group(directory, limits, "memory.usage_in_bytes", V1_DROPPABLE, V1_DIRTY)


def _machine(path: str) -> int:
    words = _data(path).split()
    return int(words[words.index(b"MemTotal:") + 1]) * 1024


def _data(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _table(path: str) -> dict[bytes, bytes]:
    words = _data(path).split()
    return dict(zip(words[::2], words[1::2], strict=False))


def _number(data: bytes) -> int:
    text = data.strip()
    return NO_LIMIT if text == b"max" else int(text)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:  # a kernel without control groups
        return []
