"""The batch of `headrace_log`."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.options import reach
from headrace_pipeline.schema.column import Table
from headrace_pipeline.sources.log.look import Look, begin, check_named, look
from headrace_pipeline.sources.log.loss import DROPPED, Loss, tell
from headrace_pipeline.sources.log.offset import Offset
from headrace_pipeline.sources.log.partition import Range, cut
from headrace_pipeline.sources.log.settings import Settings
from headrace_pipeline.sources.log.stream import read_partition
from headrace_pipeline.sources.log.survey import title_of

log = logging.getLogger(__name__)


class LogReader(DataSourceReader):
    """Reads the rows that exist when it is planned."""

    def __init__(self, settings: Settings, table: Table) -> None:
        self._settings = settings  # of the source
        self._table = table  # what rows are to be

    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""
        settings = self._settings
        client = reach.client(settings.connection)
        found = look(client, settings)
        check_named(settings, found)
        _check_missing(settings, found)
        start = begin(client, settings, "startingOffsets", settings.start, found)
        end = begin(client, settings, "endingOffsets", settings.end, found)
        ranges, losses = ranges_of(found, start, end)
        tell(losses, settings.fail_on_data_loss)
        return list(cut(ranges, settings.partitions_min))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a task."""
        return read_partition(self._settings, self._table, partition)


def ranges_of(found: Look, start: Offset, end: Offset) -> tuple[list[Range], list[Loss]]:
    """Return the rows of a batch that there are, and those that are gone.

    Raises:
        OptionError: a shard ends before it begins.
    """
    ranges, losses = [], []
    for name, shard in found.shards.items():
        first, last = start.shards[name].next_index, end.shards[name].next_index
        title = title_of(shard)
        if first > last:
            raise OptionError("endingOffsets", f"{title}: row {last} is before {first}, the start")
        if first < min(shard.first_index, last):
            losses.append(Loss(title, first, min(shard.first_index, last), DROPPED))
            first = min(shard.first_index, last)
        if first < last:
            where = shard.node, shard.address, title
            ranges.append(Range(name, shard.incarnation, first, last, 0, *where))
    return ranges, losses


def _check_missing(settings: Settings, found: Look) -> None:
    """Refuse to leave out what a node has that does not answer.

    Archives have other nodes to lead them, and those that are named are there.

    Raises:
        PipelineError: rows would be missing.
    """
    if not found.missing:
        return
    nodes = ", ".join(found.missing)
    if settings.is_archive or not settings.fail_on_data_loss:
        log.warning("what is on these nodes, which do not answer, is left out: %s", nodes)
        return
    text = f"nodes that do not answer: {nodes}; their rows would be missing"
    raise PipelineError(f"{text}. Start them, or read without them by failOnDataLoss=false")
