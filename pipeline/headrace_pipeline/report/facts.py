"""All that sections and sentences of one report draw from, found once."""

from __future__ import annotations

from typing import Final, NamedTuple

import pandas as pd

from headrace_pipeline.report import measure
from headrace_pipeline.report.frames import Frames, Span
from headrace_pipeline.report.markup import Markup, el, name
from headrace_pipeline.report.measure import Account, Held, Queue, Slowed

COLOURS: Final = 5  # accounts with a colour of their own; more cannot be told apart


class Facts(NamedTuple):
    """Facts about a span."""

    frames: Frames  # with the number of its step in each row
    span: Span  # of time
    known: list[bool]  # for each step whether anybody told of it
    seconds: list[float]  # of each step, that rates are taken over
    # that are blamed, most first; the first COLOURS have the classes a0, a1, ...
    accounts: list[Account]
    held: list[Held]  # queues at which publishers were stopped
    slowed: list[Slowed]  # queues that were bottlenecks
    one_vhost: bool  # whether all queues are in one, so that it need not be said

    @property
    def blocked_ms(self) -> float:
        """Blocked time of publishers at all queues."""
        return sum(each.blocked_ms for each in self.held)

    @property
    def elsewhere_ms(self) -> float:
        """Blocked time of publishers by limits without a queue: of nodes, users and accounts."""
        return float(self.frames.nodes["blocked_elsewhere_ms"].fillna(0).sum())

    @property
    def told(self) -> bool:
        """True if there is anything to report."""
        return any(self.known) or not self.frames.queues.empty

    def called(self, queue: Queue) -> Markup:
        """Return a queue's name, with its vhost where there are several."""
        if self.one_vhost:
            return name(queue[1])
        return el("span", None, name(queue[1]), " ", el("small", None, "in ", name(queue[0], 24)))

    def plain(self, queue: Queue) -> str:
        """Return the same as a text that must be escaped."""
        return queue[1] if self.one_vhost else f"{queue[1]} in {queue[0]}"

    def account(self, key: str) -> Account:
        """Return an account by its id."""
        return next((each for each in self.accounts if each.id == key), Account(key, key, 0.0))

    def colour(self, key: str) -> str:
        """Return the class of an account's colour."""
        first = [each.id for each in self.accounts[:COLOURS]]
        return f"a{first.index(key)}" if key in first else "a-other"

    def advice(self) -> pd.DataFrame:
        """Return for each queue its advice that changes most, the last one of these."""
        rows = self.frames.advice
        change = (rows["advised"] - rows["consumers"].fillna(0)).abs()
        rows = rows.assign(change=change).sort_values(
            ["change", "arrival_rate_p95", "window_start"], kind="stable"
        )
        return rows.drop_duplicates(measure.QUEUE, keep="last")[::-1]


def find(frames: Frames, span: Span) -> Facts:
    """Return what a report of these frames needs."""
    prepared = measure.prepare(frames, span)
    vhosts = set(prepared.queues["vhost"]) | set(prepared.bottlenecks["vhost"])
    return Facts(
        prepared,
        span,
        measure.covered(prepared, span),
        measure.seconds(prepared, span),
        measure.accounts(prepared),
        measure.held(prepared),
        measure.slowed(prepared),
        len(vhosts) <= 1,
    )
