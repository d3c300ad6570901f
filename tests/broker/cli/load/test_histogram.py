"""Latencies in buckets, next to a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.cli.load.histogram import Histogram

DURATIONS = st.lists(st.integers(0, 1 << 36), min_size=1, max_size=200)


@given(DURATIONS, DURATIONS, st.sampled_from([1.0, 50.0, 95.0, 99.9, 100.0]))
def test_percentiles_are_those_of_a_sorted_list_within_a_hundredth(
    first: list[int], second: list[int], percent: float
) -> None:
    histogram, other = Histogram(), Histogram()
    for each in first:
        histogram.add(each)
    for each in second:
        other.add(each)
    histogram.merge(other)
    both = sorted(first + second)
    assert (histogram.count, histogram.min_us, histogram.max_us) == (len(both), both[0], both[-1])
    assert abs(histogram.mean_us - sum(both) / len(both)) <= 1e-6 * both[-1] + 1e-6
    rank = max(-(-len(both) * percent // 100), 1)
    exact = both[int(rank) - 1]
    assert exact <= histogram.percentile_us(percent) <= exact * 1.01


def test_without_durations_everything_is_zero() -> None:
    empty = Histogram()
    empty.merge(Histogram())
    assert (empty.count, empty.mean_us, empty.percentile_us(99)) == (0, 0, 0)
