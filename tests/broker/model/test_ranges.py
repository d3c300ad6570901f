"""Sets of numbers in rows, against sets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_broker.model.ranges import Ranges, count_rows

SPANS = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1]))


def ranges(numbers: set[int]) -> Ranges:
    found = Ranges()
    for number in sorted(numbers):
        found.append(number, number + 1)
    return found


def spelled(bounds: list[int]) -> set[int]:
    assert len(bounds) % 2 == 0
    assert bounds == sorted(set(bounds)), "rows ascend and do not touch"
    return {n for at in range(0, len(bounds), 2) for n in range(bounds[at], bounds[at + 1])}


@settings(max_examples=300)
@given(numbers=st.sets(st.integers(0, 50)), spans=st.lists(SPANS, max_size=12))
def test_rows_hold_what_a_set_holds(numbers: set[int], spans: list[tuple[int, int]]) -> None:
    found = ranges(numbers)
    for first, stop in spans:
        among = {n for n in numbers if first <= n < stop}
        assert spelled(found.cut(first, stop)) == among
        gone = found.remove(first, stop)
        assert spelled(gone) == among
        assert count_rows(gone) == len(among)
        numbers -= among
        assert spelled(found.bounds) == numbers
        assert found.count == len(numbers)
        assert bool(found) == bool(numbers)
        assert [n in found for n in range(60)] == [n in numbers for n in range(60)]
        if numbers:
            assert found.first == min(numbers)


def test_rows_that_touch_become_one() -> None:
    found = Ranges()
    found.append(3, 5)
    found.append(5, 5)
    found.append(5, 9)
    assert found.bounds == [3, 9]
    with pytest.raises(AssertionError, match="ascending"):
        found.append(8, 10)
