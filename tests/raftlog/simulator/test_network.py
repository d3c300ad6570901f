"""The simulated network: delivered and lost messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace_raftlog.simulator.loop import Loop
from headrace_raftlog.simulator.network import Network
from headrace_raftlog.simulator.parameters import draw
from headrace_raftlog.simulator.profiles import PROFILES


class World:
    """A network between nodes that note what they get."""

    def __init__(self, **parameters):
        self.loop = Loop(1, False)
        drawn = draw(self.loop.rng, PROFILES["calm"]).healed()
        self.arrived: list[tuple[int, int, object]] = []
        self.told: list[tuple[int, int]] = []
        self.network = Network(
            self.loop,
            replace(drawn, **parameters),
            lambda source, target, content: self.arrived.append((source, target, content)),
            lambda one, other: self.told.append((one, other)),
        )

    def settle(self):
        while self.loop.step():
            pass
        return self.arrived


def test_what_is_sent_arrives():
    world = World()
    assert world.network.send(1, 2, "hello")
    assert world.settle() == [(1, 2, "hello")]


def test_repeated_and_lost():
    world = World(duplicate=1.0)
    world.network.send(1, 2, "hello")
    assert world.settle() == [(1, 2, "hello")] * 2
    world = World(drop=1.0)
    assert not world.network.send(1, 2, "hello")
    assert world.settle() == []


def test_cut_is_one_way_and_takes_what_is_under_way():
    world = World()
    world.network.send(1, 2, "under way")
    world.network.cut(1, 2)
    assert not world.network.send(1, 2, "later")
    world.network.send(2, 1, "back")
    assert (world.network.connected(1, 2), world.network.connected(2, 1)) == (False, True)
    assert world.settle() == [(2, 1, "back")]
    world.network.heal()
    world.network.send(1, 2, "healed")
    assert world.settle()[-1] == (1, 2, "healed")


def test_broken_session_loses_all_under_way_and_tells_both():
    world = World()
    world.network.send(1, 2, "there")
    world.network.send(2, 1, "back")
    world.network.send(1, 3, "elsewhere")
    world.network.break_session(1, 2)
    world.network.send(1, 2, "anew")
    assert sorted(world.settle()) == [(1, 2, "anew"), (1, 3, "elsewhere")]
    assert world.told == [(1, 2)]


@pytest.mark.parametrize("carries_over", [True, False])
def test_restart_loses_what_the_node_sent_and_may_keep_what_it_was_sent(carries_over):
    world = World(carries_over=carries_over)
    world.network.send(1, 2, "to it")
    world.network.send(2, 1, "from it")
    world.network.boots[2] = 1
    assert world.settle() == ([(1, 2, "to it")] if carries_over else [])
