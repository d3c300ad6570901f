from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.activity import SECOND_US, WINDOWS_S, Activity, StopCounter
from headrace_broker.model.flow import (
    LIMIT_ACCOUNT,
    LIMIT_MEMORY,
    LIMIT_QUEUE,
    LIMIT_WATERMARK,
    NO_LIMIT,
)

NOW = 1_000 * SECOND_US + 123_456
BUCKETS_US = (100_000, SECOND_US, 5 * SECOND_US)


class Naive:
    """All stops as intervals."""

    def __init__(self) -> None:
        self.intervals: list[tuple[int, int, int]] = []
        self.limit, self.start = 0, 0

    def turn(self, limit: int, now: int) -> None:
        """From now on this limit stops it, 0 for none."""
        if self.limit:
            self.intervals.append((self.limit, self.start, now))
        self.limit, self.start = limit, now

    def stopped_us(self, limit: int, window_s: int, now: int) -> int:
        every = [*self.intervals, (self.limit, self.start, now)]
        begin = now - window_s * SECOND_US
        return sum(
            max(min(end, now) - max(start, begin), 0)
            for which, start, end in every
            if which == limit
        )

    def total_us(self, limit: int) -> int:
        return sum(end - start for which, start, end in self.intervals if which == limit)


STEPS = st.lists(
    st.tuples(
        st.one_of(
            st.integers(0, 2_000),
            st.integers(0, 300_000),
            st.integers(0, 7 * SECOND_US),
            st.integers(0, 100 * SECOND_US),
        ),
        st.sampled_from([NO_LIMIT, LIMIT_ACCOUNT, LIMIT_QUEUE, LIMIT_MEMORY]),
        st.booleans(),
    ),
    max_size=60,
)


@given(steps=STEPS, rest=st.integers(0, 70 * SECOND_US))
def test_shares_are_those_of_a_list_of_intervals(
    steps: list[tuple[int, int, bool]], rest: int
) -> None:
    counter = StopCounter()
    activity, naive, now = Activity(NOW, counter), Naive(), NOW
    for wait, limit, look in steps:
        now += wait
        naive.turn(limit, now)
        if limit == NO_LIMIT:
            activity.go(now)
        else:
            activity.stop(limit, 7, now)
        assert activity.limit == limit
        if look:
            compare(activity, naive, now)
    now += rest
    compare(activity, naive, now)
    activity.go(now)
    naive.turn(NO_LIMIT, now)
    for limit in (LIMIT_ACCOUNT, LIMIT_QUEUE, LIMIT_MEMORY):
        assert counter.stopped_us[limit] == naive.total_us(limit)


def compare(activity: Activity, naive: Naive, now: int) -> None:
    for limit in (LIMIT_ACCOUNT, LIMIT_QUEUE, LIMIT_MEMORY):
        for window, seconds in enumerate(WINDOWS_S):
            found = int(activity.stopped_us(limit, window, now))
            wanted = naive.stopped_us(limit, seconds, now)
            assert abs(found - wanted) <= BUCKETS_US[window] // 4 + 1, (limit, seconds)


def test_a_stop_of_thousands_a_second_is_counted_to_the_microsecond() -> None:
    activity = Activity(NOW)
    now = NOW
    for _ in range(20_000):
        activity.stop(LIMIT_QUEUE, 7, now)
        activity.go(now + 30)
        now += 100
    assert activity.stopped_us(LIMIT_QUEUE, 1, now) == pytest.approx(600_000, abs=100)
    assert activity.stopped_us(LIMIT_QUEUE, 2, now) == 600_000
    assert activity.stopped_us(LIMIT_QUEUE, 2, now + 66 * SECOND_US) == 0


def test_it_is_in_flow_while_stopped_and_a_second_after() -> None:
    activity = Activity(NOW)
    assert not activity.in_flow(NOW)
    activity.stop(LIMIT_QUEUE, 7, NOW + 1)
    assert activity.in_flow(NOW + 90 * SECOND_US)
    activity.go(NOW + 90 * SECOND_US)
    assert activity.in_flow(NOW + 91 * SECOND_US - 1)
    assert not activity.in_flow(NOW + 91 * SECOND_US)


def test_since_is_told_of_the_stop_and_not_of_its_latest_limit() -> None:
    activity = Activity(NOW)
    activity.stop(LIMIT_ACCOUNT, 0, NOW + 10)
    activity.stop(LIMIT_QUEUE, 7, NOW + 20)
    activity.stop(LIMIT_QUEUE, 8, NOW + 25)
    assert (activity.limit, activity.group, activity.since_us) == (LIMIT_QUEUE, 8, NOW + 10)
    activity.go(NOW + 50)
    assert (activity.limit, activity.group, activity.since_us) == (NO_LIMIT, 0, NOW + 50)
    activity.go(NOW + 60)
    assert activity.since_us == NOW + 50
    assert activity.stopped_us(LIMIT_ACCOUNT, 2, NOW + 60) == 10
    assert activity.stopped_us(LIMIT_QUEUE, 2, NOW + 60) == 30


def test_the_queue_behind_each_limit_is_remembered() -> None:
    activity = Activity(NOW)
    assert activity.limits() == []
    activity.stop(LIMIT_WATERMARK, 9, NOW)
    assert activity.limits() == [LIMIT_WATERMARK]
    activity.stop(LIMIT_QUEUE, 7, NOW + 10)
    assert activity.latest_group(LIMIT_WATERMARK) == 9
    activity.stop(LIMIT_QUEUE, 8, NOW + 20)
    activity.go(NOW + 30)
    assert activity.limits() == [LIMIT_QUEUE, LIMIT_WATERMARK]
    assert activity.latest_group(LIMIT_QUEUE) == 8
    assert activity.latest_group(LIMIT_ACCOUNT) == 0
