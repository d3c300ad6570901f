"""Rows that go at a rate."""

from __future__ import annotations

from headrace_pipeline.sinks.exchange.pace import Pacer


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def test_rows_go_at_the_rate_and_in_small_parts() -> None:
    time = Time()
    pacer = Pacer(50, time.clock, time.sleep)
    when = [(len(part), time.now) for part in pacer.parts(range(200))]
    assert {count for count, _ in when} == {5}
    assert when[0][1] == 100.0
    assert round(time.now - 100.0, 6) == 195 / 50
    assert [len(part) for part in pacer.parts(range(3))] == [3]
    assert round(time.now - 100.0, 6) == 200 / 50


def test_who_was_late_does_not_make_up_for_it() -> None:
    time = Time()
    pacer = Pacer(10, time.clock, time.sleep)
    assert len(list(pacer.parts(range(2)))) == 2
    time.now += 1000
    begun = time.now
    assert len(list(pacer.parts(range(11)))) == 11
    assert round(time.now - begun, 6) == 1.0


def test_less_than_one_a_second_is_a_rate_too() -> None:
    time = Time()
    for part in Pacer(0.5, time.clock, time.sleep).parts(range(3)):
        assert len(part) == 1
    assert time.now == 104.0


def test_no_rate_is_no_limit() -> None:
    time = Time()
    assert list(Pacer(0, time.clock, time.sleep).parts([1, 2])) == [[1, 2]]
    assert time.now == 100.0
