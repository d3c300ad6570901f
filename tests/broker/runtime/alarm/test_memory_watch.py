"""Stages of memory, and the share of the limits that holds in them."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.alarm import STAGE_ALARM, STAGE_PAGING
from headrace_broker.model.limits import MEMORY_SAMPLE_MS, SHARE_MIN
from headrace_broker.runtime.alarm.memory_meter import MemoryReading
from headrace_broker.runtime.alarm.memory_watch import MemoryWatch, marks_of, share_of

MIB = 1 << 20


class World:
    """A process whose memory the test decides."""

    def __init__(self) -> None:
        self.used = 100
        self.total = 1000
        self.error: Exception | None = None
        self.now_ns = 0
        self.looks = 0
        self.watch = MemoryWatch(self, self.looked, lambda: self.now_ns)

    def read(self) -> MemoryReading:
        if self.error is not None:
            raise self.error
        return MemoryReading(self.used * MIB, self.total * MIB, "a test")

    def looked(self) -> None:
        self.looks += 1

    def poll(self, used: int, times: int = 1) -> tuple[int, int]:
        self.used = used
        for _ in range(times):
            self.now_ns += 200_000_000
            self.watch.poll()
        return self.watch.stage, self.watch.share


@pytest.fixture
def world() -> World:
    return World()


def test_stages_follow_memory_and_the_share_shrinks_between_them(world: World) -> None:
    assert world.poll(499, 20) == (0, 100)
    assert world.poll(500, 20) == (STAGE_PAGING, 100)
    for used in range(501, 550):
        world.poll(used, 5)
    assert world.poll(550) == (STAGE_PAGING, 55)
    for used in range(551, 599):
        world.poll(used, 20)
    assert world.poll(598) == (STAGE_PAGING, 10)
    assert world.poll(600) == (STAGE_ALARM, SHARE_MIN)
    assert world.watch.limit == 600 * MIB
    assert world.poll(575, 20) == (STAGE_ALARM, SHARE_MIN), "not below the low mark"
    assert world.poll(560, 20) == (STAGE_PAGING, 45)
    assert world.poll(100, 20) == (0, 100)


def test_watermarks_that_change_count_at_once(world: World) -> None:
    world.poll(300, 5)
    world.watch.set_watermarks("0.1", "0.2")
    assert (world.watch.stage, world.watch.limit) == (STAGE_ALARM, 200 * MIB)
    world.watch.set_watermarks("0.5", 400 * MIB)
    assert (world.watch.stage, world.watch.limit) == (0, 400 * MIB)
    world.watch.set_watermarks("0.5", "0.000000001")
    assert world.watch.stage == STAGE_ALARM


def test_the_same_watermarks_again_change_nothing(world: World) -> None:
    world.poll(600)
    looks = world.looks
    world.poll(580)
    world.watch.set_watermarks("0.5", "0.6")
    assert world.watch.stage == STAGE_ALARM
    assert world.looks == looks + 1


def test_a_limit_of_the_system_that_changes_moves_the_marks(world: World) -> None:
    world.poll(300)
    world.total = 400
    assert world.poll(300)[0] == STAGE_ALARM


def test_what_cannot_be_read_leaves_the_stage_and_is_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.poll(700)
    world.error = OSError("gone")
    assert world.poll(1, 10)[0] == STAGE_ALARM
    assert [r.levelno for r in caplog.records if "cannot be read" in r.message] == [logging.WARNING]
    world.error = None
    assert world.poll(1, 20)[0] == 0


def test_changes_are_logged_with_figures(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world.poll(700)
    world.poll(1, 20)
    says = "paging from 500 MiB, publishers blocked from 600 MiB"
    assert f"whole cluster: 700 MiB of 1000 MiB used, {says}" in caplog.text
    assert f"there is enough again: 1 MiB of 1000 MiB used, {says}" in caplog.text


def test_where_memory_is_not_known_there_is_no_stage() -> None:
    async def work() -> None:
        watch = MemoryWatch(None, lambda: None)
        watch.set_watermarks("0.0", "0.0")
        watch.start()
        assert (watch.stage, watch.share, watch.total) == (0, 100, 0)
        watch.stop()

    asyncio.run(work())


def test_it_looks_again_until_stopped(world: World) -> None:
    async def work() -> None:
        world.watch.start()
        handle = world.watch._handle
        assert handle is not None
        assert 0 < handle.when() - asyncio.get_running_loop().time() <= MEMORY_SAMPLE_MS / 1000
        world.watch.stop()
        assert handle.cancelled()
        world.watch.stop()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("paging", "high", "marks"),
    [
        ("0.5", "0.6", (500, 600)),
        (100, "0.6", (100, 600)),
        ("0.5", 300, (250, 300)),
        ("0.6", "0.6", (500, 600)),
        ("0.5", "0.0", (0, 0)),
        ("1.0", 5000, (833, 1000)),
    ],
)
def test_marks(paging: int | str, high: int | str, marks: tuple[int, int]) -> None:
    assert marks_of(paging, high, 1000) == marks


@given(used=st.integers(0, 2000), more=st.integers(0, 2000), first=st.integers(0, 999))
def test_the_share_falls_as_memory_grows_and_stays_within_bounds(
    used: int, more: int, first: int
) -> None:
    share = share_of(used, first, 1000)
    assert SHARE_MIN <= share <= 100
    assert share_of(used + more, first, 1000) <= share
    assert share_of(first, first, 1000) == 100
    assert share_of(1000, first, 1000) == SHARE_MIN
