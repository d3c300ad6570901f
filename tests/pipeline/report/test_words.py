"""The summary says what the frames say."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
from tests.pipeline.analysis_frames import MONDAY, Story, busy_week, one_queue

from headrace_pipeline.report import facts as found
from headrace_pipeline.report import words
from headrace_pipeline.report.bottleneck import MEANINGS, css, meaning
from headrace_pipeline.report.frames import Frames, Span, nothing
from headrace_pipeline.report.section_blocked import blocked
from headrace_pipeline.report.section_capacity import advice, capacity, weeks_text
from headrace_pipeline.schema import analysis


def said(frames: Frames, span: Span) -> dict[str, str]:
    """Lines of the summary by what they are about, as plain text."""
    lines = words.summary(found.find(frames, span))
    assert len(lines) <= 5
    return {line.lead: plain(line.text) for line in lines}


def plain(markup: str) -> str:
    return html.unescape(re.sub("<[^>]*>", "", markup)).replace("\u202f", " ")


def test_a_busy_week_is_said_with_its_figures() -> None:
    lines = said(*busy_week())
    assert list(lines) == ["Bottleneck", "Cause", "To do", "Capacity", "Trust"]
    assert lines["Bottleneck"].startswith("orders blocked publishers for 17 h in sum (74 % of all")
    assert "because its consumers were busy all the time" in lines["Bottleneck"]
    assert "It was worst Tue 17 Nov 09:00\u201310:00" in lines["Bottleneck"]
    assert "2 other queues blocked" in lines["Bottleneck"]
    assert lines["Cause"].startswith("bulk-import is blamed for 71 % of the waiting at orders")
    assert "through imports, 76 times as much as usual" in lines["Cause"]
    assert lines["To do"].startswith("Run 8 consumers on orders instead of 2: one settles 260/s")
    assert "metrics published per second comes nearest its limit: 73 %" in lines["Capacity"]
    assert "reached in 6 weeks" in lines["Capacity"]
    assert "Alarms lasted 23 min, most on n3." in lines["Capacity"]
    assert "n2 told nothing Sun 22 Nov 03:00\u201305:00" in lines["Trust"]
    assert "204 rows were left out" in lines["Trust"]
    assert "clock of n3 was 340 ms ahead" in lines["Trust"]


def test_a_quiet_hour_needs_no_remedy() -> None:
    lines = said(*one_queue())
    assert list(lines) == ["Bottleneck", "Capacity", "Trust"]
    assert lines["Bottleneck"] == "None: 466 k messages came in and no queue blocked a publisher."
    assert lines["Capacity"] == "No limit is known yet. No node gave alarm."


def test_without_telemetry_it_says_where_to_look() -> None:
    lines = said(nothing(), Span(MONDAY, MONDAY + timedelta(hours=1), 60))
    assert list(lines) == ["No data"]
    assert "headrace-pipeline run flow" in lines["No data"]


def test_limits_that_belong_to_no_queue_are_told_of() -> None:
    span = Span(MONDAY, MONDAY + timedelta(hours=1), 60)
    story = Story(span)
    story.node(5, "n1", 10, blocked_elsewhere_ms=90_000)
    line = said(story.frames(), span)["Bottleneck"]
    assert "no queue blocked a publisher. Limits that belong to no queue" in line
    assert line.endswith("blocked them for 90 s.")


@pytest.mark.parametrize("bottleneck", analysis.CLASSES)
def test_each_class_asks_for_what_helps_it(bottleneck: str) -> None:
    span = Span(MONDAY, MONDAY + timedelta(hours=1), 60)
    story = Story(span)
    story.queue(5, "q", 10, 10, blocked_ms=500)
    story.blame(5, "q", 500, {"loud": 1.0})
    story.slow(5, "q", bottleneck, 60, "so it was")
    lines = said(story.frames(), span)
    assert meaning(bottleneck).remedy in lines["To do"]
    assert f"because {meaning(bottleneck).because}" in lines["Bottleneck"]
    assert ("That is loud." in lines["To do"]) == (bottleneck == analysis.PUBLISHER_BURST)
    assert css(bottleneck) == f"c-{bottleneck}"


def test_a_class_of_a_later_release_is_said_in_its_own_words() -> None:
    assert set(MEANINGS) == set(analysis.CLASSES)
    assert meaning("moon_phase").label == "moon phase"
    assert css("x' onload='alert(1)") == "c-other"


def test_a_slow_queue_without_anybody_blocked_is_the_bottleneck_still() -> None:
    span = Span(MONDAY, MONDAY + timedelta(hours=1), 60)
    story = Story(span)
    story.queue(5, "q", 10, 10)
    story.slow(5, "q", analysis.PREFETCH_OR_SLOW_ACK, 120, "acks took 9 s")
    story.slow(6, "q", analysis.RAFT_COMMIT, 60, "commits took 90 ms")
    lines = said(story.frames(), span)
    assert "q was slow for 3 min" in lines["Bottleneck"]
    assert "for 67 % of its slow time; no queue blocked a publisher" in lines["Bottleneck"]
    assert "Cause" not in lines


def test_blocked_time_that_nobody_is_blamed_for_is_said_so() -> None:
    span = Span(MONDAY, MONDAY + timedelta(hours=1), 60)
    story = Story(span)
    story.queue(5, "q", 10, 10, blocked_ms=900)
    story.queue(5, "r", 10, 10, blocked_ms=100)
    story.blame(5, "r", 100, {"loud": 1.0})
    assert said(story.frames(), span)["Cause"] == "Nobody brought load to q while it blocked."


def test_a_limit_of_what_was_never_measured_is_not_drawn() -> None:
    span = Span(MONDAY, MONDAY + timedelta(hours=1), 60)
    story = Story(span)
    nothing_known = {"peak": None, "growth_per_week": None}
    story.limit("node", "n1", "published_rate", 0.0, limit=80.0, **nothing_known)
    story.rows["capacity"][-1] |= {"p95": None, "used_share": None}
    story.limit("node", "n2", "published_rate", 40.0, limit=80.0, **nothing_known)
    section = capacity(found.find(story.frames(), span))
    assert plain(section.conclusion).startswith("n2 published per second comes nearest")
    assert plain(section.body).count("40/s, peak 40/s, of 80/s") == 1
    assert "n1" in plain(section.body)  # in the table


@pytest.mark.parametrize(
    ("growth", "said_of_it", "text"),
    [(0.0, "nothing grows towards one", "not growing"), (None, "seven days", "no trend yet")],
)
def test_what_does_not_grow_differs_from_what_is_not_known_to(
    growth: float | None, said_of_it: str, text: str
) -> None:
    span = Span(MONDAY, MONDAY + timedelta(hours=1), 60)
    story = Story(span)
    story.limit("node", "n1", "published_rate", 50.0, peak=60.0, limit=80.0, growth_per_week=growth)
    section = capacity(found.find(story.frames(), span))
    assert said_of_it in plain(section.conclusion)
    assert text in plain(section.body)


def test_advice_of_a_minute_in_which_nobody_consumed_has_no_rate_of_one() -> None:
    span = Span(MONDAY, MONDAY + timedelta(hours=1), 60)
    story = Story(span)
    story.queue(0, "q", 10, 0, blocked_ms=1000)
    story.slow(0, "q", analysis.CONSUMERS_SATURATED, 60, "nobody consumes")
    figures = {"arrival_rate_p95": 10.0, "service_rate": None, "backlog": 40}
    story.advise(0, "q", 0, 4, **figures, bottleneck="consumers_saturated", because="nobody")
    line = said(story.frames(), span)["To do"]
    assert line.startswith("Run 4 consumers on q instead of 0: 10/s arrived on Mon 16 Nov")
    section = advice(found.find(story.frames(), span))
    assert "10/s arrived and none worked." in plain(section.conclusion)
    assert "nan" not in plain(section.body)


def test_waiting_for_what_is_older_is_nobodys() -> None:
    span = Span(MONDAY, MONDAY + timedelta(hours=1), 60)
    story = Story(span)
    for step in range(4):
        story.queue(step, "q", 10, 10, blocked_ms=1000)
    story.blame(0, "q", 1000, {"loud": 1.0})
    line = said(story.frames(), span)["Cause"]
    assert line.startswith("loud is blamed for 25 % of the waiting at q. For 75 % of it nobody")
    body = blocked(found.find(story.frames(), span)).body
    assert 'data-name="others"' not in body
    values = re.search(r'data-name="nobody" data-values="([^"]*)"', body)
    assert values is not None
    shares = [float(each) for each in values[1].split()]
    assert shares[:5] == pytest.approx([0, 1 / 60, 1 / 60, 1 / 60, 0], rel=1e-3)


@pytest.mark.parametrize(
    ("weeks", "text"),
    [
        (float("nan"), "not growing"),
        (0.0, "reached"),
        (0.5, "4 days"),
        (1.9, "13 days"),
        (6.4, "6 weeks"),
        (400.0, "more than two years"),
    ],
)
def test_weeks_are_said_as_far_as_one_may(weeks: float, text: str) -> None:
    assert weeks_text(weeks) == text
