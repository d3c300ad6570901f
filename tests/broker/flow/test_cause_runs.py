"""Causes of the messages of a session."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.cause_runs import CauseRuns


def spread(runs):
    return [cause for count, cause in zip(runs[::2], runs[1::2], strict=True) for _ in range(count)]


def test_messages_in_a_row_with_one_cause_are_one_run():
    runs = CauseRuns()
    for cause in (5, 5, 5, 7, 5):
        runs.add(cause)
    assert runs.of(1, 5) == [3, 5, 1, 7, 1, 5]
    assert runs.of(2, 3) == [2, 5, 1, 7]


def test_answered_messages_are_forgotten():
    runs = CauseRuns()
    for cause in (5, 5, 7):
        runs.add(cause)
    runs.answered(1)
    assert runs.of(2, 2) == [1, 5, 1, 7]
    runs.answered(2)
    assert len(runs._runs) == 0
    runs.add(9)
    assert runs.of(4, 1) == [1, 9]


@given(st.lists(st.integers(1, 3), min_size=1), st.data())
def test_causes_of_any_part_are_those_that_were_noted(causes, data):
    runs = CauseRuns()
    for cause in causes:
        runs.add(cause)
    answered = data.draw(st.integers(0, len(causes)))
    runs.answered(answered)
    if answered < len(causes):
        first = data.draw(st.integers(answered + 1, len(causes)))
        count = data.draw(st.integers(1, len(causes) - first + 1))
        assert spread(runs.of(first, count)) == causes[first - 1 : first - 1 + count]
