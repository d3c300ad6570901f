"""The slow disk delays what makes data durable, and only while it is told to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from e2e.chaos.disk import SlowDisk

# Prints the seconds that one durable write of each kind took.
WRITER = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for call in (lambda: os.pwritev(fd, [b"x"], 0, os.RWF_DSYNC), lambda: os.fdatasync(fd),
             lambda: os.fsync(fd)):
    start = time.monotonic()
    call()
    print(time.monotonic() - start)
"""
DELAY_MS = 300


def seconds_of_each_sync(disk: SlowDisk, file: Path) -> list[float]:
    command = [sys.executable, "-c", WRITER, str(file)]
    environment = {**os.environ, **disk.environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def test_every_kind_of_sync_takes_at_least_the_delay(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path / "slow")
    disk.set_delay(DELAY_MS)
    seconds = seconds_of_each_sync(disk, tmp_path / "file")
    assert len(seconds) == 3
    assert min(seconds) >= DELAY_MS / 1000


def test_a_stall_ends_when_the_delay_is_taken_back(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path / "slow")
    disk.set_delay(3_600_000)
    command = [sys.executable, "-c", WRITER, str(tmp_path / "file")]
    environment = {**os.environ, **disk.environment}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as stalled:
        disk.set_delay(0)
        assert stalled.wait(60) == 0
