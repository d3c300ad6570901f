"""Sync latency of the disk."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

FILE_BYTES: Final = 64 << 20
BLOCK_BYTES: Final = 4 << 10
LARGE_BLOCK_BYTES: Final = 1 << 20


def fdatasync_seconds(directory: Path, seconds: float) -> list[float]:
    """Return how long each write of 4 KiB with its fdatasync took, one after the other.

    The file is filled beforehand, so that no write changes its size: the fastest form there is,
    and the one that the log uses.

    Args:
        directory: on the disk to be measured; a file is made there and removed again.
        seconds: for so long.
    """
    return _probe(directory, BLOCK_BYTES, seconds)


def synced_mb_s(directory: Path, seconds: float) -> float:
    """Return how many MB/s the disk takes in writes of 1 MiB, each with its fdatasync."""
    took = _probe(directory, LARGE_BLOCK_BYTES, seconds)
    return len(took) * LARGE_BLOCK_BYTES / sum(took) / 1e6


def _probe(directory: Path, block_bytes: int, seconds: float) -> list[float]:
    path = directory / "fdatasync-probe"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(fd, bytes(FILE_BYTES), 0)
        os.fsync(fd)
        return _write(fd, os.urandom(block_bytes), seconds)
    finally:
        os.close(fd)
        path.unlink()


def _write(fd: int, block: bytes, seconds: float) -> list[float]:
    took: list[float] = []
    now = time.perf_counter()
    end = now + seconds
    offset = 0
    while now < end:
        os.pwrite(fd, block, offset)
        os.fdatasync(fd)
        then, now = now, time.perf_counter()
        took.append(now - then)
        offset = (offset + len(block)) % FILE_BYTES
    return took
