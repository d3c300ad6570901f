"""Publisher identity of a task, by which the broker keeps repeated messages once.

A queue knows a message by publisher id, epoch and sequence. Here these are

    publisher id   BASE/PARTITION: the base is the query's id, which stands in the checkpoint, or
                   the option publisherId
    epoch          the batch's number, then a fingerprint of the partition's rows
    sequence       the row's place in its partition: 1, 2, 3, ...

A task that is tried again, on whatever executor, and a batch that is repeated after a restart,
thereby send the same numbers, as long as the partition has the same rows in the same order. Where
it has not, these numbers would stand for other rows, and the broker would keep rows away that it
never had: hence the fingerprint. With another one the epoch is another one, and the broker takes
either all rows anew (a higher epoch: some are there twice, none is lost) or none (a lower one: the
task fails with FENCED). A later batch has a higher epoch whatever its rows are, and fences whoever
still works on an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.sinks.exchange.fingerprint import BITS
from headrace_pipeline.sinks.exchange.option import ROUND_MAX

SPECULATION: Final = "spark.speculation"
QUERY_ID: Final = "sql.streaming.queryId"  # Spark's local property of a stream's tasks
BATCH_ID: Final = "streaming.sql.batchId"  # likewise


class Identity(NamedTuple):
    """Identity of a publisher."""

    publisher_id: str  # of this partition
    epoch: int  # of this batch and these rows


def identity(base: str, partition: int, round_: int, fingerprint: int) -> Identity:
    """Return who a task is.

    Args:
        base: of the query or write.
        partition: its number, 0 or more.
        round_: the batch's number, 0 to ROUND_MAX.
        fingerprint: of all of its rows.

    Raises:
        PipelineError: there were more batches than there are numbers.
    """
    if not 0 <= round_ <= ROUND_MAX:
        raise PipelineError(f"batch {round_}: must be 0 to {ROUND_MAX}; begin a new checkpoint")
    return Identity(f"{base}/{partition}", round_ << BITS | fingerprint)


def stream_of(local_property: Callable[[str], str | None], base: str) -> tuple[str, int]:
    """Return base and batch number of a stream's task.

    Args:
        local_property: of the task.
        base: of option publisherId, "" for the query's id.

    Raises:
        PipelineError: Spark does not say them.
    """
    batch = local_property(BATCH_ID)
    query = local_property(QUERY_ID)
    if batch is None or query is None:
        raise PipelineError(
            "this task does not know its batch: the sink headrace works in micro-batches, "
            "not with a continuous trigger"
        )
    return base or query, int(batch)


def refuse_speculation(local_property: Callable[[str], str | None]) -> None:
    """Refuse two attempts of one task at the same time.

    Raises:
        OptionError: Spark makes them.
    """
    if (local_property(SPECULATION) or "false").lower() == "true":
        raise OptionError(
            SPECULATION,
            "must be false for the sink headrace: a second attempt beside the first publishes "
            "everything again, only for the broker to drop it",
        )
