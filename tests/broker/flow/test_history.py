"""Figures over the last hour."""

from __future__ import annotations

from headrace_broker.flow.history import COARSE_MS, FINE_MS, History

HOUR_MS = 3_600_000


def filled(seconds: int) -> History:
    history = History((0, 0), 0)
    for now in range(FINE_MS, 1000 * seconds + 1, FINE_MS):
        history.sample((now // 1000, -now), now)
    return history


def test_the_last_two_samples_give_a_rate():
    assert History((3, 4), 7).last() == [(7, 3, 4)]
    assert filled(10).last() == [(5_000, 5, -5_000), (10_000, 10, -10_000)]


def test_ten_minutes_are_there_every_five_seconds_and_an_hour_every_minute():
    history = filled(2 * 3600)
    fine = history.samples(600_000, FINE_MS)
    assert len(fine) == 121
    assert {fine[at][0] - fine[at + 1][0] for at in range(120)} == {FINE_MS}
    coarse = history.samples(HOUR_MS, FINE_MS)
    assert len(coarse) == 61
    assert {coarse[at][0] - coarse[at + 1][0] for at in range(60)} == {COARSE_MS}
    assert coarse[0][0] == 2 * HOUR_MS


def test_samples_may_be_wider_apart():
    found = filled(600).samples(120_000, 30_000)
    assert [each[0] for each in found] == [600_000, 570_000, 540_000, 510_000, 480_000]


def test_samples_that_come_late_are_not_left_out():
    history = History((0,), 0)
    for now in (5_100, 10_050, 15_300, 20_200):
        history.sample((now,), now)
    assert [each[0] for each in history.samples(60_000, FINE_MS)] == [
        20_200,
        15_300,
        10_050,
        5_100,
        0,
    ]


def test_it_is_over_once_nothing_has_changed_for_longer_than_is_kept():
    history = History((1,), 0)
    history.sample((2,), 5_000)
    assert not history.is_over(HOUR_MS)
    assert history.is_over(HOUR_MS + 3 * COARSE_MS)
