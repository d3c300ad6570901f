"""The picture of a sweep: rate, latency and memory by offered load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

from pressure.cases import MEMORY_BYTES, MIB
from pressure.sweep import MULTIPLES, PUBLISHERS, QUEUES, Point

mpl.use("Agg")
from matplotlib import pyplot

LOOKS: Final = {
    "headrace": ("Headrace", "tab:blue", "o"),
    "rabbitmq": ("RabbitMQ 3.10", "tab:orange", "s"),
}
SENTENCE: Final = (
    f"{PUBLISHERS} publishers without confirms, {QUEUES} quorum queues with a consumer each, three"
    " nodes on one machine:\nrate and memory should stay where they are at capacity; what is"
    " published and not received waits in the queues, and is what the latency comes from."
)


def plot(points: Mapping[str, Sequence[Point]], path: Path, shards: int) -> None:
    """Draw the sweeps of some brokers into a PNG file; Headrace's nodes had so many shards."""
    figure, (rate, latency, memory) = pyplot.subplots(1, 3, figsize=(15, 5.2))
    for name, found in points.items():
        label, color, marker = LOOKS[name]
        label += f", {shards} shards a node" if name == "headrace" and shards > 1 else ""
        load = [point.multiple for point in found]
        look = {"color": color, "marker": marker, "markersize": 5}
        rate.plot(
            load, [each.received_s / 1000 for each in found], label=f"{label}, received", **look
        )
        published = [each.published_s / 1000 for each in found]
        rate.plot(load, published, label=f"{label}, published", linestyle="--", alpha=0.6, **look)
        p99 = [_seconds(each.p99_ms) for each in found]
        p50 = [_seconds(each.p50_ms) for each in found]
        latency.plot(load, p99, label=f"{label}, p99", **look)
        latency.plot(load, p50, label=f"{label}, p50", linestyle="--", alpha=0.6, **look)
        memory.plot(load, [each.memory / MIB for each in found], label=label, **look)
    memory.axhline(MEMORY_BYTES / MIB, color="grey", linestyle=":", label="memory watermark")
    _finish(rate, "Rate", "thousand messages / s")
    _finish(latency, "End-to-end latency", "seconds (logarithmic)")
    latency.set_yscale("log")
    _finish(memory, "Peak memory of a node", "MiB resident")
    memory.set_ylim(bottom=0)
    rate.set_ylim(bottom=0)
    figure.suptitle("Overload: half to ten times what each broker can do", fontsize=14)
    figure.text(0.5, 0.01, SENTENCE, ha="center", fontsize=9)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _seconds(milliseconds: float) -> float:
    """Nothing was received, so there is nothing to draw."""
    return milliseconds / 1000 if milliseconds > 0 else float("nan")


def _finish(axes: Any, title: str, unit: str) -> None:
    axes.set_title(title)
    axes.set_xlabel("offered load / capacity (logarithmic)")
    axes.set_ylabel(unit)
    axes.set_xscale("log")
    axes.set_xticks(MULTIPLES, [f"{each:g}" for each in MULTIPLES])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
