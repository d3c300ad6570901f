"""A disk in memory that stops for a look before each call that changes it."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from headrace_raftlog.storage.memory_files import MemoryFiles


class ObservedFiles(MemoryFiles):
    """A disk that tells of each call; a failed sync leaves what it should have synced in doubt.

    Attributes:
        on_call: called before each call takes effect, with a description of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_call: Callable[[str], None] = lambda call: None
        self._detail = ""

    def _enter(self, call: str, path: str) -> None:
        self.on_call(f"{call} {path}{self._detail}")
        self._detail = ""
        super()._enter(call, path)

    def write(self, fd: int, data: bytes, offset: int) -> int:
        """See `Files.write`."""
        self._detail = f" {len(data)} bytes at {offset}"
        return super().write(fd, data, offset)

    def sync(self, fd: int) -> None:
        """See `Files.sync`."""
        try:
            super().sync(fd)
        except OSError:
            self._open[fd][0].doubt()
            raise

    def digest(self) -> bytes:
        """Return what stands for all files as a program sees them."""
        digest = blake2b(digest_size=16)
        for path in sorted(self._names):
            hashed = blake2b(self._names[path].written, digest_size=16).digest()
            digest.update(path.encode() + b"\0" + hashed)
        return digest.digest()

    def end_process(self) -> None:
        """Close and unlock everything, as the system does when a process was killed."""
        self._open.clear()
        self._locks.clear()
