"""Entries that are dead and held: what stays, what goes, and how much there may be."""

from __future__ import annotations

import random
from array import array

import pytest

from headrace_broker.runtime.contract.retention import Retention


def positions(*numbers: int) -> array[int]:
    return array("Q", numbers)


def released(hold: Retention) -> list[int]:
    return [index for part in hold.released for index in part]


def test_only_entries_of_the_held_part_are_kept() -> None:
    hold = Retention()
    assert not hold.covers(0)
    assert not hold.covers(1)
    hold.cover(10, 20)
    assert [index for index in range(30) if hold.covers(index)] == list(range(10, 21))


def test_what_is_held_comes_in_order() -> None:
    choice = random.Random(1)
    for _ in range(200):
        everything = sorted(choice.sample(range(1, 200), choice.randint(0, 60)))
        dead = choice.sample(everything, choice.randint(0, len(everything)))
        hold = Retention()
        hold.cover(1, 200)
        for index in dead:
            hold.keep(index, 5)
        assert list(hold.held()) == sorted(dead)
        assert (hold.count, hold.byte_count) == (len(dead), 5 * len(dead))
        hold.cover(100, 200)
        assert sorted(released(hold)) == sorted(index for index in dead if index < 100)
        assert list(hold.held()) == sorted(index for index in dead if index >= 100)
        assert hold.byte_count == 5 * sum(index >= 100 for index in dead)


@pytest.mark.parametrize("bound", ["entries_max", "bytes_max"])
def test_past_a_bound_everything_is_let_go(bound) -> None:
    hold = Retention(**{bound: 3})
    hold.cover(1, 100)
    for index in (5, 6, 7):
        hold.keep(index, 1)
    assert not hold.broken
    hold.keep(8, 1)
    assert "would be held" in hold.broken
    assert not hold.covers(9)
    assert (hold.count, hold.byte_count) == (0, 0)
    assert released(hold) == [5, 6, 7, 8]
    assert list(hold.held()) == []


def test_what_the_log_lost_by_itself_is_not_let_go_again() -> None:
    hold = Retention()
    hold.cover(1, 100)
    hold.keep(5, 1)
    hold.lose("gone")
    assert (hold.broken, released(hold), hold.count) == ("gone", [], 0)


def test_part_that_moves_lets_go_what_it_leaves() -> None:
    hold = Retention()
    hold.cover(1, 100)
    for index in (40, 10, 30, 20):
        hold.keep(index, index)
    hold.cover(1, 100)
    assert (hold.count, hold.byte_count, released(hold)) == (4, 100, [])
    hold.cover(15, 35)
    assert (hold.count, hold.byte_count, sorted(released(hold))) == (2, 50, [10, 40])
    assert list(hold.held()) == [20, 30]
    hold.cover(50, 60)
    assert (hold.count, hold.byte_count, sorted(released(hold))) == (0, 0, [10, 20, 30, 40])
