"""Growth is found with its uncertainty, and verdicts wait for enough data."""

from __future__ import annotations

import random
import statistics

import pytest
from e2e.soak.growth import quantile, trend
from e2e.soak.recording import DOWN, LINK, Interval, Latency, NodeSample, Probe, Recording
from e2e.soak.report import render
from e2e.soak.verdict import MIB, State, Verdict, verdicts

HOUR = 3600


def test_trend_of_a_straight_line_is_its_slope() -> None:
    found = trend([(float(at), 100 + 7 * at / HOUR) for at in range(HOUR)])
    assert found is not None
    assert found.per_hour == pytest.approx(7)
    assert found.half_width == pytest.approx(0, abs=1e-6)
    assert found.seconds == HOUR - 1


def test_trend_of_medians_passes_over_the_outliers_of_faults() -> None:
    def value(at: int) -> float:
        return 500.0 if 1500 <= at < 1530 or 3000 <= at < 3030 else 3 + 2 * at / HOUR

    points = [(float(at), value(at)) for at in range(0, HOUR, 10)]
    of_medians, of_means = trend(points, statistics.median), trend(points)
    assert of_medians is not None
    assert of_means is not None
    assert of_medians.per_hour == pytest.approx(2, abs=0.1)
    assert of_medians.half_width < 0.1
    assert of_means.half_width > 10


def test_trend_at_a_constant_covariate_finds_what_its_noise_hides() -> None:
    chance = random.Random(1)
    phases = [chance.uniform(1, 9) for _ in range(HOUR // 100)]
    disk = [(float(at), phases[at // 100]) for at in range(HOUR)]
    points = [(at, 3 + 2 * sync + 0.5 * at / HOUR + chance.gauss(0, 0.1)) for at, sync in disk]
    alone, beside = trend(points), trend(points, covariate=disk)
    assert alone is not None
    assert beside is not None
    assert alone.half_width > 1
    assert beside.half_width < 0.1
    assert beside.per_hour == pytest.approx(0.5, abs=0.1)


def test_a_covariate_that_explains_nothing_takes_no_growth_away() -> None:
    chance = random.Random(2)
    points = [(float(at), 7 * at / HOUR + chance.gauss(0, 0.1)) for at in range(HOUR)]
    found = trend(points, covariate=[(float(at), chance.random()) for at in range(HOUR)])
    assert found is not None
    assert found.per_hour == pytest.approx(7, abs=0.2)
    assert trend(points, covariate=[(1e6, 1.0)]) is None


def test_growth_that_the_covariate_shares_is_not_told_apart_from_it() -> None:
    """A disk that slows down as steadily as the service leaves no verdict, not a good one."""
    chance = random.Random(3)
    points = [(float(at), 7 * at / HOUR + chance.gauss(0, 0.1)) for at in range(HOUR)]
    disk = [(float(at), at / HOUR + chance.gauss(0, 0.001)) for at in range(HOUR)]
    found = trend(points, covariate=disk)
    assert found is not None
    assert found.half_width > 7


def test_trend_of_too_few_samples_is_none() -> None:
    assert trend([(float(at), 1.0) for at in range(11)]) is None
    assert trend([(0.0, 1.0)] * 100) is None


def test_interval_covers_no_growth_of_a_random_walk_more_often_than_independent_errors_would() -> (
    None
):
    covered = 0
    for seed in range(100):
        chance, value, points = random.Random(seed), 0.0, []
        for at in range(2000):
            value = 0.99 * value + chance.gauss(0, 1)
            points.append((float(at), value))
        found = trend(points)
        assert found is not None
        covered += abs(found.per_hour) <= found.half_width
    assert covered >= 85


def test_quantiles() -> None:
    values = [float(number) for number in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([3.0], 0.99)) == (50, 99, 3)


def recorded(hours: float, growth_mib: float) -> Recording:
    """Return a soak in which n1 grows by so much an hour."""
    chance = random.Random(1)
    times = range(0, int(hours * HOUR), 10)
    samples = [
        NodeSample(float(at), name, 1, _memory(at, growth_mib, chance), 50, 10 * MIB)
        for at in times
        for name in ("n1", "n2")
    ]
    latencies = [Latency(float(at), 0.002 + chance.random() / 1000, True) for at in times]
    down = [Interval(DOWN, "n2 <killed>", 10.0, 20.0)]
    recording = Recording("a command", 10, hours * HOUR, samples, latencies, down)
    recording.confirmed = 5000
    return recording


def _memory(at: int, growth_mib: float, chance: random.Random) -> int:
    return int((100 + growth_mib * at / HOUR + chance.random()) * MIB)


def about(word: str, recording: Recording) -> Verdict:
    return next(each for each in verdicts(recording) if word in each.rule)


@pytest.mark.parametrize(
    ("hours", "growth", "state"),
    [(2, 1, State.HOLDS), (2, 100, State.BROKEN), (2, 16, State.OPEN), (0.5, 0, State.OPEN)],
)
def test_memory_is_judged_by_the_whole_interval_and_after_enough_time(
    hours: float, growth: float, state: State
) -> None:
    assert about("memory", recorded(hours, growth)).state is state


def test_latency_is_judged_at_the_sync_time_of_the_disk_where_that_was_probed() -> None:
    chance, recording = random.Random(4), recorded(2, 0)
    phases = [chance.uniform(0.001, 0.009) for _ in range(72)]
    recording.latencies = [
        Latency(float(at), 2 * phases[at // 100] + chance.random() / 1000, True)
        for at in range(0, 2 * HOUR, 2)
    ]
    for word in ("median", "percentile"):
        alone = about(word, recording)
        assert alone.state is State.OPEN
        assert "constant" not in alone.text
    recording.probes = [Probe(float(at), phases[at // 100]) for at in range(2 * HOUR)]
    for word in ("median", "percentile"):
        beside = about(word, recording)
        assert beside.state is State.HOLDS
        assert "at a constant sync time" in beside.text


def test_latency_behind_a_slow_link_is_no_growth() -> None:
    recording = recorded(1, 0)
    slow = Interval(LINK, "n1 900 kbit/s", 2700.0, 2800.0)
    recording.latencies = [
        Latency(each.at, 8.0, True) if slow.begin <= each.at <= slow.end else each
        for each in recording.latencies
    ]
    assert about("median", recording).state is not State.HOLDS
    recording.intervals.append(slow)
    assert about("median", recording).state is State.HOLDS


def test_a_disk_that_slows_down_is_told_by_its_own_rule() -> None:
    recording = recorded(2, 0)
    assert about("disk below", recording).state is State.OPEN
    recording.probes = [Probe(float(at), 0.001 + 0.005 * at / HOUR) for at in range(2 * HOUR)]
    assert about("disk below", recording).state is State.BROKEN


def test_loss_and_problems_are_broken_rules_whatever_the_amount_of_data() -> None:
    recording = recorded(0.1, 0)
    assert about("come back", recording).state is State.HOLDS
    recording.confirmed = 999
    assert about("come back", recording).state is State.OPEN
    recording.missing = 1
    assert about("come back", recording).state is State.BROKEN
    recording.problems = ["n1: Traceback"]
    assert about("traceback", recording).state is State.BROKEN


def test_rules_without_any_sample_have_no_verdict() -> None:
    assert {each.state for each in verdicts(Recording("nothing"))} == {State.OPEN}
    assert "<svg" in render(Recording("nothing"))


def test_report_is_one_file_without_scripts_and_escapes_what_it_shows() -> None:
    page = render(recorded(1, 1))
    assert page.count("<svg") == page.count("</svg>") == 5
    assert "&lt;killed&gt;" in page
    assert "<killed>" not in page
    assert not any(word in page for word in ("<script", "http:", "https:", "<link", "url("))
