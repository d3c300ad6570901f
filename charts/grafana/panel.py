"""Panels of a dashboard, and the syntax of their queries."""

from __future__ import annotations

from typing import Final, NamedTuple


class Panel(NamedTuple):
    """One picture.

    Attributes:
        queries: PromQL and its legend; PICK stands for the chosen nodes.
        kind: "timeseries" or "stat".
        stacked: series are put on top of each other.
        text: what it says, for those who do not know.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    stacked: bool = False
    text: str = ""


Row = tuple[str, tuple[Panel, ...]]
NODE: Final = "{{instance}}"


def rate(metric: str, by: str = "instance", more: str = "") -> str:
    """Return the query of a counter's rate."""
    return f"sum by ({by}) (rate({metric}{{PICK{more}}}[$__rate_interval]))"


def total(metric: str, by: str = "instance", more: str = "") -> str:
    """Return the query of a gauge's sum."""
    return f"sum by ({by}) ({metric}{{PICK{more}}})"


def quantile(metric: str, share: float, by: str = "instance") -> str:
    """Return the query of a histogram's quantile."""
    rates = f"sum by ({by}, le) (rate({metric}_bucket{{PICK}}[$__rate_interval]))"
    return f"histogram_quantile({share}, {rates})"


def stat(title: str, unit: str, query: str, text: str = "") -> Panel:
    """Return a panel with one figure."""
    return Panel(title, unit, ((query, ""),), kind="stat", text=text)
