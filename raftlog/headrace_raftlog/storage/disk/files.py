"""The one seam between the log and the file system.

Tests put a disk in its place that loses what was not synced, fails on demand, or keeps a record
of the calls; everything else in this package goes through here.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

IOV_MAX: Final = 1024  # pieces one vectored write takes (Linux UIO_MAXIOV)
WITHOUT_FLAG: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
# What systems say of data that a disk does not give any more: a bad sector (EIO, EREMOTEIO,
# ENODATA), or a checksum of the disk or the file system that fails (EILSEQ, EBADMSG, EUCLEAN).
_LOST: Final = (
    errno.EIO,
    errno.EREMOTEIO,
    errno.ENODATA,
    errno.EILSEQ,
    errno.EBADMSG,
    errno.EUCLEAN,
)
_BLOCK_BYTES: Final = 4096  # what is given up together where a disk cannot be read


class Files:
    """System calls, thinly: every method may raise OSError and none retries."""

    def __init__(self) -> None:
        self._write_sync_flag = getattr(os, "RWF_DSYNC", 0)
        self._no_wait_flag = getattr(os, "RWF_NOWAIT", 0)

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(path.name for path in Path(directory).iterdir())

    def make_directory(self, directory: str) -> None:
        """Create a directory with its parents, durably, unless it exists."""
        missing: list[Path] = []
        path = Path(directory).absolute()
        while not path.exists():
            missing.append(path)
            path = path.parent
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            self.sync_directory(str(each.parent))
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)

    def create(self, path: str) -> int:
        """Create a file that must not exist; return a descriptor to read and write."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)

    def open(self, path: str, *, write: bool = False) -> int:
        """Open an existing file."""
        return os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def size(self, fd: int) -> int:
        """Return a file's length in bytes."""
        return os.fstat(fd).st_size

    def read(self, fd: int, count: int, offset: int) -> bytes:
        """Return `count` bytes from `offset`, fewer only at the end of the file."""
        data = os.pread(fd, count, offset)
        if len(data) == count:
            return data
        parts = [data]
        while data and count > sum(map(len, parts)):
            done = sum(map(len, parts))
            data = os.pread(fd, count - done, offset + done)
            parts.append(data)
        return b"".join(parts)

    def read_cached(self, fd: int, count: int, offset: int) -> bytes | None:
        """Return bytes that the system has in memory, without waiting for the disk.

        Returns:
            Up to `count` bytes from `offset`, as many as are there; None for none, and always
            where the file system cannot tell (RWF_NOWAIT).
        """
        if not self._no_wait_flag:
            return None
        data = bytearray(count)
        try:
            taken = os.preadv(fd, [data], offset, self._no_wait_flag)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in WITHOUT_FLAG:
                raise
            self._no_wait_flag = 0
            return None
        return bytes(data[:taken]) if taken < count else bytes(data)

    def expect(self, fd: int, offset: int, count: int) -> None:
        """Advise the system that bytes will be read soon; it may prefetch them."""
        os.posix_fadvise(fd, offset, count, os.POSIX_FADV_WILLNEED)

    def write(self, fd: int, data: bytes, offset: int) -> int:
        """Write without sync; return how many bytes were taken, possibly fewer than given."""
        return os.pwrite(fd, data, offset)

    def reserve(self, fd: int, offset: int, count: int) -> bool:
        """Set space aside for bytes, which read as zeros until they are written.

        Returns:
            False where the file system cannot; nothing is changed then.
        """
        try:
            os.posix_fallocate(fd, offset, count)
        except OSError as error:
            if error.errno not in WITHOUT_FLAG:
                raise
            return False
        return True

    def write_through(self, fd: int, pieces: list[bytes], offset: int) -> int:
        """Write at most IOV_MAX pieces one behind the other and sync them.

        Where the kernel can, write and sync are one call (RWF_DSYNC, as a file opened with
        O_DSYNC would do): the writer thread then takes the interpreter lock once per batch less.

        Returns:
            Bytes written and durable; fewer than given after a short write.
        """
        if self._write_sync_flag:
            try:
                return os.pwritev(fd, pieces, offset, self._write_sync_flag)
            except OSError as error:
                if error.errno not in WITHOUT_FLAG:
                    raise
                self._write_sync_flag = 0
        written = os.pwritev(fd, pieces, offset)
        os.fdatasync(fd)
        return written

    def sync(self, fd: int) -> None:
        """Make a file's data and length durable."""
        os.fdatasync(fd)

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing an existing one; durable after `sync_directory`."""
        Path(source).replace(target)

    def remove(self, path: str) -> None:
        """Remove a file's name; durable after `sync_directory`."""
        Path(path).unlink()

    def sync_directory(self, directory: str) -> None:
        """Make the names in a directory durable."""
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> int:
        """Create and lock a file for this opening alone; return the descriptor that holds the lock.

        Raises BlockingIOError: another process, or another opening in this one, holds it.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd

    def open_directory(self, path: str) -> int:
        """Open a directory, to look names up in it wherever it is moved."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def leads_to(self, path: str, fd: int, directory: int | None = None) -> bool:
        """Return whether a path still leads to the open file.

        Args:
            path: absolute, or a name.
            fd: an open file or directory.
            directory: in which the name is looked up.
        """
        try:
            found = os.stat(path, dir_fd=directory)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(found, os.fstat(fd))

    def random(self, count: int) -> bytes:
        """Return random bytes for a new log's salt."""
        return os.urandom(count)


def is_lost(error: OSError) -> bool:
    """Return whether a read failed because the disk has lost the data."""
    return error.errno in _LOST


def read_around(files: Files, fd: int, count: int, offset: int) -> bytes:
    """Return bytes of a file, with 0xFF in the place of what the disk has lost.

    No record is intact with it, and it is not taken for space that was never written.

    Raises OSError: it cannot be read for another reason.
    """
    try:
        return files.read(fd, count, offset)
    except OSError as error:
        if not is_lost(error):
            raise
    parts: list[bytes] = []
    at = offset
    while at < offset + count:
        size = min(_BLOCK_BYTES - at % _BLOCK_BYTES, offset + count - at)
        try:
            parts.append(files.read(fd, size, at))
        except OSError as error:
            if not is_lost(error):
                raise
            parts.append(b"\xff" * size)
        at += size
    return b"".join(parts)


def write_all(files: Files, fd: int, pieces: list[bytes], size: int, offset: int) -> None:
    """Write pieces one behind the other and sync them, however little the system takes at once.

    Raises OSError: nothing is known about what reached the disk.
    """
    if len(pieces) > IOV_MAX:
        pieces = [b"".join(pieces)]
    done = files.write_through(fd, pieces, offset)
    if done == size:
        return
    rest = b"".join(pieces)
    while done < size:
        taken = files.write(fd, rest[done:], offset + done)
        if taken <= 0:
            raise OSError(errno.EIO, "the system took no byte of a write")
        done += taken
    files.sync(fd)
