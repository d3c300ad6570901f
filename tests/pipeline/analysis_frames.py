"""Believable frames of the analysis, the same at every run: what reports are tried with.

They are made once for a run of tests; nobody may change them.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from headrace_pipeline.report.frames import TABLES, Frames, Span, span_of
from headrace_pipeline.schema import analysis
from headrace_pipeline.schema.column import Table

MONDAY: Final = datetime(2026, 11, 16, tzinfo=UTC)
MIB: Final = 1 << 20
GIB: Final = 1 << 30

Row = dict[str, Any]


class Story:
    """Rows that are added step by step, by table.

    Args:
        span: of time; each row is a window as long as a step.
        vhost: of all queues.
    """

    def __init__(self, span: Span, vhost: str = "/") -> None:
        self.span = span
        self.vhost = vhost
        self.rows: dict[str, list[Row]] = {table.name: [] for table in TABLES}

    def add(self, table: Table, step: int, **values: Any) -> None:
        """Add a row of a window."""
        at = self.span.at(step)
        window = {"window_start": at, "window_s": self.span.step_s, "day": at.date()}
        self.rows[table.name].append({**window, **values})

    def queue(self, step: int, name: str, rate: float, settled: float, **values: Any) -> None:
        """Add what a queue did, in messages per second."""
        length = self.span.step_s
        given = {
            "leader": "n1",
            "samples": length,
            "published": round(rate * length),
            "delivered": round(settled * length),
            "settled": round(settled * length),
            "published_rate": rate,
            "published_rate_max": rate * 1.4,
            "ready_max": 0,
            "ready_last": 0,
            "oldest_ready_ms_max": 0,
            "blocked_ms": 0,
        }
        self.add(analysis.QUEUE_WINDOWS, step, vhost=self.vhost, queue=name, **{**given, **values})

    def blame(self, step: int, queue: str, blocked_ms: int, shares: Mapping[str, float]) -> None:
        """Add an account's blame for the blocked time of a queue."""
        for rank, (account, share) in enumerate(shares.items(), 1):
            self.add(
                analysis.BLAME,
                step,
                vhost=self.vhost,
                queue=queue,
                origin_account=f"user:{account}",
                account_name=account,
                account_kind="connection",
                user="guest",
                blocked_ms=blocked_ms,
                cost_us=share * 1e6,
                share=share,
                blamed_ms=share * blocked_ms,
                queue_rank=rank,
                window_blamed_ms=share * blocked_ms,
                window_rank=rank,
            )

    def brought(self, step: int, queue: str, account: str, rate: float, exchange: str) -> None:
        """Add what an account brought to a queue, in copies per second."""
        copies = round(rate * self.span.step_s)
        self.add(
            analysis.ACCOUNT_WINDOWS,
            step,
            vhost=self.vhost,
            queue=queue,
            origin_account=f"user:{account}",
            account_name=account,
            exchange=exchange,
            copies=copies,
            copies_rate=rate,
            octets=copies * 800,
        )

    def slow(self, step: int, queue: str, bottleneck: str, seconds: int, because: str) -> None:
        """Add that a queue was a bottleneck for a part of a step."""
        row = {"vhost": self.vhost, "queue": queue, "bottleneck": bottleneck, "because": because}
        self.add(analysis.BOTTLENECKS, step, **row)
        self.rows["bottlenecks"][-1]["window_s"] = max(60, seconds // 60 * 60)

    def node(self, step: int, name: str, rate: float, **values: Any) -> None:
        """Add what a node did."""
        given = {
            "samples": self.span.step_s,
            "published": round(rate * self.span.step_s),
            "memory_alarm_ms": 0,
            "disk_alarm_ms": 0,
            "alarm_ms": 0,
            "left_out": 0,
            "skew_ms": 0,
            "loop_lag_ms_max": 12.0,
        }
        self.add(analysis.NODE_WINDOWS, step, node=name, **{**given, **values})

    def advise(self, step: int, queue: str, now: int, advised: int, **values: Any) -> None:
        """Add advice."""
        until = self.span.at(step) + timedelta(minutes=15)
        given = {"consumers": now, "baseline": now, "advised": advised, "valid_until": until}
        self.add(
            analysis.CONSUMER_ADVICE, step, vhost=self.vhost, queue=queue, **{**given, **values}
        )

    def limit(self, kind: str, name: str, measure: str, p95: float, **values: Any) -> None:
        """Add how near something comes to its limit."""
        row = {"kind": kind, "name": name, "measure": measure, "p95": p95, "days": 7}
        row["vhost"] = None if kind == "node" else self.vhost
        limit = values["limit"]
        if limit is not None:
            row["used_share"] = limit / p95 if measure.endswith("_free") else p95 / limit
        row["growth_per_week"] = 0.0
        self.rows["capacity"].append({**row, "limit_from": "measured", **values})

    def frames(self) -> Frames:
        """Return the added rows, as tables are read."""
        return Frames(*(_frame(table, self.rows[table.name]) for table in TABLES))


def _frame(table: Table, rows: list[Row]) -> pd.DataFrame:
    columns = {name: [row.get(name) for row in rows] for name in table.names}
    return pa.Table.from_pydict(columns, schema=table.arrow()).to_pandas()


def daily(step: int, span: Span) -> float:
    """Return how busy people are, 0.25 to 1: by day more than by night, on weekends less."""
    at = span.at(step)
    hour = at.hour + at.minute / 60
    day = 0.5 - 0.5 * math.cos((hour - 3) / 24 * 2 * math.pi)
    return 0.25 + 0.75 * day * (0.45 if at.weekday() >= 5 else 1.0)


BUSY: Final = {
    "orders": 420.0,
    "audit": 800.0,
    "invoices": 90.0,
    "mails": 140.0,
    "metrics": 1900.0,
    "search.index": 260.0,
    "images.resize": 35.0,
    "shipments": 60.0,
    "billing.events": 310.0,
    "notifications.push": 520.0,
    "crm.sync": 22.0,
    "reports.nightly": 8.0,
    "fraud.scores": 180.0,
    "returns": 12.0,
}


@cache
def busy_week() -> tuple[Frames, Span]:
    """A week of a shop: an import floods `orders`, replication limits `metrics`, a node alarms."""
    span = span_of(MONDAY, MONDAY + timedelta(days=7))
    story, chance = Story(span), random.Random(7)
    for step in range(span.steps):
        at = span.at(step)
        imports = at.weekday() in (1, 2) and 9 <= at.hour < 12
        down = at.weekday() == 6 and 3 <= at.hour < 5
        busy = daily(step, span)
        for name, rate in BUSY.items():
            if name not in ("orders", "metrics", "images.resize"):
                now = rate * busy * chance.uniform(0.9, 1.1)
                ready = round(chance.expovariate(1) * 30)
                story.queue(step, name, now, now, ready_max=ready, leader="n2")
        _orders(story, step, imports, busy * chance.uniform(0.95, 1.05))
        _metrics(story, step, at, busy * chance.uniform(0.95, 1.05))
        _images(story, step, at, busy)
        _nodes(story, step, at, down, busy)
    _plans(story)
    return story.frames(), span


def _orders(story: Story, step: int, imports: bool, busy: float) -> None:
    usual, most = 420 * busy, 520.0
    flood = 900.0 if imports else 0.0
    told = [row for row in story.rows["queue_windows"][-20:] if row["queue"] == "orders"]
    backlog = told[-1]["ready_last"] if told else 0
    length = story.span.step_s
    came = usual + flood
    after = max(0, backlog + (came - most) * length * 0.05)
    left = came - (after - backlog) / length
    blocked = round(length * 1000 * (1.7 if imports else 0.3 if after > 20_000 else 0))
    given = {"ready_max": round(max(after, backlog, 40)), "ready_last": round(after)}
    given |= {"blocked_ms": blocked, "oldest_ready_ms_max": round(after / most * 1000)}
    story.queue(step, "orders", came, left, **given)
    story.brought(step, "orders", "checkout-1", usual * 0.55, "shop")
    story.brought(step, "orders", "checkout-2", usual * 0.45, "shop")
    story.brought(step, "orders", "bulk-import", flood + 12, "imports")
    if blocked:
        shares = {"bulk-import": 0.71, "checkout-1": 0.16, "checkout-2": 0.10, "crm-bridge": 0.03}
        story.blame(step, "orders", blocked, shares)
        because = "both consumers were busy 99 % of the time; 1,320/s came and 520/s were settled"
        story.slow(step, "orders", analysis.CONSUMERS_SATURATED, length * 9 // 10, because)
        figures = {"arrival_rate_p95": came, "service_rate": most / 2, "backlog": round(after)}
        story.advise(
            step, "orders", 2, 8, **figures, bottleneck="consumers_saturated", because=because
        )


def _metrics(story: Story, step: int, at: datetime, busy: float) -> None:
    nightly = at.hour in (1, 2)
    rate = 1900 * busy + (2600 if nightly else 0)
    blocked = round(story.span.step_s * 1000 * 0.42) if nightly else 0
    ready = 2500 if nightly else 120
    story.queue(step, "metrics", rate, rate, ready_max=ready, blocked_ms=blocked, leader="n3")
    story.brought(step, "metrics", "telemetry-gw", rate, "metrics")
    if nightly:
        story.blame(step, "metrics", blocked, {"telemetry-gw": 0.88, "batch-rollup": 0.12})
        because = "commit latency was 84 ms at p99 with pending commands at their limit"
        story.slow(step, "metrics", analysis.RAFT_COMMIT, 2400, because)


def _images(story: Story, step: int, at: datetime, busy: float) -> None:
    failing = at.weekday() == 3 and 13 <= at.hour < 19
    rate = 35 * busy
    ready = 900 * (at.hour - 12) if failing else 3
    left = rate * (0.2 if failing else 1)
    story.queue(step, "images.resize", rate, left, ready_max=ready, dead_lettered=400 * failing)
    if failing:
        because = "412 deliveries failed in the minute, of 3 messages that came again and again"
        story.slow(step, "images.resize", analysis.POISON_OR_CRASH, 3000, because)
    if at.weekday() == 4 and at.hour == 10:
        story.blame(step, "notifications.push", 240_000, {"campaigns": 0.93, "checkout-1": 0.07})
        row = next(
            r for r in reversed(story.rows["queue_windows"]) if r["queue"] == "notifications.push"
        )
        row["blocked_ms"] = 240_000
        because = "8,400/s came for 40 s, of 520/s in the hour"
        story.slow(step, "notifications.push", analysis.PUBLISHER_BURST, 240, because)


def _nodes(story: Story, step: int, at: datetime, down: bool, busy: float) -> None:
    for node, part in (("n1", 0.4), ("n2", 0.25), ("n3", 0.35)):
        if node == "n2" and down:
            continue
        alarm = node == "n3" and at.weekday() == 4 and at.hour == 14
        ms = 23 * 60_000 if alarm else 0
        given: Row = {"memory_alarm_ms": ms, "alarm_ms": ms}
        given["samples"] = round(
            story.span.step_s * (0.6 if node == "n2" and at.weekday() == 6 and at.hour == 5 else 1)
        )
        given["left_out"] = 204 if node == "n1" and at.weekday() == 2 and at.hour == 10 else 0
        given["skew_ms"] = 340 if node == "n3" else 4
        story.node(step, node, 4800 * busy * part, **given)


def _plans(story: Story) -> None:
    grows = {"growth_per_week": 210.0, "weeks_to_limit": 5.7}
    story.limit("node", "n1", "published_rate", 4800.0, peak=6900.0, limit=11000.0)
    story.limit("node", "n3", "published_rate", 5200.0, peak=9100.0, limit=9400.0)
    disk = {"growth_per_week": -6.2 * GIB, "weeks_to_limit": 9.4, "limit_from": "configured"}
    story.limit("node", "n2", "disk_free", 78 * GIB, peak=71 * GIB, limit=20 * GIB, **disk)
    story.limit("node", "n2", "published_rate", 3100.0, peak=4000.0, limit=None, limit_from=None)
    story.limit("queue", "metrics", "published_rate", 3200.0, peak=4500.0, limit=4400.0, **grows)
    story.limit("queue", "orders", "settled_rate", 505.0, peak=540.0, limit=520.0)
    story.limit("queue", "audit", "published_rate", 760.0, peak=1100.0, limit=4400.0)
    steady = {"arrival_rate_p95": 41.0, "service_rate": 11.0, "backlog": 40}
    last = story.span.steps - 1
    story.advise(last, "images.resize", 6, 4, **steady, because="four consumers are enough")
    story.advise(last, "mails", 3, 3, **{**steady, "arrival_rate_p95": 30.0}, because="as it is")


@cache
def one_queue() -> tuple[Frames, Span]:
    """An hour of one queue without stopped publishers."""
    span = span_of(MONDAY + timedelta(hours=9), MONDAY + timedelta(hours=10))
    story = Story(span)
    for step in range(span.steps):
        story.queue(step, "tasks", 100 + step, 100 + step, ready_max=step % 7)
        story.node(step, "n1", 100 + step)
    return story.frames(), span


@cache
def many_queues(count: int) -> tuple[Frames, Span]:
    """A day of many queues, a tenth of which are slow at some time."""
    span = Span(MONDAY, MONDAY + timedelta(days=1), 3600)
    story, chance = Story(span), random.Random(11)
    for number in range(count):
        rate, slow_from = chance.paretovariate(1.2), chance.randrange(span.steps)
        for step in range(span.steps):
            name, now = f"tenant-{number:04d}.events", rate * daily(step, span)
            slow = number % 10 == 0 and slow_from <= step < slow_from + 3
            blocked = 20_000 * (1 + number % 7) if slow else 0
            story.queue(step, name, now, now, ready_max=number % 50, blocked_ms=blocked)
            if slow:
                tenants = {f"tenant-{number:04d}": 0.8, f"tenant-{number // 2:04d}": 0.2}
                story.blame(step, name, blocked, tenants)
                bottleneck = analysis.CLASSES[number // 10 % len(analysis.CLASSES)]
                story.slow(step, name, bottleneck, 1500, "as generated")
        story.limit(
            "queue",
            f"tenant-{number:04d}.events",
            "published_rate",
            rate,
            peak=rate * 1.5,
            limit=40.0,
        )
    for step in range(span.steps):
        for node in ("n1", "n2", "n3"):
            story.node(step, node, 500.0)
    return story.frames(), span


HOSTILE: Final = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; DROP TABLE queues; --",
    "</title></style></svg><script>fetch('http://evil.example')</script>",
    "javascript:alert(1)//\u202egpj.exe",
    "&lt;b&gt;&amp;#60;",
    "nul\x00bell\x07esc\x1b[31m\u0085",
    "a" * 250,
    "\u05d0\u05d1\u05d2 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "e\u0301\u0301\u0301 \U0001f4e6 queue",
    "]]><!--",
    " ",
)


@cache
def hostile() -> tuple[Frames, Span]:
    """An hour in which everything has a hostile name."""
    span = span_of(MONDAY + timedelta(hours=9), MONDAY + timedelta(hours=10))
    story = Story(span, vhost="</td><script>alert(2)</script>")
    for step in range(span.steps):
        for number, name in enumerate(HOSTILE):
            leader = {"leader": name}
            story.queue(step, name, 50 + number, 50, ready_max=number, blocked_ms=3000, **leader)
            story.blame(step, name, 3000, {HOSTILE[number - 1]: 0.7, HOSTILE[number - 2]: 0.3})
            story.brought(step, name, HOSTILE[number - 1], 40 + step, name)
            story.slow(step, name, analysis.CLASSES[number % 7], 60, f"because {name}")
        story.node(step, HOSTILE[step % 3], 100.0, memory_alarm_ms=60_000, alarm_ms=60_000)
    figures = {"arrival_rate_p95": 10.0, "service_rate": 1.0, "backlog": 1}
    for name in HOSTILE:
        story.advise(span.steps - 1, name, 1, 9, **figures, bottleneck=name, because=name)
        story.limit("queue", name, "published_rate", 10.0, peak=11.0, limit=12.0, limit_from=name)
        story.limit("node", name, name, 10.0, peak=11.0, limit=12.0)
    story.queue(0, "plain", 1, 1)
    story.rows["queue_windows"][-1]["vhost"] = "other"
    return story.frames(), span


STORIES: Final[dict[str, Callable[[], tuple[Frames, Span]]]] = {
    "busy-week": busy_week,
    "one-queue": one_queue,
    "many": lambda: many_queues(1000),
    "hostile": hostile,
}


def main(folder: Path) -> None:
    """Write the report of each story, for people to look at."""
    from headrace_pipeline.report.page import render

    for name, story in STORIES.items():
        frames, span = story()
        page = render(frames, span, MONDAY + timedelta(days=7, hours=6), "an example")
        (folder / f"{name}.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
