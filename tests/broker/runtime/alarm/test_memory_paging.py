"""Garbage is searched for in the whole heap for a bounded part of the time."""

from __future__ import annotations

import asyncio
import gc

import pytest

from headrace_broker.model.limits import (
    GARBAGE_GROWN_BYTES,
    GARBAGE_GROWN_PARTS,
    GARBAGE_PARTS,
    GARBAGE_YOUNG_PASSES,
)
from headrace_broker.runtime.alarm.memory_paging import NEVER, Garbage

TOOK_US = 50_000


class World:
    """A process: its memory, its clock and its garbage collector."""

    def __init__(self) -> None:
        self.used = 1 << 30
        self.stage = 0
        self.now_us = 0
        self.passes = GARBAGE_YOUNG_PASSES
        self.searches = 0
        self.garbage = Garbage(self, self.search, lambda: self.passes, lambda: self.now_us)

    def search(self) -> None:
        self.searches += 1
        self.now_us += TOOK_US

    def look_in(self, microseconds: int) -> int:
        """Look so much later; return how many searches there were then."""
        self.now_us += microseconds
        before = self.searches
        self.garbage.poll()
        return self.searches - before


@pytest.fixture
def world() -> World:
    found = World()
    assert found.look_in(0) == 1
    return found


def test_a_search_rests_for_a_multiple_of_what_it_took(world):
    assert world.look_in(GARBAGE_PARTS * TOOK_US - 1) == 0
    assert world.look_in(1) == 1


def test_no_search_where_little_has_come_to_stay(world):
    world.passes = GARBAGE_YOUNG_PASSES - 1
    assert world.look_in(1 << 40) == 0


@pytest.mark.parametrize("scarce", [False, True])
def test_memory_that_grew_or_is_scarce_is_searched_sooner(world, scarce):
    if scarce:
        world.stage = 1
    else:
        world.used += GARBAGE_GROWN_BYTES
    assert world.look_in(GARBAGE_GROWN_PARTS * TOOK_US - 1) == 0
    assert world.look_in(1) == 1
    assert world.look_in(GARBAGE_GROWN_PARTS * TOOK_US) == int(scarce)


def test_a_search_that_fails_is_not_the_last():
    async def run() -> None:
        world = World()
        handles: list[object] = []

        def fail() -> None:
            raise MemoryError

        garbage = Garbage(world, fail, lambda: world.passes, lambda: world.now_us)
        with pytest.raises(MemoryError):
            garbage.start()
        handles.append(garbage._handle)
        garbage.stop()
        assert handles[0] is not None

    asyncio.run(run())


def test_the_interpreter_searches_by_itself_only_before_and_after():
    async def run() -> None:
        before = gc.get_threshold()
        garbage = World().garbage
        garbage.start()
        assert gc.get_threshold() == (*before[:2], NEVER)
        garbage.start()
        garbage.stop()
        garbage.stop()
        assert gc.get_threshold() == before

    asyncio.run(run())
