"""Histories of many things, of which those that moved last are kept."""

from __future__ import annotations

from headrace_broker.flow.history import FINE_MS
from headrace_broker.runtime.clients.histories import Histories, samples
from headrace_broker.runtime.rpc.question import Stats

HOUR_MS = 3_600_000


def test_what_does_not_move_has_no_history():
    histories: Histories[str] = Histories(2, 10)
    histories.sample("a", (0, 0), FINE_MS)
    histories.sample("b", (1, 0), FINE_MS)
    assert histories.keys() == ["b"]
    assert histories.find("a") is None
    found = histories.find("b")
    assert found is not None
    assert found.last() == [(0, 0, 0), (FINE_MS, 1, 0)]


def test_the_calmest_gives_way_and_goes_on_from_where_it_stood():
    histories: Histories[str] = Histories(1, 2)
    histories.sample("a", (5,), 1 * FINE_MS)
    histories.sample("b", (1,), 2 * FINE_MS)
    histories.sample("a", (5,), 2 * FINE_MS)
    histories.sample("c", (1,), 3 * FINE_MS)
    assert histories.keys() == ["b", "c"]
    histories.sample("a", (5,), 4 * FINE_MS)  # it does not move
    assert histories.keys() == ["b", "c"]
    histories.sample("a", (6,), 5 * FINE_MS)
    found = histories.find("a")
    assert found is not None
    assert [row[1] for row in found.last()] == [5, 6]
    assert len(histories) == 2


def test_calmest_is_the_one_that_changed_longest_ago_not_the_one_that_began_first():
    histories: Histories[str] = Histories(1, 2)
    histories.sample("a", (5,), 1 * FINE_MS)
    histories.sample("b", (1,), 2 * FINE_MS)
    histories.sample("a", (6,), 3 * FINE_MS)
    histories.sample("b", (1,), 3 * FINE_MS)
    histories.sample("c", (1,), 4 * FINE_MS)
    assert histories.keys() == ["a", "c"]


def test_a_history_ends_when_nothing_has_moved_for_an_hour_and_more():
    histories: Histories[str] = Histories(1, 2)
    histories.sample("a", (5,), FINE_MS)
    histories.sample("a", (5,), 2 * HOUR_MS)
    assert histories.find("a") is None
    histories.sample("a", (6,), 2 * HOUR_MS + FINE_MS)
    found = histories.find("a")
    assert found is not None
    assert [row[1] for row in found.last()] == [5, 6]


def test_what_only_grows_has_begun_anew_when_it_is_less():
    histories: Histories[str] = Histories(2, 1, only_grow=True)
    histories.sample("a", (1000, 3), FINE_MS)
    histories.sample("a", (10, 3), 2 * FINE_MS)  # deleted, and declared again, between two samples
    found = histories.find("a")
    assert found is not None
    assert [row[1:] for row in found.last()] == [(0, 0), (10, 3)]
    histories.sample("b", (1, 0), 3 * FINE_MS)  # for which "a" gives way
    histories.sample("a", (5, 0), 4 * FINE_MS)
    found = histories.find("a")
    assert found is not None
    assert [row[1:] for row in found.last()] == [(0, 0), (5, 0)]


def test_what_is_gone_is_forgotten():
    histories: Histories[str] = Histories(1, 1)
    histories.sample("a", (1,), FINE_MS)
    histories.sample("b", (1,), 2 * FINE_MS)
    histories.forget_others({"b"})
    histories.sample("a", (1,), 3 * FINE_MS)  # another one of that name, which begins at 0
    found = histories.find("a")
    assert found is not None
    assert [row[1] for row in found.last()] == [0, 1]


def test_samples_are_those_that_are_asked_for():
    histories: Histories[str] = Histories(1, 1)
    for at in range(1, 5):
        histories.sample("a", (at,), at * FINE_MS)
    found = histories.find("a")
    assert samples(None, Stats(age_ms=FINE_MS)) == []
    assert samples(found, Stats()) == []
    assert [row[1] for row in samples(found, Stats(age_ms=2 * FINE_MS))] == [4, 3, 2]
