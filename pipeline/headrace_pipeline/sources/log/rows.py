"""Rows of ranges, as a task reads them: the same ones however often it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace_client.blocking import Client
from headrace_client.error import (
    DataGoneError,
    NodeDownError,
    NotYetError,
    OtherIncarnationError,
    UnknownShardError,
)
from headrace_client.export import Block, Columns
from headrace_pipeline.arrow_block import to_batch
from headrace_pipeline.error import PipelineError
from headrace_pipeline.limits import BATCH_BYTES, BATCH_ROWS, NODE_WAIT_SECONDS
from headrace_pipeline.schema.column import Table
from headrace_pipeline.schema.conform import conform
from headrace_pipeline.schema.log import LOGS
from headrace_pipeline.sources.log.loss import DELETED, DROPPED, REPLACED, Loss, tell
from headrace_pipeline.sources.log.partition import Range

TIME: Final = "at"  # column of telemetry that windows go by


def read_range(
    client: Client, log: str, table: Table, part: Range, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a range, as the table declares them.

    Raises:
        DataLossError: some are gone, and that is the end.
        PipelineError: the node that has them does not answer.
        SchemaError: they are not what the table says.
        HeadraceError: they cannot be read.
    """
    index, title = part.start, part.title or f"shard {part.shard}"
    while index < part.end:
        gathered = Gathering(log, table, part)
        loss: Loss
        try:
            for block in _blocks(client, log, part, index):
                yield from gathered.add(block)
                index = block.end
            yield from gathered.flush()
            return
        except DataGoneError as error:
            end = min(max(error.first_index, index + 1), part.end)
            loss = Loss(title, index, end, DROPPED)
        except OtherIncarnationError:
            loss = Loss(title, index, part.end, REPLACED)
        except UnknownShardError:
            loss = Loss(title, index, part.end, DELETED)
        except NodeDownError as error:
            text = f"{title}: no answer for {NODE_WAIT_SECONDS:.0f} s: {error}"
            raise PipelineError(f"{text}. Start the query again when its node is back") from error
        except NotYetError as error:
            text = f"{title}: rows up to {part.end} were there, and are not: {error}"
            raise PipelineError(f"{text}. Was the cluster restored from a backup?") from error
        tell([loss], fail_on_data_loss)
        yield from gathered.flush()
        assert loss.end is not None, "the range has an end"
        index = loss.end


def _blocks(client: Client, log: str, part: Range, start: int) -> Iterator[Block]:
    return client.export.read(
        log,
        part.shard,
        part.incarnation,
        start,
        part.end,
        node=part.node,
        address=part.address,
        give_up_after_s=NODE_WAIT_SECONDS,
    )


class Gathering:
    """Makes large batches of small blocks of one schema."""

    def __init__(self, log: str, table: Table, part: Range) -> None:
        self._index_name = LOGS[log].key[-1]
        self._table = table  # what rows are to be
        self._part = part  # where they come from
        self._batches: list[pa.RecordBatch] = []
        self._schema: Columns | None = None  # of all of them
        self._start = self._rows = self._byte_count = 0

    def add(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Take the rows of a block that are wanted; return those that are enough for a batch."""
        batch = to_batch(block.schema, block)
        if block.end - block.start < block.rows:
            batch = batch.slice(block.start - block.first_index, block.end - block.start)
        follows = block.schema == self._schema and self._start + self._rows == block.start
        if self._batches and not follows:
            yield from self.flush()
        if not self._batches:
            self._start, self._schema = block.start, block.schema
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._byte_count += len(block.body)
        if self._rows >= BATCH_ROWS or self._byte_count >= BATCH_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Return the gathered rows, if any."""
        if not self._batches:
            return
        batches, self._batches = self._batches, []
        rows, self._rows, self._byte_count = self._rows, 0, 0
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        part = self._part
        given = {
            "shard": pa.repeat(part.shard, rows),
            "incarnation": pa.repeat(pa.scalar(part.incarnation, pa.int64()), rows),
            self._index_name: pa.array(np.arange(self._start, self._start + rows, dtype=np.int64)),
        }
        if part.until_ms and TIME in batch.schema.names:
            given[TIME] = lowered(batch[TIME], part.until_ms)
        yield conform(batch, self._table, given)


def lowered(times: Any, until_ms: int) -> Any:
    """Return times, none of them later than one."""
    limit = pa.scalar(until_ms, pa.timestamp("ms", tz="UTC")).cast(times.type)
    return pc.if_else(pc.greater(times, limit), limit, times)
