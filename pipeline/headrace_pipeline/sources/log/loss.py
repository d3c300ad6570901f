"""Lost rows: their report, and whether they end the query."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace_pipeline.error import DataLossError

log = logging.getLogger(__name__)

NAMED_MAX: Final = 5  # losses that a message names


class Loss(NamedTuple):
    """Lost rows of a shard."""

    shard: str  # its name, for people: of an archive, its queue
    start: int  # index of the first row
    end: int | None  # of the row behind the last; None where that is not known
    why: str  # what has become of them, as the end of a sentence

    def __str__(self) -> str:
        if self.end is None:
            return f"{self.shard}: rows from {self.start} on {self.why}"
        count = self.end - self.start
        return f"{self.shard}: {count} rows, {self.start} to {self.end - 1}, {self.why}"


DROPPED: Final = "were dropped before they were read: they were too old, or too many"
REPLACED: Final = "were lost with the shard, which has begun anew"
DELETED: Final = "are gone with the shard: its queue was deleted, or its node removed"

_WHAT_TO_DO: Final = (
    "To go on with what there is, start the query with failOnDataLoss=false, for one run or for "
    "good: it then warns of what it skips. To keep rows until they are read, read more often, or "
    "raise what brokers keep: archive-max-messages, -bytes and -age of the queue's policy, or "
    "telemetry.bytes_max and age_hours_max of the nodes"
)


def tell(losses: Sequence[Loss], fail: bool) -> None:
    """Report the loss.

    Raises:
        DataLossError: it is.
    """
    if not losses:
        return
    named = "; ".join(map(str, losses[:NAMED_MAX]))
    more = len(losses) - NAMED_MAX
    text = f"{named}; and so at {more} more" if more > 0 else named
    if fail:
        raise DataLossError(f"data is lost. {text}. {_WHAT_TO_DO}.")
    known = sum(loss.end - loss.start for loss in losses if loss.end is not None)
    log.warning("data is lost, at least %d rows, and skipped: %s", known, text)
