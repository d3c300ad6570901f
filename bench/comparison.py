"""Tables and chart of a comparison of brokers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from replication.figures import machine, table

Figures = dict[str, float]  # of a load generator, by name
Samples = dict[tuple[str, str], list[Figures]]  # by peer and scenario, one of each round
LABELS: Final = {
    "headrace": "Headrace",
    "before": "the build before",
    "rabbitmq": "RabbitMQ 3",
    "rabbitmq-later": "RabbitMQ 4",
    "nats": "NATS, no sync",
    "nats-sync": "NATS, sync always",
}
COLORS: Final = {
    "headrace": "tab:blue",
    "before": "lightsteelblue",
    "rabbitmq": "tab:orange",
    "rabbitmq-later": "tab:red",
    "nats": "tab:green",
    "nats-sync": "darkgreen",
}
NOTHING: Final = "-"


class Scenario(NamedTuple):
    """One load."""

    name: str
    arguments: list[str]  # for the load generator
    confirms: bool = True  # publishers wait for confirms


def median(samples: Samples, peer: str, scenario: str, figure: str) -> float | None:
    """Return the median of one figure over all rounds, None where it was not measured."""
    found = [sample[figure] for sample in samples.get((peer, scenario), ())]
    return statistics.median(found) if found else None


def report(
    samples: Samples,
    versions: Mapping[str, str],
    chosen: Sequence[Scenario],
    rounds: int,
    problems: Sequence[str],
) -> str:
    """Return the Markdown tables.

    Args:
        samples: what was measured.
        versions: of the peers, by name.
        chosen: scenarios, one a row.
        rounds: how often each was measured.
        problems: what was not, and why.
    """
    lines = [
        *(f"- {version}" for version in versions.values()),
        "",
        f"Three nodes each, in turn, {machine()},",
        f"load generator included; medians of the rounds that went well, of {rounds}.",
        "",
        *(f"- Not measured: {_first_line(problem)}" for problem in problems),
        *([""] if problems else []),
        _table("received/s", samples, versions, chosen, _rate),
        "",
        _table("confirm p50 / p99, ms", samples, versions, chosen, _confirm),
        "",
        _table("end to end p50 / p99, ms", samples, versions, chosen, _end_to_end),
    ]
    return "\n".join(lines)


def _first_line(text: str) -> str:
    return text.splitlines()[0]


def _table(
    title: str,
    samples: Samples,
    versions: Mapping[str, str],
    chosen: Sequence[Scenario],
    cell: Callable[[Samples, str, Scenario], str],
) -> str:
    rows = [[each.name, *(cell(samples, name, each) for name in versions)] for each in chosen]
    return table([title, *(LABELS[name] for name in versions)], rows)


def _rate(samples: Samples, peer: str, scenario: Scenario) -> str:
    """Return the rate, and how many times Headrace's is that; both ways without confirms."""
    rate = median(samples, peer, scenario.name, "received_s")
    if rate is None:
        return NOTHING
    text = f"{rate:,.0f}"
    own = median(samples, "headrace", scenario.name, "received_s")
    if peer != "headrace" and own and rate:
        text += f" (1 : {own / rate:.2f})"
    sent = median(samples, peer, scenario.name, "sent_s")
    return text if scenario.confirms or sent is None else f"{text} of {sent:,.0f} published"


def _confirm(samples: Samples, peer: str, scenario: Scenario) -> str:
    return _latency(samples, peer, scenario, "confirm") if scenario.confirms else NOTHING


def _end_to_end(samples: Samples, peer: str, scenario: Scenario) -> str:
    return _latency(samples, peer, scenario, "e2e")


def _latency(samples: Samples, peer: str, scenario: Scenario, kind: str) -> str:
    p50 = median(samples, peer, scenario.name, f"{kind}_ms_p50")
    p99 = median(samples, peer, scenario.name, f"{kind}_ms_p99")
    return NOTHING if p50 is None or p99 is None else f"{p50:.2f} / {p99:.2f}"


def plot(samples: Samples, names: Sequence[str], chosen: Sequence[Scenario], path: Path) -> None:
    """Draw rates and end-to-end latencies into a PNG file; logarithmic, as they are far apart.

    The build before is left out: whoever looks at the chart compares brokers.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    names = [each for each in names if each != "before"]
    size = (14, 1.4 + len(chosen))
    figure, panels = pyplot.subplots(1, 2, figsize=size, sharey=True, layout="constrained")
    height = 0.8 / len(names)
    for panel, kind, title in zip(
        panels,
        ("received_s", "e2e_ms_p50"),
        ("received messages / s", "end-to-end latency p50, ms"),
        strict=True,
    ):
        for place, name in enumerate(names):
            found = [median(samples, name, each.name, kind) for each in chosen]
            rows = [number + place * height for number in range(len(chosen))]
            known = [(row, value) for row, value in zip(rows, found, strict=True) if value]
            bars = panel.barh(
                [row for row, _ in known],
                [value for _, value in known],
                height,
                color=COLORS[name],
                label=LABELS[name],
            )
            panel.bar_label(bars, fmt=_figure, fontsize=8, padding=2)
        panel.set_xscale("log")
        panel.set_title(title)
        panel.margins(x=0.14)
        panel.grid(axis="x", alpha=0.3)
    middle = 0.4 - height / 2
    panels[0].set_yticks([number + middle for number in range(len(chosen))])
    panels[0].set_yticklabels([each.name.replace(", ", ",\n", 1) for each in chosen])
    panels[0].invert_yaxis()
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names)
    )
    figure.savefig(path, dpi=100)


def _figure(value: float) -> str:
    """Return a figure as a label: whole from 100 on, with three digits below."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
