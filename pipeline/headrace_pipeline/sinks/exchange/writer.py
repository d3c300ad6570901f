"""Spark's writer interfaces: the only module of the sink that knows them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.options.option import Options
from headrace_pipeline.sinks.exchange.column import check_columns, uniform
from headrace_pipeline.sinks.exchange.fingerprint import Fingerprint
from headrace_pipeline.sinks.exchange.identity import identity, refuse_speculation, stream_of
from headrace_pipeline.sinks.exchange.option import SinkOptions, read_options
from headrace_pipeline.sinks.exchange.partition import publish_batches
from headrace_pipeline.sinks.exchange.publish import Tally
from headrace_pipeline.sinks.exchange.spool import Spool

NAME: Final = "headrace"
_log: Final = logging.getLogger(__name__)


class ExchangeSink(DataSource):
    """`df.write.format("headrace")` and `df.writeStream.format("headrace")`."""

    @classmethod
    def name(cls) -> str:
        """Return what users write as format."""
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return what writes a DataFrame.

        Raises:
            OptionError: an option is wrong.
            SchemaError: a column is.
        """
        if overwrite:
            raise OptionError("mode", "must be append: what is published is not taken back")
        options = read_options(Options(self.options, NAME), check_columns(schema), False)
        return BatchWriter(options, options.publisher_id or f"write-{uuid.uuid4()}")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's name
        """Return what writes a stream; raises as `writer`."""
        if overwrite:
            raise OptionError("outputMode", "must be append or update: nothing is taken back")
        options = read_options(Options(self.options, NAME), check_columns(schema), True)
        return StreamWriter(options)


@dataclass
class Written(WriterCommitMessage):
    """Commit message of a task."""

    partition: int
    tally: Tally


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: SinkOptions, base: str) -> None:
        self._options = options  # of the write
        # of its publisher ids; the driver makes one up, and all attempts of all tasks have it
        self._base = base

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Publish a partition, in an executor."""
        task = _task()
        return _write(self._options, self._base, self._options.round, task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report dropped rows, in the driver; everything is published."""
        _tell(messages, self._base)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what a failure leaves behind, in the driver."""
        _tell(messages, self._base)
        _log.warning("a write failed; what it has published is not taken back: %s", self._base)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Publish a partition of a batch, in an executor."""
        task = _task()
        base, batch = stream_of(task.getLocalProperty, self._options.publisher_id)
        return _write(self._options, base, batch, task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Report dropped rows, in the driver; everything is published."""
        _tell(messages, f"batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Say what a failure leaves behind, in the driver."""
        _tell(messages, f"batch {batchId}")
        _log.warning("batch %d failed; when it is repeated, nothing is published twice", batchId)


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise PipelineError("rows are published by tasks of Spark only")
    refuse_speculation(task.getLocalProperty)
    return task


def _write(
    options: SinkOptions,
    base: str,
    batch: int,
    task: TaskContext,
    iterator: Iterable[pa.RecordBatch],
) -> Written:
    """Publish a partition and wait until it is safe.

    Raises:
        RowsRefusedError: rows were refused.
        FencedError: a later batch, or the same one with other rows, was published meanwhile.
        HeadraceError: it is not known what became of some rows.
    """
    partition = task.partitionId()
    if not options.confirms:
        return Written(partition, publish_batches(options, None, base, map(uniform, iterator)))
    fingerprint = Fingerprint()
    with Spool() as spool:
        for each in map(uniform, iterator):
            fingerprint.update(each)
            spool.add(each)
        who = identity(base, partition, batch, fingerprint.value())
        return Written(partition, publish_batches(options, who, base, spool.batches()))


def _tell(messages: Iterable[WriterCommitMessage | None], what: str) -> None:
    """Say which rows were dropped."""
    for each in messages:
        if isinstance(each, Written) and each.tally.refused:
            named = "".join(f"\n  {row}" for row in each.tally.named)
            count, where = each.tally.refused, each.partition
            _log.warning("%s: %d rows of partition %d were dropped:%s", what, count, where, named)
