"""Findings in the frames, checked by hand and by sums that must agree."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.pipeline.analysis_frames import MONDAY, Story, busy_week

from headrace_pipeline.report import facts as found
from headrace_pipeline.report import measure
from headrace_pipeline.report.frames import STEPS_MAX, Span, nothing, span_of
from headrace_pipeline.schema import analysis

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("length", "step_s"),
    [
        (timedelta(minutes=1), 60),
        (HOUR, 60),
        (timedelta(days=1), 600),
        (timedelta(days=7), 3600),
        (timedelta(days=28), 21_600),
        (timedelta(days=365), 86_400),
    ],
)
def test_a_span_has_as_many_steps_as_can_be_seen(length: timedelta, step_s: int) -> None:
    span = span_of(MONDAY, MONDAY + length)
    assert span.step_s == step_s
    assert span.steps <= max(STEPS_MAX, 365)
    assert span.at(span.steps) == span.end


def test_a_span_begins_at_a_whole_step_and_holds_what_was_asked_for() -> None:
    start, end = MONDAY + timedelta(hours=9, minutes=7), MONDAY + timedelta(days=6, seconds=1)
    span = span_of(start, end)
    assert span.start == MONDAY + timedelta(hours=9)
    assert span.end == MONDAY + timedelta(days=6, hours=1)
    with pytest.raises(ValueError, match="after the start"):
        span_of(end, end)


def story() -> tuple[Story, Span]:
    span = Span(MONDAY, MONDAY + 4 * HOUR, 3600)
    return Story(span), span


def test_rows_of_other_times_and_of_short_windows_are_left_out() -> None:
    told, span = story()
    told.queue(0, "q", 10, 10)
    told.queue(7, "q", 99, 10)
    told.queue(1, "q", 99, 10)
    told.rows["queue_windows"][-1]["window_s"] = analysis.SHORT_S
    prepared = measure.prepare(told.frames(), span)
    assert prepared.queues["published"].tolist() == [36_000]
    assert prepared.queues["step"].tolist() == [0]


def test_a_quiet_step_is_nought_and_one_that_nobody_told_of_is_unknown() -> None:
    told, span = story()
    told.queue(0, "q", 10, 10)
    for step in (0, 1, 3):
        told.node(step, "n1", 10)
    told.node(2, "n1", 0, samples=0)
    frames = measure.prepare(told.frames(), span)
    known = measure.covered(frames, span)
    assert known == [True, True, False, True]
    values = measure.by_step(frames.queues, "published", "sum", span, known)
    assert values == [36_000.0, 0.0, None, 0.0]


def test_rates_of_a_step_that_is_told_of_in_part_are_of_that_part() -> None:
    told, span = story()
    for step, samples in ((0, 3600), (1, 3400), (3, 1800)):
        told.node(step, "n1", 10, samples=samples)
        told.node(step, "n2", 10, samples=5)
    frames = measure.prepare(told.frames(), span)
    assert measure.seconds(frames, span) == [3600, 3600, 3600, 1800]


def test_a_queue_that_blocks_is_shown_though_others_move_more() -> None:
    told, span = story()
    for number in range(20):
        told.queue(0, f"big-{number:02d}", 1000 + number, 1000)
    told.queue(0, "small", 1, 1, blocked_ms=5)
    frames = measure.prepare(told.frames(), span)
    first = [queue for _, queue in measure.busiest(frames, 3)]
    assert set(first[:2]) == {"small", "big-19"}
    assert first[2] == "big-18"


def test_shares_of_blame_sum_to_what_was_blocked() -> None:
    frames, span = busy_week()
    facts = found.find(frames, span)
    for each in facts.held:
        assert sum(value for _, value in each.by) == pytest.approx(each.blocked_ms)
    assert sum(a.blamed_ms for a in facts.accounts) == pytest.approx(facts.blocked_ms)
    assert [each.queue[1] for each in facts.held] == ["orders", "metrics", "notifications.push"]
    assert facts.held[0].by[0][0] == "user:bulk-import"


def test_accounts_of_one_name_are_told_apart_and_keep_their_colours() -> None:
    told, span = story()
    told.queue(0, "q", 1, 1, blocked_ms=1000)
    told.blame(0, "q", 1000, {"a": 0.5, "b": 0.3, "c": 0.2})
    for row in told.rows["blame"][:2]:
        row["account_name"] = "shop"
    told.rows["blame"][2]["account_name"] = None
    facts = found.find(told.frames(), span)
    assert [a.name for a in facts.accounts] == ["shop (user:a)", "shop (user:b)", "user:c"]
    assert [facts.colour(a.id) for a in facts.accounts] == ["a0", "a1", "a2"]
    assert facts.colour("user:nobody") == "a-other"
    assert facts.account("user:nobody").name == "user:nobody"


def test_the_class_of_a_step_is_that_of_most_of_it() -> None:
    told, span = story()
    told.slow(1, "q", analysis.RAFT_COMMIT, 600, "early")
    told.slow(1, "q", analysis.PUBLISHER_BURST, 1200, "late")
    told.slow(2, "q", analysis.RAFT_COMMIT, 900, "later")
    facts = found.find(told.frames(), span)
    (each,) = facts.slowed
    assert each.seconds == ((analysis.RAFT_COMMIT, 1500.0), (analysis.PUBLISHER_BURST, 1200.0))
    assert each.because == "later"
    assert measure.classes_by_step(facts.frames.bottlenecks) == {
        1: (analysis.PUBLISHER_BURST, 1200.0),
        2: (analysis.RAFT_COMMIT, 900.0),
    }


def test_the_advice_that_changes_most_is_told_and_the_last_of_these() -> None:
    told, span = story()
    for step, advised in ((0, 3), (1, 9), (2, 9), (3, 4)):
        told.advise(step, "q", 2, advised, arrival_rate_p95=float(step), service_rate=1.0)
    (row,) = found.find(told.frames(), span).advice().to_dict("records")
    assert (row["advised"], row["arrival_rate_p95"]) == (9, 2.0)


def test_nothing_is_found_in_nothing() -> None:
    facts = found.find(nothing(), Span(MONDAY, MONDAY + HOUR, 60))
    assert not facts.told
    assert (facts.held, facts.slowed, facts.accounts, facts.blocked_ms) == ([], [], [], 0)
    assert facts.advice().empty
