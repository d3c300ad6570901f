"""A disk in memory that stops for a look before each call that changes it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from hashlib import blake2b

from headrace_raftlog.storage.disk.memory_files import MemoryFiles


class ObservedFiles(MemoryFiles):
    """A disk that reports each call; after a failed sync its data is in doubt.

    Attributes:
        on_call: called before each call takes effect, with a description of it.
        trace: those descriptions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_call: Callable[[str], None] = lambda call: None
        self.trace: list[str] = []
        self._detail = ""
        self._faulty = False

    def fail(self, call: str, skip: int, number: int) -> None:
        """Let a call fail once, after as many calls of its kind succeed.

        Args:
            call: name of the method.
            skip: calls that succeed before.
            number: the error, as in `errno`.
        """
        left = skip

        def fault(name: str, path: str) -> None:
            nonlocal left
            if name == call:
                left -= 1
                if left == -1:
                    raise OSError(number, errno.errorcode[number], path)

        self.fault = fault
        self._faulty = True

    def fill(self, spare: int) -> None:
        """Leave only so many bytes of space."""
        self.capacity_bytes = sum(len(file.written) for file in self._names.values()) + spare
        self._faulty = True

    def heal(self) -> None:
        """End all faults."""
        self.fault = lambda call, path: None
        self.capacity_bytes = 0
        self._faulty = False

    def is_faulty(self) -> bool:
        """Return whether calls may fail."""
        return self._faulty

    def _enter(self, call: str, path: str) -> None:
        self.trace.append(f"{call} {path}{self._detail}")
        self._detail = ""
        self.on_call(self.trace[-1])
        super()._enter(call, path)

    def write(self, fd: int, data: bytes, offset: int) -> int:
        """See `Files.write`."""
        self._detail = f" {len(data)} bytes at {offset}"
        return super().write(fd, data, offset)

    def _sync(self, fd: int, start: int, stop: int) -> None:
        try:
            super()._sync(fd, start, stop)
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
