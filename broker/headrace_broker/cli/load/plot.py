"""A picture of a run; needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import click

from headrace_broker.cli.load.report import Summary


def check_plot() -> None:
    """Raise click.ClickException at once when matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        text = "--plot needs matplotlib: pip install 'headrace[bench]'"
        raise click.ClickException(text) from None


def draw(summary: Summary, title: str, file: Path) -> None:
    """Draw rates and latencies over time; OSError or ValueError where the file cannot be."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    rates, latency = figure.subplots(2, 1, sharex=True)
    times = [second.at_s for second in summary.by_second]
    rates.plot(times, [second.sent_rate for second in summary.by_second], label="sent")
    rates.plot(times, [second.received_rate for second in summary.by_second], label="received")
    rates.set_ylabel("messages a second")
    rates.set_ylim(bottom=0)
    rates.set_title(title)
    rates.legend()
    latency.plot(times, [second.latency_ms_max for second in summary.by_second], label="max")
    latency.plot(times, [second.latency_ms_avg for second in summary.by_second], label="avg")
    latency.set_ylabel("latency, ms")
    latency.set_xlabel("seconds")
    latency.set_ylim(bottom=0)
    latency.legend()
    figure.savefig(file, dpi=120)
