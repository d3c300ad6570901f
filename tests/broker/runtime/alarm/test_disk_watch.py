"""When publishers are blocked for want of disk."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace_broker.model.limits import DISK_SAMPLE_MS
from headrace_broker.runtime.alarm.disk_watch import DiskWatch

MIB = 1 << 20
LIMIT = 100 * MIB


class Disk:
    """A disk, and the watch that looks at it."""

    def __init__(self) -> None:
        self.free = LIMIT * 2
        self.full = False
        self.error: OSError | None = None
        self.looks = 0
        self.now_ns = 0
        self.watch = DiskWatch("/data", lambda: self.full, self.looked, lambda: self.now_ns)
        self.watch.set_limit(LIMIT)

    def looked(self) -> None:
        self.looks += 1

    def usage(self, directory: str) -> Any:
        assert directory == "/data"
        if self.error is not None:
            raise self.error
        return SimpleNamespace(free=self.free, total=10 * LIMIT)

    def poll(self, free: int, times: int = 1) -> bool:
        self.free = free
        for _ in range(times):
            self.now_ns += 250_000_000
            self.watch.poll()
        return self.watch.alarm


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk()
    monkeypatch.setattr("headrace_broker.runtime.alarm.disk_watch.shutil.disk_usage", found.usage)
    return found


def test_enough_room_is_no_alarm(disk: Disk) -> None:
    assert not disk.poll(LIMIT, 20)


def test_below_the_limit_is_an_alarm_until_a_tenth_more_is_free(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert disk.poll(LIMIT - 1)
    assert "nearly full, publishers are blocked" in caplog.text
    assert "99 MiB free of 1000 MiB, the limit is 100 MiB" in caplog.text
    assert disk.poll(LIMIT + LIMIT // 10 - 1, 20)
    assert not disk.poll(LIMIT + LIMIT // 10, 20)
    assert "there is room again: 110 MiB free" in caplog.text


def test_a_disk_that_fills_fast_is_an_alarm_before(disk: Disk) -> None:
    free = 1000 * MIB
    while not disk.poll(free):
        free -= 20 * MIB
    assert LIMIT + 60 * MIB <= free <= LIMIT + 100 * MIB


def test_another_limit_counts_at_once(disk: Disk) -> None:
    disk.poll(LIMIT)
    disk.watch.set_limit(2 * LIMIT)
    assert disk.watch.alarm
    disk.watch.set_limit(LIMIT)
    assert not disk.watch.alarm


def test_a_full_log_is_an_alarm_whatever_the_limit(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.watch.set_limit(0)
    assert not disk.poll(0, 5)
    disk.full = True
    assert disk.poll(0)
    assert "full, no room for the log" in caplog.text
    disk.full = False
    assert not disk.poll(0)


def test_space_that_is_not_known_changes_nothing_and_is_logged_once(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.error = OSError("gone")
    assert not disk.poll(0, 5)
    assert caplog.text.count("cannot be read: gone") == 1
    disk.full = True
    assert disk.poll(0)


def test_it_looks_again_until_stopped(disk: Disk) -> None:
    async def work() -> None:
        disk.watch.start()
        handle = disk.watch._handle
        assert handle is not None
        assert 0 < handle.when() - asyncio.get_running_loop().time() <= DISK_SAMPLE_MS / 1000
        disk.watch.stop()
        assert handle.cancelled()
        disk.watch.stop()
        assert disk.looks == 1

    asyncio.run(work())
