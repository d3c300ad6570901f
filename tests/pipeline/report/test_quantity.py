"""Numbers as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_pipeline.report import quantity

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.001, "<0.01"),
        (0.25, "0.25"),
        (1.26, "1.3"),
        (7, "7"),
        (999.6, "1,000"),
        (9_999, "9,999"),
        (9_999.6, "10.0\u202fk"),
        (38_210, "38.2\u202fk"),
        (369_400, "369\u202fk"),
        (999_949, "1000\u202fk"),
        (999_951, "1.0\u202fM"),
        (1_840_000_000, "1.8\u202fbn"),
        (-12, "-12"),
        (float("nan"), "\u2013"),
    ],
)
def test_counts(value: float, text: str) -> None:
    assert quantity.count(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0\u202fs"),
        (0.35, "0.3\u202fs"),
        (48, "48\u202fs"),
        (60, "1\u202fmin"),
        (99.6, "1.7\u202fmin"),
        (600, "10\u202fmin"),
        (3600, "1\u202fh"),
        (5400, "90\u202fmin"),
        (9000, "2.5\u202fh"),
        (43_200, "12\u202fh"),
        (432_000, "5.0 days"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert quantity.duration(seconds) == text


def test_sizes_shares_and_plurals() -> None:
    assert quantity.size(512) == "512\u202fB"
    assert quantity.size(1 << 20) == "1.0\u202fMiB"
    assert quantity.size(142 << 30) == "142\u202fGiB"
    assert quantity.share(0) == "0\u202f%"
    assert quantity.share(0.0001) == "<\u202f1\u202f%"
    assert quantity.share(0.9999) == ">\u202f99\u202f%"
    assert quantity.share(1) == "100\u202f%"
    assert quantity.many(1, "node") == "1 node"
    assert quantity.many(2000, "queue") == "2,000 queues"


@given(st.floats(min_value=1e-6, max_value=1e15))
def test_an_axis_reaches_its_highest_value_and_not_far_beyond(highest: float) -> None:
    top = quantity.top(highest)
    assert highest <= top * (1 + 1e-9)
    assert top <= highest * 2 * (1 + 1e-9)


def test_an_axis_of_nothing_has_a_length() -> None:
    assert quantity.top(0) == 1
    assert quantity.top(float("nan")) == 1


def test_marks_of_a_week_are_days_and_none_hangs_over_the_end() -> None:
    start = NOON.replace(hour=0)
    marks = quantity.ticks(start, start + timedelta(days=7))
    assert [mark.text for mark in marks] == [
        *("Mon 16", "Tue 17", "Wed 18", "Thu 19", "Fri 20", "Sat 21", "Sun 22")
    ]
    assert [round(mark.at * 7) for mark in marks] == list(range(7))


def test_marks_of_an_hour_are_round_minutes() -> None:
    marks = quantity.ticks(NOON + timedelta(minutes=3), NOON + timedelta(minutes=63))
    assert [mark.text for mark in marks] == ["12:10", "12:20", "12:30", "12:40", "12:50"]
    assert marks[0].at == pytest.approx(7 / 60)


@given(st.integers(1, 400 * 1440), st.integers(0, 10_000))
def test_marks_are_few_in_order_and_inside(minutes: int, later: int) -> None:
    start = NOON + timedelta(minutes=later)
    marks = quantity.ticks(start, start + timedelta(minutes=minutes))
    places = [mark.at for mark in marks]
    assert len(marks) <= 14
    assert places == sorted(places)
    assert all(0 <= place <= 1 for place in places)


def test_no_time_has_no_marks() -> None:
    assert quantity.ticks(NOON, NOON) == []


def test_a_span_says_its_day_once() -> None:
    assert quantity.span(NOON, NOON + timedelta(hours=1)) == "Mon 16 Nov 12:00\u201313:00"
    assert quantity.span(NOON, NOON + timedelta(days=1)) == (
        "Mon 16 Nov 12:00 \u2013 Tue 17 Nov 12:00"
    )
