"""Replicas that a node opens when it starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from headrace_broker.model.limits import OPENINGS_PER_TURN
from headrace_broker.runtime.hosting.openings import Openings


class World:
    """Openings that note what they open."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.failures: list[BaseException] = []
        self.broken = -1
        self.openings = Openings(self._open, self.failures.append)

    def _open(self, queue: Any) -> None:
        if queue.group == self.broken:
            raise OSError("unreadable")
        self.opened.append(queue.group)

    def add(self, *groups: int) -> None:
        for group in groups:
            queue: Any = SimpleNamespace(group=group)
            self.openings.add(queue)


def run(body: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await body(World())

    asyncio.run(main())


def test_some_are_opened_in_a_turn_and_others_have_theirs() -> None:
    async def body(w: World) -> None:
        count = 3 * OPENINGS_PER_TURN + 1
        w.add(*range(count))
        assert not w.opened
        seen: list[int] = []
        while len(w.opened) < count:
            await asyncio.sleep(0)
            seen.append(len(w.opened))
        assert seen[:3] == [64, 128, 192]
        await w.openings.finish()
        assert w.opened == list(range(count))

    run(body)


def test_what_happens_to_a_queue_that_waits_happens_to_its_replica() -> None:
    async def body(w: World) -> None:
        w.add(1, 2, 3)
        w.openings.settle(2)
        assert w.opened == [2]
        w.openings.settle(2)
        w.openings.settle(7)
        assert w.opened == [2]
        await w.openings.finish()
        assert w.opened == [2, 1, 3]

    run(body)


def test_those_that_come_later_are_opened_too_and_at_once_when_the_start_is_over() -> None:
    async def body(w: World) -> None:
        for group in range(1, 9):  # each in another turn of the task's end
            w.add(group)
            for _ in range(group % 4):
                await asyncio.sleep(0)
        await w.openings.finish()
        assert w.opened == list(range(1, 9))
        w.add(9)
        assert w.opened[-1] == 9
        await w.openings.finish()

    run(body)


def test_an_error_is_reported_and_ends_it() -> None:
    async def body(w: World) -> None:
        w.broken = 2
        w.add(1, 2, 3)
        await w.openings.finish()
        assert [type(failure) for failure in w.failures] == [OSError]
        assert w.opened == [1]

    run(body)


def test_none_is_opened_after_the_stop() -> None:
    async def body(w: World) -> None:
        w.openings.stop()
        w.add(*range(2 * OPENINGS_PER_TURN))
        await asyncio.sleep(0)
        w.openings.stop()
        await w.openings.finish()
        assert len(w.opened) == OPENINGS_PER_TURN
        assert not w.failures

    run(body)
