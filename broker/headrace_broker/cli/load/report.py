"""Output of `headrace perf`: a line a second, and a summary."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace_broker.cli.load.histogram import Histogram

PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)


class Second(msgspec.Struct):
    """One second of a run.

    Attributes:
        at_s: seconds since the beginning.
        sent_rate: messages sent a second.
        received_rate: messages received a second.
        latency_ms_min: shortest time from sending to receiving, 0 when nothing came.
        latency_ms_avg: mean of that.
        latency_ms_max: longest.
    """

    at_s: float
    sent_rate: float
    received_rate: float
    latency_ms_min: float
    latency_ms_avg: float
    latency_ms_max: float


class Summary(msgspec.Struct):
    """A whole run.

    Attributes:
        seconds: how long it took.
        sent: messages.
        confirmed: messages, 0 without confirms.
        received: messages.
        sent_rate: messages a second.
        received_rate: messages a second.
        latency_ms: from sending to receiving: "min", "avg", "max", "p50", ...
        by_second: its seconds.
    """

    seconds: float
    sent: int
    confirmed: int
    received: int
    sent_rate: float
    received_rate: float
    latency_ms: dict[str, float]
    by_second: list[Second]


def second_of(at_s: float, span_s: float, sent: int, received: int, taken: Histogram) -> Second:
    """Return what happened in a span of time that ended `at_s`."""
    return Second(
        at_s=round(at_s, 1),
        sent_rate=round(sent / span_s, 1),
        received_rate=round(received / span_s, 1),
        latency_ms_min=_ms(taken.min_us),
        latency_ms_avg=_ms(taken.mean_us),
        latency_ms_max=_ms(taken.max_us),
    )


def latencies(histogram: Histogram) -> dict[str, float]:
    """Return minimum, mean, maximum and percentiles in milliseconds."""
    found = {
        "min": _ms(histogram.min_us),
        "avg": _ms(histogram.mean_us),
        "max": _ms(histogram.max_us),
    }
    for percent in PERCENTILES:
        found[f"p{percent:g}"] = _ms(histogram.percentile_us(percent))
    return found


def line_of(second: Second) -> str:
    """Return a second as a line for people."""
    return (
        f"{second.at_s:6.1f} s  sent {second.sent_rate:>9,.0f}/s  received "
        f"{second.received_rate:>9,.0f}/s  min/avg/max latency "
        f"{second.latency_ms_min:,.1f} / {second.latency_ms_avg:,.1f} / "
        f"{second.latency_ms_max:,.1f} ms"
    )


def lines_of(summary: Summary) -> list[str]:
    """Return a summary as lines for people."""
    found = [
        f"sent      {summary.sent:>12,}  {summary.sent_rate:>10,.0f}/s",
        f"received  {summary.received:>12,}  {summary.received_rate:>10,.0f}/s",
    ]
    if summary.confirmed:
        found.insert(1, f"confirmed {summary.confirmed:>12,}")
    if summary.received:
        shown = "  ".join(f"{name} {value:,.1f}" for name, value in summary.latency_ms.items())
        found.append(f"latency   {shown} ms")
    return found


def _ms(microseconds: float) -> float:
    return round(microseconds / 1000, 3)
