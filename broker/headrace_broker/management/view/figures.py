"""Figures over time as JSON: the current one, its rate, and samples of a requested age.

Source: RabbitMQ's fields `X`, `X_details.rate` and `X_details.samples`; a rate is that over the
last interval between two samples, five seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from aiohttp import web

from headrace_broker.flow.history import FINE_MS
from headrace_broker.management.http.query import number
from headrace_broker.management.http.route import Parameter
from headrace_broker.model.stats import LATER, QUEUE_FIGURES, QUEUE_MOVES, Samples
from headrace_broker.runtime.rpc.question import Stats

DELIVERIES: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")  # deliver_get is their sum
LENGTHS: Final = ("messages", "messages_ready", "messages_unacknowledged")
ANSWER_SECONDS_MAX: Final = 1.0  # for what other nodes count; a list goes without
AGE_SECONDS_MAX: Final = 3_600
STEP_SECONDS_MAX: Final = 600

_SECONDS: Final = {"type": "integer", "minimum": 1, "maximum": AGE_SECONDS_MAX}
_STEP: Final = {"type": "integer", "minimum": 1, "maximum": STEP_SECONDS_MAX}
AGES: Final = (
    Parameter("lengths_age", "Show how many messages there were, for so many seconds.", _SECONDS),
    Parameter("lengths_incr", "Seconds between these samples, 5 at least.", _STEP),
    Parameter("msg_rates_age", "Show how many messages moved, for so many seconds.", _SECONDS),
    Parameter("msg_rates_incr", "Seconds between these samples, 5 at least.", _STEP),
)


class Ages(NamedTuple):
    """Requested ages of samples, in milliseconds, 0 for none."""

    lengths_ms: int
    rates_ms: int
    step_ms: int

    @property
    def age_ms(self) -> int:
        """The farther of both."""
        return max(self.lengths_ms, self.rates_ms)

    def question(
        self,
        node: bool = False,
        groups: Sequence[int] | None = (),
        vhosts: bool = False,
        exchanges: Sequence[tuple[str, str]] | None = (),
        current: Sequence[int] = (),
    ) -> Stats:
        """Return what nodes are asked."""
        return Stats(
            node=node,
            groups=tuple(groups) if groups is not None else None,
            age_ms=self.age_ms,
            step_ms=self.step_ms,
            vhosts=vhosts,
            exchanges=tuple(exchanges) if exchanges is not None else None,
            current=tuple(current),
        )


NO_AGES: Final = Ages(0, 0, 0)


def asked_ages(request: web.Request) -> Ages:
    """Return how far back a request looks; ApiError 400 where a parameter is out of its range."""
    ages = [
        1000 * number(request, name, 0, 1, AGE_SECONDS_MAX)
        for name in ("lengths_age", "msg_rates_age")
    ]
    steps = [
        1000 * number(request, name, FINE_MS // 1000, 1, STEP_SECONDS_MAX)
        for name in ("lengths_incr", "msg_rates_incr")
    ]
    return Ages(ages[0], ages[1], min(steps))


def rate(last: Samples, at: int) -> float:
    """Return by how much a figure grew per second between the last two samples."""
    if len(last) < 2 or last[1][0] <= last[0][0]:
        return 0.0
    return round(1000 * (last[1][at + 1] - last[0][at + 1]) / (last[1][0] - last[0][0]), 2)


def details(last: Samples, samples: Samples, at: int, age_ms: int) -> dict[str, Any]:
    """Return `X_details` of figure `at`; samples come newest first, an age of 0 shows none."""
    found: dict[str, Any] = {"rate": rate(last, at)}
    if not age_ms:
        return found
    newest = samples[0][0] if samples else 0
    shown = [each for each in samples if newest - each[0] <= age_ms]
    found["samples"] = [{"sample": each[at + 1], "timestamp": each[0]} for each in shown]
    if len(shown) > 1:
        seconds = (shown[0][0] - shown[-1][0]) / 1000
        found["avg_rate"] = round((shown[0][at + 1] - shown[-1][at + 1]) / seconds, 2)
        found["avg"] = round(sum(each[at + 1] for each in shown) / len(shown), 2)
    return found


def named(names: Sequence[str], last: Samples, samples: Samples, age_ms: int) -> dict[str, Any]:
    """Return the fields `X` and `X_details` of figures; see `details`."""
    found: dict[str, Any] = {}
    for at, name in enumerate(names):
        found[name] = last[-1][at + 1] if last else 0
        found[f"{name}_details"] = details(last, samples, at, age_ms)
    return found


def counted(names: Sequence[str], counts: Sequence[int], rates: Sequence[float]) -> dict[str, Any]:
    """Return `X` and `X_details` of figures; no counts are 0 of all, no rates unknown ones."""
    found: dict[str, Any] = {}
    for at, name in enumerate(names):
        found[name] = counts[at] if counts else 0
        found[f"{name}_details"] = {"rate": rates[at] if rates else 0.0}
    return found


def with_deliver_get(stats: dict[str, Any]) -> dict[str, Any]:
    """Return message statistics with `deliver_get`: all that was delivered or fetched."""
    rates = [stats[f"{name}_details"] for name in DELIVERIES]
    details: dict[str, Any] = {"rate": round(sum(each["rate"] for each in rates), 2)}
    if "samples" in rates[0]:
        details["samples"] = [
            {"sample": sum(row["sample"] for row in rows), "timestamp": rows[0]["timestamp"]}
            for rows in zip(*(each["samples"] for each in rates), strict=True)
        ]
    total = sum(stats[name] for name in DELIVERIES)
    return {**stats, "deliver_get": total, "deliver_get_details": details}


def cut(rows: Samples, first: int, stop: int | None = None) -> Samples:
    """Return samples with some of their figures only."""
    end = None if stop is None else stop + 1
    return [(row[0], *row[first + 1 : end]) for row in rows]


def summed(series: Iterable[Samples]) -> Samples:
    """Return the samples of several nodes added up, at the times of the first one's.

    Of the other nodes what they said last before that time counts, of one that had not begun then
    its first word.

    Args:
        series: of each node, the newest first.
    """
    every = [each for each in series if each]
    if not every:
        return []
    found: Samples = []
    positions = [0] * len(every)
    width = max(len(each[0]) for each in every) - 1  # of the newest release
    for sample in every[0]:
        total = [*sample[1:], *[0] * (width - len(sample) + 1)]
        for which, other in enumerate(every[1:], 1):
            at = positions[which]
            while at < len(other) - 1 and other[at][0] > sample[0]:
                at += 1
            positions[which] = at
            for figure, value in enumerate(other[at][1:]):
                total[figure] += value
        found.append((sample[0], *total))
    return found


def summed_last(series: Iterable[Samples]) -> Samples:
    """Return the last two samples of several nodes added up, as if they were taken together."""
    every = [each for each in series if len(each) == 2]
    if not every:
        return []
    first, second = (
        [sum(values) for values in zip_longest(*(each[at][1:] for each in every), fillvalue=0)]
        for at in (0, 1)
    )
    start, end = every[0][0][0], every[0][1][0]
    # Intervals are those of the clock of each node, and differ by little.
    return [(start, *first), (end, *second)]


def lengths(names: Sequence[str], last: Samples, samples: Samples, ages: Ages) -> dict[str, Any]:
    """Return all messages, and of them those that are ready and unacknowledged.

    Samples come newest first; their first two figures are ready and unacknowledged messages.
    """
    later = names.index(LATER) + 1
    shown = (_with_sum(last, later), _with_sum(samples, later))
    return named(LENGTHS, *shown, ages.lengths_ms)


def _with_sum(samples: Samples, later: int) -> Samples:
    """Return samples of all, ready and unacknowledged messages.

    Figure `later` is added to the first two; samples of an older release end before it.
    """
    return [(row[0], sum((*row[1:3], *row[later : later + 1])), *row[1:3]) for row in samples]


def lengths_and_rates(last: Samples, samples: Samples, ages: Ages) -> dict[str, Any]:
    """Return what a queue holds and what moved in it, out of samples of QUEUE_FIGURES."""
    return {
        **lengths(QUEUE_FIGURES, last, samples, ages),
        "message_stats": named(QUEUE_MOVES, cut(last, 2), cut(samples, 2), ages.rates_ms),
    }


RETENTION: Final = {"global": [600, 3600], "basic": [600, 3600], "detailed": [600]}
