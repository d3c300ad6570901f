"""Output of `headrace perf`: a line a second, and a summary."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace_broker.cli.load.histogram import Histogram

PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
BUSY_SHARE: Final = 0.9  # of a processor; a load that takes more may be what limits its rates


class Second(msgspec.Struct):
    """One second of a run."""

    at_s: float  # seconds since the beginning
    sent_rate: float  # messages sent a second
    received_rate: float  # messages received a second
    latency_ms_min: float  # shortest time from sending to receiving, 0 when nothing came
    latency_ms_avg: float  # mean of that
    latency_ms_max: float  # longest


class Summary(msgspec.Struct):
    """A whole run."""

    seconds: float  # how long it took
    sent: int  # messages
    confirmed: int  # messages, 0 without confirms
    received: int  # messages
    sent_rate: float  # messages a second
    received_rate: float  # messages a second
    latency_ms: dict[str, float]  # from sending to receiving: "min", "avg", "max", "p50", ..
    # of one processor that the load itself took in its thread, 1 for all of it
    processor_share: float
    by_second: list[Second]  # its seconds


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
        missing = summary.sent - summary.confirmed
        left = f"  {missing:,} sent messages are not, a while after the end" if missing else ""
        found.insert(1, f"confirmed {summary.confirmed:>12,}{left}")
    if summary.received:
        shown = "  ".join(f"{name} {value:,.1f}" for name, value in summary.latency_ms.items())
        found.append(f"latency   {shown} ms")
    if summary.processor_share >= BUSY_SHARE:
        found.append(
            f"This load took {summary.processor_share:.0%} of one processor: it may be what limits "
            "the rates, and not the broker. Run several at once, each with its own --queue."
        )
    return found


def _ms(microseconds: float) -> float:
    return round(microseconds / 1000, 3)
