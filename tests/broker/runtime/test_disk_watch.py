"""When publishers are blocked for want of disk."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from headrace_broker.runtime import disk_watch as module
from headrace_broker.runtime.disk_watch import DiskWatch

LIMIT = 100 << 20


class Disk:
    """A disk and what the watch said about it."""

    def __init__(self):
        self.free = LIMIT * 2
        self.full = False
        self.error = None
        self.said: list[str] = []
        self.watch = DiskWatch("/data", LIMIT, lambda: self.full, self.said.append)

    def usage(self, directory):
        assert directory == "/data"
        if self.error is not None:
            raise self.error
        return SimpleNamespace(free=self.free)

    def look(self):
        """Let a second pass."""

        async def work():
            self.watch._look()
            self.watch.stop()

        asyncio.run(work())
        return self.said


@pytest.fixture
def disk(monkeypatch):
    """A disk with plenty of room."""
    found = Disk()
    monkeypatch.setattr("headrace_broker.runtime.disk_watch.shutil.disk_usage", found.usage)
    return found


def test_enough_room_says_nothing(disk):
    disk.free = LIMIT
    assert disk.look() == []


def test_low_disk_blocks_once_and_names_the_limit(disk):
    disk.free = LIMIT - 1
    disk.look()
    disk.free = LIMIT // 2
    (reason,) = disk.look()
    assert "99 MiB free in /data, 100 MiB wanted (limits.disk_free_bytes_min)" in reason
    assert disk.watch.reason == reason


def test_blocked_until_there_is_a_tenth_more(disk):
    disk.free = LIMIT - 1
    disk.look()
    disk.free = LIMIT + LIMIT // 20
    assert len(disk.look()) == 1
    disk.free = LIMIT + LIMIT // 5
    assert disk.look()[1:] == [""]
    assert disk.watch.reason == ""


def test_full_log_blocks_whatever_the_limit(disk):
    disk.watch._free_bytes_min = 0
    disk.full = True
    (reason,) = disk.look()
    assert "disk full" in reason
    disk.full = False
    assert disk.look()[1:] == [""]


def test_unknown_space_changes_nothing_and_the_watch_goes_on(disk):
    async def work():
        disk.error = OSError("gone")
        disk.watch.start()
        assert disk.watch._handle is not None
        disk.watch.stop()
        assert disk.watch._handle is None

    asyncio.run(work())
    assert disk.said == []
    disk.error = None
    disk.free = 0
    assert len(disk.look()) == 1


def test_watch_looks_again_after_a_second_until_stopped(disk):
    async def work():
        disk.watch.start()
        handle = disk.watch._handle
        assert 0.5 < handle.when() - asyncio.get_running_loop().time() <= module.SAMPLE_SECONDS
        disk.watch.stop()
        assert handle.cancelled()
        disk.watch.stop()

    asyncio.run(work())
