"""Garbage is searched for, for a bounded part of the time, and seldom in the whole heap."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from headrace_broker.model.limits import (
    GARBAGE_GROWN_BYTES,
    GARBAGE_GROWN_PARTS,
    GARBAGE_NEW_PARTS,
    GARBAGE_OBJECTS,
    GARBAGE_PARTS,
    GARBAGE_SHORT_SECONDS,
    GARBAGE_WHOLE_BYTES,
    GARBAGE_YOUNG_PASSES,
)
from headrace_broker.runtime.alarm.garbage import NEVER, Garbage, Heap
from headrace_raftlog.node.node import GC_THRESHOLDS

TOOK_US = 50_000
WHOLE_TOOK_US = 2_000_000


class World(Heap):
    """A process: its memory, its clock and its heap."""

    def __init__(self, objects: int = GARBAGE_OBJECTS + 1) -> None:
        self.used = 2 << 30
        self.stage = 0
        self.now_us = 0
        self.whole_took_us = WHOLE_TOOK_US
        self.passes = GARBAGE_YOUNG_PASSES
        self.objects = objects
        self.aside = False  # whether any were put aside
        self.searches = 0
        self.whole_searches = 0
        self.garbage = Garbage(self, self, lambda: self.now_us)

    def search(self) -> None:
        self.searches += 1
        self.whole_searches += not self.aside
        self.now_us += TOOK_US if self.aside else self.whole_took_us

    def put_aside(self) -> None:
        self.aside = True

    def take_back(self) -> None:
        self.aside = False

    def count(self) -> int:
        return self.objects

    def young_passes(self) -> int:
        return self.passes

    def look_in(self, microseconds: int) -> int:
        """Look so much later; return how many searches there were then."""
        self.now_us += microseconds
        before = self.searches
        self.garbage.poll()
        return self.searches - before

    def whole_in(self, microseconds: int) -> int:
        """Look so much later; return how many searches of everything there were then."""
        before = self.whole_searches
        self.look_in(microseconds)
        return self.whole_searches - before


@pytest.fixture
def world() -> World:
    found = World()
    found.garbage.caught_up()
    assert found.look_in(0) == 1
    assert found.whole_searches == 0
    return found


def test_what_has_come_is_searched_soon_where_the_rest_is_put_aside(world):
    assert world.look_in(GARBAGE_NEW_PARTS * TOOK_US - 1) == 0
    assert world.look_in(1) == 1
    assert world.whole_searches == 0


def test_no_search_where_little_has_come_to_stay(world):
    world.passes = GARBAGE_YOUNG_PASSES - 1
    assert world.look_in(1 << 40) == 0


def test_memory_that_grew_is_searched_sooner():
    world = World(GARBAGE_OBJECTS)
    assert world.look_in(0) == 1
    world.used += GARBAGE_GROWN_BYTES
    assert world.look_in(GARBAGE_GROWN_PARTS * WHOLE_TOOK_US - 1) == 0
    assert world.look_in(1) == 1
    assert world.look_in(GARBAGE_GROWN_PARTS * WHOLE_TOOK_US) == 0
    world.stage = 1
    assert world.look_in(0) == 1  # it became scarce
    assert world.look_in(GARBAGE_GROWN_PARTS * WHOLE_TOOK_US) == 1


def test_everything_is_searched_once_when_memory_becomes_scarce(world):
    world.stage = 1
    assert world.whole_in(0) == 1
    assert world.look_in(GARBAGE_NEW_PARTS * WHOLE_TOOK_US - 1) == 0
    assert world.look_in(1) == 1
    assert world.whole_in(1 << 40) == 0
    world.used += GARBAGE_GROWN_BYTES
    assert world.whole_in(0) == 1
    assert world.whole_in(1 << 40) == 0
    world.stage = 0
    assert world.whole_in(1 << 40) == 0
    world.stage = 2
    assert world.whole_in(0) == 1


def test_everything_is_searched_when_memory_has_doubled(world):
    assert world.whole_in(1 << 40) == 0
    world.used = 2 * world.used - 1
    assert world.whole_in(1 << 40) == 0
    world.used += 1
    assert world.whole_in(0) == 1
    assert world.whole_in(1 << 40) == 0
    world.used *= 2
    world.garbage.caught_up()
    assert world.whole_in(1 << 40) == 0


def test_search_of_everything_rests_for_a_multiple_of_what_it_took(world):
    world.stage = 1
    assert world.whole_in(0) == 1
    world.stage = 2
    assert world.whole_in(GARBAGE_GROWN_PARTS * WHOLE_TOOK_US - 1) == 0
    assert world.whole_in(1) == 1


def test_little_memory_is_not_searched_as_a_whole_for_having_doubled():
    world = World()
    world.used = GARBAGE_WHOLE_BYTES // 2
    world.garbage.caught_up()
    world.used += GARBAGE_WHOLE_BYTES - 1
    assert world.whole_in(1 << 40) == 0
    world.used += 1
    assert world.whole_in(1 << 40) == 1


def test_few_objects_are_searched_when_memory_has_grown_whatever_has_come_to_stay():
    world = World(GARBAGE_OBJECTS)
    world.used = GARBAGE_GROWN_BYTES
    world.passes = 0
    world.garbage.caught_up()
    assert world.look_in(1 << 40) == 0
    world.used += GARBAGE_GROWN_BYTES
    assert world.whole_in(0) == 1


def test_a_heap_that_is_small_again_is_put_aside_no_more(world):
    world.objects = GARBAGE_OBJECTS
    world.stage = 1
    assert world.whole_in(0) == 1  # which took long: they are not counted
    assert world.aside
    world.whole_took_us = int(GARBAGE_SHORT_SECONDS * 1_000_000)
    world.used += GARBAGE_GROWN_BYTES
    assert world.whole_in(1 << 40) == 1
    assert not world.aside


def test_everything_is_searched_each_time_while_it_is_not_much():
    world = World(GARBAGE_OBJECTS)
    world.garbage.caught_up()
    assert world.whole_in(0) == 1
    assert world.look_in(GARBAGE_PARTS * WHOLE_TOOK_US - 1) == 0
    world.objects += 1
    assert world.whole_in(1) == 1
    assert world.look_in(GARBAGE_PARTS * WHOLE_TOOK_US) == 1
    assert world.whole_searches == 2


def test_small_heap_is_not_put_aside_and_what_was_before_stays_so():
    world = World(GARBAGE_OBJECTS)
    world.garbage.caught_up()
    assert not world.aside
    world.aside = True  # imported modules, say
    assert world.look_in(0) == 1
    assert world.aside


def test_everything_is_searched_each_time_where_memory_is_not_known(world):
    world.used = 0
    assert world.whole_in(1 << 40) == 1
    assert world.look_in(GARBAGE_PARTS * WHOLE_TOOK_US - 1) == 0
    assert world.whole_in(1) == 1


def test_a_node_that_starts_lets_the_interpreter_begin_no_search_of_all() -> None:
    before = gc.get_threshold()

    async def look() -> None:
        garbage = Garbage(World(), Heap())
        garbage.start()
        try:
            gc.set_threshold(*GC_THRESHOLDS)  # as a RaftNode does when it starts
            assert gc.get_threshold() == (*GC_THRESHOLDS, NEVER)
        finally:
            garbage.stop()

    asyncio.run(look())
    assert gc.get_threshold() == before


class Cycle:
    """An object that only a search frees."""

    def __init__(self) -> None:
        self.itself = self


class LargeHeap(Heap):
    """The heap of this process, with more objects than it has."""

    def count(self) -> int:
        return GARBAGE_OBJECTS + super().count()

    def young_passes(self) -> int:
        return GARBAGE_YOUNG_PASSES


def test_a_cycle_that_was_put_aside_is_found_by_a_search_of_everything():
    world = World()
    garbage = Garbage(world, LargeHeap(), lambda: world.now_us)
    old = Cycle()
    try:
        garbage.caught_up()
        young = Cycle()
        found = [weakref.ref(each) for each in (old, young)]
        del old, young
        garbage.poll()
        assert [each() is None for each in found] == [False, True]
        world.stage = 1
        garbage.poll()
        assert found[0]() is None
    finally:
        gc.unfreeze()


def test_a_search_that_fails_is_not_the_last():
    async def run() -> None:
        handles: list[object] = []

        class FailingWorld(World):
            def search(self) -> None:
                raise MemoryError

        garbage = FailingWorld().garbage
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
