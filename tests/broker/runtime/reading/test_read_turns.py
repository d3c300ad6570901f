"""Turns of those who read a log for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headrace_broker.runtime.replica.reading.read_turns import ReadTurns


class Readers:
    """Tasks that have a place until they are told to go."""

    def __init__(self, places: int) -> None:
        self.turns = ReadTurns(places)
        self.order: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.go: dict[str, asyncio.Event] = {}

    async def add(self, group: int, name: str) -> None:
        self.go[name] = asyncio.Event()
        self.tasks[name] = asyncio.get_running_loop().create_task(self._read(group, name))
        await settle()

    async def _read(self, group: int, name: str) -> None:
        async with self.turns.turn(group):
            self.order.append(name)
            await self.go[name].wait()

    async def end(self, name: str) -> None:
        self.go[name].set()
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(scenario: Callable[[Readers], Awaitable[None]]) -> None:
    async def work() -> None:
        await scenario(Readers(2))

    asyncio.run(work())


def test_queues_take_turns_however_many_read_one_of_them() -> None:
    async def scenario(readers: Readers) -> None:
        for number in range(6):
            await readers.add(7, f"deep {number}")
        await readers.add(8, "other 0")
        await readers.add(8, "other 1")
        assert (readers.order, readers.turns.waiting_count) == (["deep 0", "deep 1"], 6)
        for name in ("deep 0", "deep 1", "deep 2", "other 0"):
            await readers.end(name)
        assert readers.order == ["deep 0", "deep 1", "deep 2", "other 0", "deep 3", "other 1"]
        for name in readers.go:
            await readers.end(name)
        assert (readers.turns.taken, readers.turns.waiting_count) == (0, 0)

    run(scenario)


@pytest.mark.parametrize("in_the_same_moment", [False, True])
def test_who_does_not_wait_any_more_leaves_the_place_to_others(in_the_same_moment) -> None:
    async def scenario(readers: Readers) -> None:
        for name in ("a", "b", "gone", "last"):
            await readers.add(7, name)
        if in_the_same_moment:
            readers.go["a"].set()
            await asyncio.sleep(0)
            assert readers.turns.waiting_count == 1  # it has been given the place of "a"
            readers.tasks["gone"].cancel()
            await settle()
        else:
            readers.tasks["gone"].cancel()
            await settle()
            await readers.end("a")
        assert readers.order == ["a", "b", "last"]
        for name in ("a", "b", "last"):
            await readers.end(name)
        assert readers.turns.taken == 0

    run(scenario)


def test_place_is_given_to_nobody_who_was_cancelled_a_moment_ago() -> None:
    async def scenario(readers: Readers) -> None:
        for name in ("a", "b", "gone", "last"):
            await readers.add(7, name)
        readers.tasks["gone"].cancel()
        readers.go["a"].set()
        await settle()
        assert readers.order == ["a", "b", "last"]
        for name in ("b", "last"):
            await readers.end(name)
        assert readers.turns.taken == 0

    run(scenario)
