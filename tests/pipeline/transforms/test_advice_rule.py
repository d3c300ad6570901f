"""The rule by which consumers are advised, minute by minute."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_pipeline.schema.analysis import (
    CLASSES,
    CONSUMERS_SATURATED,
    PUBLISHER_BURST,
    RAFT_COMMIT,
)
from headrace_pipeline.transforms.advice_rule import (
    CONSUMERS_MOST,
    FALL_MINUTES,
    GROWTH_MOST,
    Advised,
    Load,
    advise,
    wanted,
)


def _load(minute: int = 0, **more: Any) -> Load:
    return Load(minute, CONSUMERS_SATURATED, 2, 100.0, 0, 25.0)._replace(**more)


def _told(loads: list[Load]) -> list[int | None]:
    """Return the advice after each minute."""
    advised: Advised | None = None
    found: list[int | None] = []
    for at in range(len(loads)):
        advised = advise(loads[max(at - FALL_MINUTES, 0) : at + 1], advised)
        found.append(advised.value if advised is not None else None)
    return found


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (_load(), 5),  # 1.2 * 100 / 25 = 4.8
        (_load(backlog=3000), 6),  # and 3000 / 300 / 25 = 0.4 more
        (_load(backlog=1_000_000), 2 * GROWTH_MOST),
        (_load(backlog=9_000_000, consumers=200), CONSUMERS_MOST),
        (_load(arrival=0.0), 1),
        (_load(service=None), None),
        (_load(service=5e-324), 2 * GROWTH_MOST),
        (_load(service=0.0), None),
    ],
)
def test_wanted_is_what_comes_and_waits_by_what_a_consumer_does(
    load: Load, expected: int | None
) -> None:
    assert wanted(load) == expected


def test_shorter_time_to_drain_wants_more() -> None:
    assert wanted(_load(backlog=3000), drain_s=60) == 7


def test_advice_begins_with_the_second_saturated_minute_of_three() -> None:
    assert _told([_load(0), _load(1)]) == [None, 5]
    assert _told([_load(0), _load(1, bottleneck=None), _load(2)]) == [None, None, 5]
    apart = [_load(0), _load(1, bottleneck=None), _load(2, bottleneck=None), _load(3)]
    assert _told(apart) == [None] * 4
    assert _told([_load(0), _load(1, bottleneck=None)]) == [None, None]


@pytest.mark.parametrize("bottleneck", [each for each in CLASSES if each != CONSUMERS_SATURATED])
def test_queue_that_something_else_holds_up_gets_no_advice(bottleneck: str) -> None:
    loads = [_load(minute, bottleneck=bottleneck, backlog=90_000) for minute in range(8)]
    assert _told(loads) == [None] * 8


def test_enough_consumers_are_no_advice() -> None:
    assert _told([_load(minute, consumers=5) for minute in range(4)]) == [None] * 4


def test_advice_that_was_followed_stands_while_load_wants_it() -> None:
    loads = [_load(0), _load(1)]
    loads += [_load(minute, consumers=5, bottleneck=None) for minute in range(2, 40)]
    assert _told(loads) == [None] + [5] * 39


def test_advice_does_not_follow_a_load_that_wavers() -> None:
    waver = [100.0, 92.0, 104.0, 85.0, 101.0]
    loads = [_load(0), _load(1)]
    loads += [_load(minute, consumers=5, arrival=waver[minute % 5]) for minute in range(2, 60)]
    assert set(_told(loads)[1:]) == {5}


def test_load_that_comes_every_few_minutes_keeps_its_consumers() -> None:
    loads = [_load(0), _load(1)]
    loads += [
        _load(minute, consumers=5, bottleneck=None, arrival=100.0 if minute % 6 == 0 else 20.0)
        for minute in range(2, 60)
    ]
    assert set(_told(loads)[1:]) == {5}


def test_advice_rises_with_the_load_and_falls_late_to_an_end() -> None:
    loads = [_load(0), _load(1)]
    loads += [_load(minute, consumers=5, arrival=200.0) for minute in range(2, 6)]
    loads += [
        _load(minute, consumers=10, arrival=120.0, bottleneck=None) for minute in range(6, 30)
    ]
    loads += [_load(minute, consumers=6, arrival=5.0, bottleneck=None) for minute in range(30, 50)]
    told = _told(loads)
    assert told[1:5] == [5, 10, 10, 10]
    assert told[14] == 10  # ten minutes in which less was wanted have not passed
    assert told[15] == 6
    assert told[38] == 6
    assert told[39:] == [None] * 11  # what there was before is enough


def test_a_minute_in_which_nobody_consumed_is_none_of_those_that_begin_advice() -> None:
    absent = _load(0, consumers=0, service=None)
    assert _told([absent, _load(1), _load(2)]) == [None, None, 5]


def test_raft_bound_minutes_do_not_raise_what_was_advised() -> None:
    loads = [_load(0), _load(1)]
    loads += [
        _load(minute, consumers=5, arrival=400.0, bottleneck=RAFT_COMMIT) for minute in range(2, 6)
    ]
    assert _told(loads) == [None, 5, 5, 5, 5, 5]


def test_advice_lapses_when_nobody_has_looked_for_longer_than_it_holds() -> None:
    given = Advised(0, 9, 2, 0)
    assert advise([_load(5, bottleneck=None)], given) == Advised(5, 9, 2, 0)
    assert advise([_load(6, bottleneck=None)], given) is None


_loads = st.builds(
    Load,
    minute=st.just(0),
    bottleneck=st.sampled_from([None, CONSUMERS_SATURATED, RAFT_COMMIT, PUBLISHER_BURST]),
    consumers=st.integers(0, 300),
    arrival=st.floats(0, 1e6),
    backlog=st.integers(0, 10**9),
    service=st.none() | st.floats(0, 1e5),
)


@given(st.lists(_loads, min_size=1, max_size=40))
def test_advice_never_rises_without_saturation_and_keeps_its_bounds(loads: list[Load]) -> None:
    loads = [load._replace(minute=minute) for minute, load in enumerate(loads)]
    told = _told(loads)
    for at, value in enumerate(told):
        if value is None:
            continue
        assert 1 <= value <= CONSUMERS_MOST
        before = told[at - 1] if at else None
        if before is None or value > before:
            assert loads[at].bottleneck == CONSUMERS_SATURATED


@given(st.integers(1, 200), st.floats(1, 1000), st.floats(0.5, 100), st.data())
def test_load_within_a_band_moves_advice_at_most_once(
    consumers: int, arrival: float, service: float, data: st.DataObject
) -> None:
    """However load wavers by 4 %, advice is given, and raised within the first minutes at most."""
    waver = st.floats(0.96, 1.0)
    loads = [
        _load(minute, consumers=consumers, arrival=arrival * data.draw(waver), service=service)
        for minute in range(25)
    ]
    values = [value for value in _told(loads) if value is not None]
    changes = sum(a != b for a, b in itertools.pairwise(values))
    assert changes <= 1
