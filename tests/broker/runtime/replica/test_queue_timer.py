"""Queues woken at their times; the loop's timers fire when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.model.limits import TIMER_STEP_MS, TIMER_WAKES_MAX
from headrace_broker.runtime.replica.queue_timer import SLEEP_SECONDS_MAX, QueueTimer


class Handle:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """A loop whose clock is the test's, in milliseconds."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.handles: list[Handle] = []
        self.turns = 0

    def call_soon(self, call: Callable[[], None]) -> Handle:
        return self.call_later(0, call)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Handle:
        handle = Handle(self.now + seconds * 1000, call)
        self.handles.append(handle)
        return handle

    @property
    def pending(self) -> list[Handle]:
        self.handles = [handle for handle in self.handles if not handle.cancelled]
        return self.handles

    def advance(self, ms: int) -> None:
        """Let time pass and run what is due, in order."""
        end = self.now + ms
        while True:
            due = [handle for handle in self.pending if handle.at <= end]
            if not due:
                break
            handle = min(due, key=lambda each: each.at)
            self.handles.remove(handle)
            self.now = max(self.now, -int(-handle.at // 1))
            self.turns += 1
            handle.call()
        self.now = end


class Scene:
    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.woken: list[tuple[int, int]] = []
        self.timer = QueueTimer(self._wake, lambda: loop.now)

    def _wake(self, group: int, now: int) -> None:
        self.woken.append((group, now))

    @property
    def groups(self) -> list[int]:
        return [group for group, _ in self.woken]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A timer on a loop whose time the test moves."""
    loop: Any = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    return Scene(loop)


def test_queue_is_woken_once_within_a_step_of_its_time(scene: Scene):
    due = scene.loop.now + 1234
    scene.timer.arm(7, due)
    scene.loop.advance(1233)
    assert scene.woken == []
    scene.loop.advance(TIMER_STEP_MS)
    [(group, now)] = scene.woken
    assert (group, 0 <= now - due < TIMER_STEP_MS) == (7, True)
    scene.loop.advance(60_000)
    assert len(scene.woken) == 1
    assert len(scene.timer._armed) == 0


def test_timer_without_queues_sets_no_timer(scene: Scene):
    assert scene.loop.pending == []
    scene.timer.arm(7, scene.loop.now + 10)
    scene.loop.advance(1000)
    assert scene.loop.pending == []


def test_what_is_overdue_is_woken_in_the_next_turn(scene: Scene):
    scene.timer.arm(7, scene.loop.now - 5000)
    scene.loop.advance(0)
    assert scene.groups == [7]


def test_earlier_time_counts_and_a_later_one_changes_nothing(scene: Scene):
    now = scene.loop.now
    scene.timer.arm(7, now + 5000)
    scene.timer.arm(7, now + 1000)
    scene.timer.arm(7, now + 9000)
    assert scene.timer._armed.get(7, 0) == now + 1000
    scene.loop.advance(1000)
    assert scene.groups == [7]
    scene.loop.advance(20_000)
    assert scene.groups == [7]


def test_queue_may_be_armed_again_while_it_is_woken(scene: Scene):
    timer = scene.timer

    def wake(group: int, now: int) -> None:
        scene.woken.append((group, now))
        if len(scene.woken) < 3:
            timer.arm(group, now)

    timer._wake = wake
    timer.arm(7, scene.loop.now)
    scene.loop.advance(500)
    assert scene.groups == [7, 7, 7]


def test_forgotten_queue_is_not_woken(scene: Scene):
    scene.timer.arm(7, scene.loop.now + 10)
    scene.timer.arm(8, scene.loop.now + 10)
    scene.timer.forget(7)
    scene.timer.forget(9)
    scene.loop.advance(1000)
    assert scene.groups == [8]


def test_queue_forgotten_while_it_waits_for_its_turn_is_not_woken(scene: Scene):
    for group in range(TIMER_WAKES_MAX + 1):
        scene.timer.arm(group, scene.loop.now)

    def wake(group: int, now: int) -> None:
        scene.timer.forget(TIMER_WAKES_MAX)
        scene.woken.append((group, now))

    scene.timer._wake = wake
    scene.loop.advance(1000)
    assert TIMER_WAKES_MAX not in scene.groups
    assert len(scene.woken) == TIMER_WAKES_MAX


def test_many_queues_due_at_once_share_the_turns_of_the_loop(scene: Scene):
    count = 10_000
    for group in range(count):
        scene.timer.arm(group, scene.loop.now + 1000 + group % 50)
    assert len(scene.loop.pending) == 1
    scene.loop.advance(2000)
    assert sorted(scene.groups) == list(range(count))
    assert -(-count // TIMER_WAKES_MAX) <= scene.loop.turns <= 2 + -(-count // TIMER_WAKES_MAX)


def test_steps_that_nobody_waits_for_are_forgotten(scene: Scene):
    for earlier in range(10_000):
        scene.timer.arm(7, scene.loop.now + 10_000_000 - earlier * TIMER_STEP_MS)
    assert len(scene.timer._steps) < 100
    assert len(scene.timer._queues) == 1


def test_sleep_is_bounded_for_the_clock_may_be_set(scene: Scene):
    scene.timer.arm(7, scene.loop.now + 3_600_000)
    [handle] = scene.loop.pending
    assert handle.at == scene.loop.now + SLEEP_SECONDS_MAX * 1000
    scene.loop.now += 3_600_000
    scene.loop.advance(0)
    assert scene.groups == [7]


def test_stopped_timer_wakes_nobody(scene: Scene):
    scene.timer.arm(7, scene.loop.now)
    scene.timer.stop()
    scene.timer.arm(8, scene.loop.now)
    assert scene.loop.pending == []
    scene.loop.advance(1000)
    assert scene.woken == []


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-300, 900), st.integers(0, 400))))
def test_everybody_is_woken_in_time(moves: list[tuple[int, int, int]]):
    loop: Any = Loop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "get_running_loop", lambda: loop)
        scene = Scene(loop)
        due: dict[int, int] = {}
        for group, ahead, pause in moves:
            scene.timer.arm(group, loop.now + ahead)
            due[group] = min(due.get(group, 1 << 60), loop.now + ahead)
            loop.advance(pause)
            for woken, now in scene.woken:
                assert now >= due.pop(woken)
            scene.woken.clear()
            assert all(loop.now < at + TIMER_STEP_MS for at in due.values())
        assert len(scene.timer._armed) == len(due)


def test_it_runs_on_a_real_loop():
    async def work() -> list[int]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        woken: list[int] = []

        def wake(group: int, now: int) -> None:
            woken.append(group)
            done.set_result(None)

        timer = QueueTimer(wake, lambda: 1000)
        timer.arm(3, 900)
        async with asyncio.timeout(5):
            await done
        return woken

    assert asyncio.run(work()) == [3]
