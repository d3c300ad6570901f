"""Up to when all rows are there, so that windows can be made.

Nodes tell of themselves once a second, whether anything moves or not, and write the samples of a
look after its events and edges. So where a job has landed samples up to an end, and then the other
logs up to theirs, everything up to a node's last sample has landed, and windows are complete up to
the least of these of all nodes. That needs no watermark: nothing is too late because another node
was read first, whatever piles up while nobody reads, and nobody is waited for who has nothing to
say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace_pipeline.schema.analysis import LONG_S

# s; a node that is read again and again and has not told of itself for so long is down, and others
# do not wait for it: advice would lapse. What it brings when it comes back stays among the landed
# rows and comes into no window.
SILENT_S: Final = 90


class Told(NamedTuple):
    """Until when a node has told of itself, as Unix time."""

    node: str  # its name
    first: float  # in seconds, of its first sample of those that were asked for
    last: float  # of its last one
    landed: float  # when that landed, by the clock of the job


def told(samples: DataFrame) -> DataFrame:
    """Return one row for each node: the fields of `Told`.

    Args:
        samples: landed FLOW_SAMPLES.
    """

    def seconds(name: str) -> Column:
        return fn.unix_micros(name) / 1e6

    return (
        samples.where(fn.col("kind") == "node")
        .groupBy("node")
        .agg(
            fn.min(seconds("at")).alias("first"),
            fn.max(seconds("at")).alias("last"),
            fn.max(seconds("landed_at")).alias("landed"),
        )
    )


def complete_minutes(nodes: Iterable[Told], since: int | None, now: float) -> range:
    """Return the minutes since 1970 whose windows are complete.

    Args:
        nodes: of samples that are not before `since`.
        since: first minute that was not made yet; None for the first there is.
        now: Unix time by the clock of the job, just after it has landed what there was.
    """
    known = tuple(nodes)
    heard = [each for each in known if now - each.landed <= SILENT_S] or list(known)
    if not heard:
        return range(0)
    first = int(min(each.first for each in known)) // LONG_S
    last = int(min(each.last for each in heard)) // LONG_S
    return range(max(first, since or 0), max(last, first, since or 0))
