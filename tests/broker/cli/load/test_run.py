"""A run with a fake load: counts, output and sums."""

from __future__ import annotations

import asyncio
import time

import pytest

from headrace_broker.cli.load import run
from headrace_broker.cli.load.pace import BURST_S_MAX, Pace
from headrace_broker.cli.load.plan import STAMP, Plan, Tally
from headrace_broker.cli.load.report import Second, Summary, latencies, line_of, lines_of
from headrace_broker.cli.load.run import Run

PLAN = Plan("h:1", ("u", "p"), "/", ("a", "b"), 3, 2, 100, 10, 0, 5, True)


class FakeLoad:
    """Hands messages from publishers to consumers."""

    def __init__(self, tally: Tally, ended: asyncio.Event) -> None:
        self.tally = tally
        self.ended = ended
        self.published: list[str] = []
        self.consumed: list[str] = []
        self.under_way: asyncio.Queue[bytes] = asyncio.Queue()

    async def publish(self, queue: str) -> None:
        self.published.append(queue)
        for _ in range(10):
            self.under_way.put_nowait(STAMP.pack(time.monotonic_ns()))
            self.tally.sent += 1
            self.tally.confirmed += 1
        await self.ended.wait()

    async def consume(self, queue: str) -> None:
        self.consumed.append(queue)
        while True:
            self.tally.receive(await self.under_way.get(), time.monotonic_ns())


async def _run(told: list[Second]) -> tuple[FakeLoad, Summary]:
    tally, ended = Tally(), asyncio.Event()
    load = FakeLoad(tally, ended)
    return load, await Run(PLAN, tally, ended, told.append).run(load, 0.01)


def test_publishers_and_consumers_are_dealt_out_and_counted() -> None:
    load, summary = asyncio.run(_run([]))
    assert (load.published, load.consumed) == (["a", "b", "a"], ["a", "b"])
    assert (summary.sent, summary.confirmed, summary.received) == (30, 30, 30)
    assert 0 <= summary.latency_ms["min"] <= summary.latency_ms["p99"] <= summary.latency_ms["max"]
    assert lines_of(summary)[0].split()[:2] == ["sent", "30"]


class StuckLoad(FakeLoad):
    """Sends a message that nobody confirms."""

    async def publish(self, queue: str) -> None:
        self.tally.sent += 1
        await asyncio.Event().wait()


def test_a_run_ends_though_messages_are_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "DRAIN_S_MAX", 0.01)
    tally, ended = Tally(), asyncio.Event()
    load = StuckLoad(tally, ended)
    summary = asyncio.run(Run(PLAN, tally, ended, lambda _: None).run(load, 0.01))
    assert (summary.sent, summary.confirmed, summary.received) == (3, 0, 0)


def test_a_summary_says_what_it_lacks_and_what_limits_it() -> None:
    _, summary = asyncio.run(_run([]))
    summary.processor_share = 0.89
    assert "processor" not in "".join(lines_of(summary))
    summary.processor_share, summary.confirmed = 0.9, 28
    lines = lines_of(summary)
    assert "took 90% of one processor" in lines[-1]
    assert "2 sent messages are not" in lines[1]


def test_a_message_without_a_stamp_has_no_age() -> None:
    tally = Tally()
    tally.receive(b"short", 5_000)
    tally.receive(STAMP.pack(2_000_000), 5_000_000)
    assert (tally.received, tally.received_ns) == (2, 5_000_000)
    assert latencies(tally.take_latency())["max"] == 3.0
    assert tally.take_latency().count == 0
    assert tally.total_latency.count == 1


def test_a_second_is_a_line() -> None:
    assert line_of(Second(3.0, 65_432.0, 60_000.0, 0.5, 1.25, 12.0)) == (
        "   3.0 s  sent    65,432/s  received    60,000/s  min/avg/max latency 0.5 / 1.2 / 12.0 ms"
    )


def test_a_pace_is_even_and_catches_up_a_little_only() -> None:
    now = [100.0]
    pace = Pace(10, lambda: now[0])
    assert [round(pace.delay(), 6) for _ in range(3)] == [0.1, 0.2, 0.3]
    now[0] = 200.0
    delays = [pace.delay() for _ in range(3)]
    assert delays[0] == 0
    assert round(delays[2], 6) == round(3 * 0.1 - BURST_S_MAX, 6)
    assert Pace(0, lambda: now[0]).delay() == 0
