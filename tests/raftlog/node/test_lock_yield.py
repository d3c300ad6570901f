"""When a busy event loop gives the log's threads the interpreter lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from headrace_raftlog.model.limits import YIELD_AFTER_S, YIELD_AFTER_S_MAX, YIELD_S
from headrace_raftlog.node.lock_yield import YIELDS_MAX, Clock, LockYield


class Loop(Clock):
    """Timers that the test lets run, on a loop that works for `share` of the time."""

    def __init__(self, share: float = 1.0) -> None:
        self.timers: list[tuple[float, Callable[[], Any]]] = []
        self.slept: list[float] = []
        self.step: tuple[int, ...] | None = None
        self.seconds = 0.0
        self.share = share
        loop = cast(asyncio.AbstractEventLoop, self)
        self.lock_yield = LockYield(loop, lambda: self.step, self)

    def now(self) -> float:
        return self.seconds

    def worked(self) -> float:
        return self.seconds * self.share

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def call_later(self, delay: float, callback: Callable[[], Any]) -> None:
        self.timers.append((delay, callback))

    def run(self) -> float:
        """Run the only timer; return after how long it was due."""
        ((delay, callback),) = self.timers
        self.timers = []
        self.seconds += delay
        callback()
        return delay


def test_nothing_is_yielded_once_the_work_is_done() -> None:
    loop = Loop()
    loop.lock_yield.begin()
    loop.lock_yield.begin()  # the same timer
    assert loop.run() == YIELD_AFTER_S
    assert (loop.slept, loop.timers) == ([], [])
    loop.lock_yield.begin()  # and again with the next work
    assert len(loop.timers) == 1


def test_the_lock_is_yielded_until_the_work_is_done() -> None:
    loop = Loop()
    loop.lock_yield.begin()
    for batch in range(5):
        loop.step = (batch,)
        assert loop.run() == YIELD_AFTER_S
    assert loop.slept == [YIELD_S] * 5
    loop.step = None
    loop.run()
    assert loop.timers == []


def test_it_is_yielded_rarely_to_threads_that_wait_for_the_disk() -> None:
    loop = Loop()
    loop.lock_yield.begin()
    loop.step = (1,)
    delays = [loop.run() for _ in range(YIELDS_MAX + 8)]
    assert delays[: YIELDS_MAX + 1] == [YIELD_AFTER_S] * (YIELDS_MAX + 1)
    assert delays[YIELDS_MAX + 1] == 2 * YIELD_AFTER_S
    assert delays[-1] == YIELD_AFTER_S_MAX
    loop.step = (2,)
    loop.run()
    assert loop.run() == YIELD_AFTER_S  # a step has ended


def test_loop_that_waits_for_most_of_the_time_does_not_sleep() -> None:
    loop = Loop(share=0.4)
    loop.lock_yield.begin()
    loop.step = (1,)
    loop.run()
    assert loop.slept == []
    loop.share = 0.6
    loop.seconds = 0.0
    loop.lock_yield._since = (0.0, 0.0)
    loop.run()
    assert loop.slept == [YIELD_S]
