"""How long the disk takes to make a little data durable."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

FILE_BYTES: Final = 8 << 20
BLOCK: Final = b"\xa5" * 4096


def fdatasync_seconds(directory: Path, seconds: float) -> list[float]:
    """Return how long each write of 4 KiB with its fdatasync took, one after the other.

    The file is filled beforehand, so that no write changes its size: the fastest form there is,
    and the one that the log uses.

    Args:
        directory: on the disk to be measured; a file is made there and removed again.
        seconds: for so long.
    """
    path = directory / "fdatasync-probe"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(fd, bytes(FILE_BYTES), 0)
        os.fsync(fd)
        return _probe(fd, seconds)
    finally:
        os.close(fd)
        path.unlink()


def _probe(fd: int, seconds: float) -> list[float]:
    took: list[float] = []
    now = time.perf_counter()
    end = now + seconds
    offset = 0
    while now < end:
        os.pwrite(fd, BLOCK, offset)
        os.fdatasync(fd)
        then, now = now, time.perf_counter()
        took.append(now - then)
        offset = (offset + len(BLOCK)) % FILE_BYTES
    return took
