"""Which calls go on in a turn of the loop, counted in steps and units."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from headrace_broker.flow.call_turns import CallClient, CallTurns
from headrace_broker.flow.effort import Effort, EffortTurns
from headrace_broker.model.limits import (
    CALL_STEP_PAUSE_US_MAX,
    CALL_STEP_US,
    CALL_UNITS,
    CALLS_WAITING_MAX,
    CONTROL_TURN_UNITS,
    METHOD_UNITS,
)

# What begins costs this much while nothing is known of its steps.
BEGIN_UNITS = CALL_UNITS + METHOD_UNITS


class World:
    """A loop whose turns a test takes, and calls that note their beginning."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.effort_turns = EffortTurns(self.soon.append, itertools.count(0, 1_000_000).__next__)
        self.turns = CallTurns(
            self.effort_turns,
            self.soon.append,
            lambda seconds, callback: self.later.append((seconds, callback)),
        )
        self.went: list[str] = []

    def turn(self) -> list[str]:
        """Take one turn of the loop and return who went on in it."""
        before = len(self.went)
        soon = self.soon[:]
        self.soon.clear()
        for callback in soon:
            callback()
        return self.went[before:]

    def begins(self, client: CallClient, name: str) -> None:
        """Make a call wait to begin."""

        def go() -> bool:
            self.turns.began(client)
            self.went.append(name)
            return True

        self.turns.wait_to_begin(client, go)

    def goes_on(self, client: CallClient, name: str) -> None:
        def go() -> bool:
            self.went.append(name)
            return True

        self.turns.wait_to_go_on(client, go)


@pytest.fixture
def world():
    return World()


def turns_until_gone(world: World, count: int) -> list[int]:
    """Return how many went on in each turn until so many have."""
    sizes: list[int] = []
    while sum(sizes) < count:
        sizes.append(len(world.turn()))
    return [size for size in sizes if size]


def test_a_turn_takes_no_more_calls_than_its_budget(world):
    client = CallClient()
    for _ in range(100):
        world.begins(client, "call")
    sizes = turns_until_gone(world, 100)
    assert max(sizes) <= CONTROL_TURN_UNITS // BEGIN_UNITS + 1
    assert world.turns.waiting == 0
    world.turn()
    assert world.turns.is_free


def test_connections_take_turns_whoever_has_how_many_calls(world):
    flood, other = CallClient(), CallClient()
    for _ in range(200):
        world.begins(flood, "flood")
    world.begins(other, "other")
    while "other" not in world.went:
        world.turn()
    assert len(world.went) <= 1 + CONTROL_TURN_UNITS // BEGIN_UNITS


def test_a_connection_whose_steps_are_long_goes_on_less_often(world):
    slow, quick = CallClient(), CallClient()
    for _ in range(40):
        world.goes_on(slow, "slow")
        world.goes_on(quick, "quick")
    for _ in range(400):
        for name in world.turn():
            if name == "slow":
                world.turns.took(slow, 7 * CALL_UNITS)
            else:
                world.turns.took(quick, METHOD_UNITS)
        if world.went.count("quick") == 40:
            break
    assert world.went.count("quick") == 40
    assert world.went.count("slow") <= 20


def test_what_has_begun_goes_before_what_has_not(world):
    client = CallClient()
    for _ in range(50):
        world.begins(client, "begins")
    world.goes_on(client, "goes on")
    world.turn()
    world.turn()
    assert world.went[0] == "goes on"


def test_calls_share_the_budget_with_methods(world):
    other = Effort(world.effort_turns)
    client = CallClient()
    for _ in range(100):
        world.begins(client, "call")
    for _ in range(6):  # both want more in each turn
        while not other.is_spent:
            other.spend(METHOD_UNITS)
        world.turn()
    assert int(world.effort_turns.units) == CONTROL_TURN_UNITS // 2


def test_a_long_step_is_followed_by_a_pause_as_long_for_all_calls(world):
    client, other = CallClient(), CallClient()
    world.turns.took(client, CALL_STEP_US + 1000)
    [(seconds, over)] = world.later
    assert seconds == (CALL_STEP_US + 1000) / 1_000_000
    assert not world.turns.is_free
    world.begins(other, "other")
    for _ in range(3):
        assert world.turn() == []
    over()
    for _ in range(3):
        world.turn()
    assert world.went == ["other"]


def test_a_step_of_no_great_length_is_followed_by_no_pause(world):
    world.turns.took(CallClient(), CALL_STEP_US)
    assert world.later == []


def test_a_pause_is_bounded(world):
    world.turns.took(CallClient(), 60_000_000)
    [(seconds, _)] = world.later
    assert seconds == CALL_STEP_PAUSE_US_MAX / 1_000_000


def test_a_connection_may_have_as_many_waiting_as_there_is_room_left(world):
    flood, other = CallClient(), CallClient()
    while world.turns.has_room(flood):
        world.begins(flood, "flood")
    assert int(flood.waiting) == CALLS_WAITING_MAX // 2
    assert world.turns.has_room(other)
    assert int(world.turns.refused) == 1


def test_calls_that_have_ended_meanwhile_take_no_turn(world):
    client = CallClient()
    for _ in range(1000):
        world.turns.wait_to_go_on(client, lambda: False)
    world.goes_on(client, "last")
    world.turn()
    world.turn()
    assert world.went == ["last"]
