from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.activity import SECOND_US, WINDOWS_S
from headrace_broker.flow.rate_history import Moves, RateHistory

NOW = 77 * SECOND_US


@given(
    steps=st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 50)), max_size=200),
    late=st.integers(0, SECOND_US),
)
def test_rates_are_those_of_all_that_was_counted(steps: list[tuple[int, int]], late: int) -> None:
    history = RateHistory((0, 0, 0), NOW)
    now, arrived, settled = NOW, 0, 0
    log = [(NOW, 0, 0)]
    for more, less in steps:
        now += SECOND_US
        arrived, settled = arrived + more, settled + less
        history.sample((arrived, 7, settled), now)
        log.append((now, arrived, settled))
    now += late
    found = history.rates((arrived, 7, settled), now)
    for window, seconds in enumerate(WINDOWS_S):
        older = [each for each in log if each[0] <= now - seconds * SECOND_US] or log[:1]
        then, arrived_then, settled_then = older[-1]
        span = max(now - then, seconds * SECOND_US) / SECOND_US
        assert found[0][window] == pytest.approx((arrived - arrived_then) / span)
        assert found[2][window] == pytest.approx((settled - settled_then) / span)


def test_it_is_over_a_minute_after_the_last_move() -> None:
    history = RateHistory((0, 0, 0), NOW)
    history.sample((5, 0, 0), NOW + SECOND_US)
    for second in range(2, 61):
        history.sample((5, 0, 0), NOW + second * SECOND_US)
        assert not history.is_over((5, 0, 0), NOW + second * SECOND_US)
    history.sample((5, 0, 0), NOW + 61 * SECOND_US)
    assert history.is_over((5, 0, 0), NOW + 61 * SECOND_US)
    assert not history.is_over((6, 0, 0), NOW + 61 * SECOND_US)


def test_moves_are_told_together() -> None:
    moves = Moves()
    moves.arrived += 3
    moves.settled += 1
    assert moves.counts() == (3, 0, 1)
