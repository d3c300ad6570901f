"""Measures with goals, their medians over rounds, and two brokers side by side in a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

from replication.figures import table

HEADS: Final = ("case", "measured", "goal", "Headrace", "met", "RabbitMQ", "met")


class Measure(NamedTuple):
    """One figure of a case.

    Attributes:
        case: the case's letter.
        name: what was measured, with its unit.
        value: the figure.
        least: the goal is at least this, None for no such goal.
        most: the goal is at most this, None for no such goal.
        digits: after the point.
    """

    case: str
    name: str
    value: float
    least: float | None = None
    most: float | None = None
    digits: int = 0

    @property
    def goal(self) -> str:
        """The goal for people, empty for none."""
        bounds = [
            f"{sign} {bound:,.{self.digits}f}"
            for sign, bound in ((">=", self.least), ("<=", self.most))
            if bound is not None
        ]
        return ", ".join(bounds)

    @property
    def met(self) -> bool | None:
        """Return whether the goal is met; None without a goal."""
        if self.least is None and self.most is None:
            return None
        return (self.least is None or self.value >= self.least) and (
            self.most is None or self.value <= self.most
        )


def medians(rounds: Sequence[Sequence[Measure]]) -> list[Measure]:
    """Return each measure with the median of its figures, in order of first appearance."""
    found: dict[tuple[str, str], list[Measure]] = {}
    for measures in rounds:
        for measure in measures:
            found.setdefault((measure.case, measure.name), []).append(measure)
    return [
        same[0]._replace(value=statistics.median(each.value for each in same))
        for same in found.values()
    ]


def share_of_bound(p99_ms: float, messages_max: float, rate: float) -> float:
    """Return a p99 as a share of the time that all that may be under way takes.

    Args:
        p99_ms: end to end.
        messages_max: how many the limits let be under way at once.
        rate: messages per second that take their turn; 0 is worse than any bound.
    """
    return p99_ms / (1000 * messages_max / rate) if rate > 0 else float("inf")


def side_by_side(headrace: Sequence[Measure], rabbitmq: Sequence[Measure]) -> str:
    """Return the Markdown table; what one of them does not have is left empty."""
    left = {(measure.case, measure.name): measure for measure in headrace}
    right = {(measure.case, measure.name): measure for measure in rabbitmq}
    rows: list[list[str]] = []
    for key in dict.fromkeys([*left, *right]):
        known = left.get(key) or right[key]
        row = [known.case, known.name, known.goal]
        for side in (left, right):
            row += _cells(side.get(key))
        rows.append(row)
    return table(HEADS, rows)


def _cells(measure: Measure | None) -> list[str]:
    if measure is None:
        return ["", ""]
    met = {None: "", True: "yes", False: "**no**"}[measure.met]
    return [f"{measure.value:,.{measure.digits}f}", met]
