"""When a gauge rises and falls, and that it does not flap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.gauge import Gauge, Mark
from headrace_broker.model.limits import GAUGE_LOOK_AHEAD_MS, GAUGE_WINDOW_MS

STEP_US = 200_000
MIB = 1 << 20


def gauge_of(*marks: tuple[int, int]) -> Gauge:
    gauge = Gauge()
    gauge.set_marks([Mark(high, low) for high, low in marks])
    return gauge


class Meter:
    """Feeds a gauge every 200 ms and notes its stages."""

    def __init__(self, *marks: tuple[int, int]) -> None:
        self.gauge = gauge_of(*marks)
        self.now_us = 0
        self.stages: list[int] = []

    def feed(self, *values: int) -> int:
        for value in values:
            self.now_us += STEP_US
            before = int(self.gauge.stage)
            assert self.gauge.sample(self.now_us, value) == (self.gauge.stage != before)
            self.stages.append(int(self.gauge.stage))
        return self.stages[-1]

    @property
    def changes(self) -> int:
        return sum(a != b for a, b in zip(self.stages, self.stages[1:], strict=False))


def test_a_mark_is_passed_at_its_value_and_left_below_the_low_one_after_a_window():
    meter = Meter((1000, 900))
    assert meter.feed(999) == 0
    meter = Meter((1000, 900))
    assert meter.feed(1000) == 1
    assert meter.feed(*[900] * 50) == 1, "not below the low mark"
    assert meter.feed(*[899] * 10) == 1, "900 is still in the window"
    assert meter.feed(899) == 0


def test_stages_are_passed_together_and_left_one_by_one():
    meter = Meter((500, 450), (1000, 900))
    assert meter.feed(1200) == 2
    assert meter.feed(*[700] * 20) == 1
    assert meter.feed(*[100] * 20) == 0


def test_fast_growth_sets_before_the_mark_is_reached():
    meter = Meter((1000 * MIB, 900 * MIB))
    reached = next(value for value in range(0, 2000 * MIB, 20 * MIB) if meter.feed(value) == 1)
    assert 880 * MIB <= reached <= 920 * MIB, "100 MiB a second: a second before"
    assert meter.gauge.early


def test_slow_growth_sets_at_the_mark():
    meter = Meter((1000 * MIB, 900 * MIB))
    values = (996 * MIB + n * (MIB // 64) for n in range(1000))
    reached = next(value for value in values if meter.feed(value) == 1)
    assert reached > 999 * MIB


def test_other_marks_count_at_once_in_both_directions():
    meter = Meter((1000, 900))
    meter.feed(*[800] * 20)
    meter.gauge.set_marks([Mark(700, 600)])
    assert meter.feed(800) == 1
    meter.gauge.set_marks([Mark(801, 700)])
    assert meter.feed(800) == 0
    meter.gauge.set_marks([])
    assert meter.feed(1 << 40) == 0


def test_values_below_zero_work_as_well():
    """Feed the negative of what is free."""
    meter = Meter((-99, -109))
    assert meter.feed(-100) == 0
    assert meter.feed(-99) == 1
    assert meter.feed(*[-109] * 20) == 1
    assert meter.feed(*[-110] * 20) == 0


@given(
    start=st.integers(0, 900 * MIB),
    growths=st.lists(st.integers(0, 40 * MIB), min_size=1, max_size=300),
)
def test_growth_that_lasts_is_caught_before_it_is_past_the_mark_by_a_step(start, growths):
    mark = 1000 * MIB
    meter = Meter((mark, 950 * MIB))
    value = start
    for growth in growths:
        value += growth
        stage = meter.feed(value)
        assert stage == 1 or value < mark
    assert meter.changes <= 1, "what only grows does not fall"


@given(rate=st.integers(MIB, 30 * MIB))
def test_steady_growth_is_caught_a_look_ahead_before_the_mark(rate):
    mark = 1000 * MIB
    meter = Meter((mark, 950 * MIB))
    value = 0
    while meter.feed(value) == 0:
        value += rate
    ahead = GAUGE_LOOK_AHEAD_MS * 1000 // STEP_US * rate
    assert mark - ahead - rate <= value <= mark - ahead + rate + 1


@given(noise=st.lists(st.integers(-7, 7), min_size=20, max_size=400), mean=st.integers(0, 2000))
def test_noise_within_a_third_of_the_band_changes_the_stage_once_at_most(noise, mean):
    meter = Meter((1000, 950))
    meter.feed(*[max(mean + each, 0) for each in noise])
    assert meter.changes <= 1


@given(values=st.lists(st.integers(0, 2000), min_size=2, max_size=400))
def test_whatever_comes_a_stage_lasts_for_a_window(values):
    meter = Meter((1000, 950))
    meter.feed(*values)
    risen = None
    for index in range(1, len(meter.stages)):
        before, now = meter.stages[index - 1 : index + 1]
        if now > before:
            risen = index
        elif now < before and risen is not None:
            assert (index - risen) * STEP_US >= GAUGE_WINDOW_MS * 1000


@given(values=st.lists(st.integers(0, 2000), min_size=1, max_size=200))
def test_it_falls_in_the_end(values):
    meter = Meter((500, 475), (1000, 950))
    meter.feed(*values)
    assert meter.feed(*[474] * 25) == 0


def test_marks_out_of_order_are_a_bug():
    with pytest.raises(AssertionError):
        gauge_of((2, 1), (1, 1))
    with pytest.raises(AssertionError):
        Mark(1, 2)
