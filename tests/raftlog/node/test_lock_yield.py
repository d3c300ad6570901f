"""When a busy event loop gives the log's threads the interpreter lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from headrace_raftlog.model.limits import YIELD_AFTER_S, YIELD_AFTER_S_MAX, YIELD_S
from headrace_raftlog.node.lock_yield import YIELDS_MAX, LockYield


class Loop:
    """Timers that the test lets run."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], Any]]] = []
        self.slept: list[float] = []
        self.step: tuple[int, ...] | None = None
        self.lock_yield = LockYield(
            cast(asyncio.AbstractEventLoop, self), lambda: self.step, self.slept.append
        )

    def call_later(self, delay: float, callback: Callable[[], Any]) -> None:
        self.timers.append((delay, callback))

    def run(self) -> float:
        """Run the only timer; return after how long it was due."""
        ((delay, callback),) = self.timers
        self.timers = []
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
