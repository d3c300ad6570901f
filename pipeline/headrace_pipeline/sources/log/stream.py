# ruff: noqa: N802  (names of Spark's methods)
"""The stream of `headrace_log`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headrace_client.blocking import Client
from headrace_client.error import TooLateError, UnavailableError
from headrace_client.export import Shard
from headrace_pipeline.limits import LOOK_SECONDS
from headrace_pipeline.options import reach
from headrace_pipeline.schema.column import Table
from headrace_pipeline.sources.log.group import ReadGroup
from headrace_pipeline.sources.log.look import Look, begin, check_named, index_at, is_gone, look
from headrace_pipeline.sources.log.loss import tell
from headrace_pipeline.sources.log.offset import Offset, Position, decode_offset, encode_offset
from headrace_pipeline.sources.log.partition import LogPartition, cut, ranges_between
from headrace_pipeline.sources.log.progress import Bounds, advance
from headrace_pipeline.sources.log.rows import read_range
from headrace_pipeline.sources.log.settings import Settings
from headrace_pipeline.sources.log.survey import Survey, survey, title_of

log = logging.getLogger(__name__)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One is in the driver for the stream's life and plans; others, in the tasks, only read."""

    def __init__(self, settings: Settings, table: Table) -> None:
        self._settings = settings  # of the source
        self._table = table  # what rows are to be
        self._group: ReadGroup | None = None  # of the driver, made when it first looks
        self._look = Look({}, ())  # the last one
        self._looked_at = 0.0
        self._was_idle = False
        self._seen: dict[str, int] = {}  # index behind the last row that a look has found
        self._target: dict[str, tuple[int, int]] | None = None  # of Trigger.AvailableNow
        self._turn = 0

    # Offsets

    def initialOffset(self) -> dict[str, Any]:
        """Return where a stream without checkpoint begins."""
        found = self._look_now()
        check_named(self._settings, found)
        client = self._client()
        offset = begin(client, self._settings, "startingOffsets", self._settings.start, found)
        return encode_offset(offset)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what the options say; the other bound, where there are two, holds as well."""
        settings = self._settings
        if settings.rows_max:
            return ReadMaxRows(settings.rows_max)
        if settings.bytes_max:
            return ReadMaxBytes(settings.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Note where the logs end now: the stream stops there."""
        found = self._look_now()
        self._target = {
            name: (shard.incarnation, shard.next_index) for name, shard in found.shards.items()
        }
        if found.missing:
            log.warning("rows of nodes that do not answer are left out: %s", _names(found.missing))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends, after committing where the last one has."""
        self._commit(start)
        offset = decode_offset(start, self._settings.log)
        try:
            found = self._look_again()
            known = self._survey(offset, found)
        except (UnavailableError, TooLateError) as error:  # no node answers: nothing is new
            log.warning("no broker can tell what there is, asked again soon: %s", error)
            self._was_idle = True
            return start
        tell(known.losses, self._settings.fail_on_data_loss)
        for name in known.gone:
            log.warning("shard %s is gone; all rows that were seen there were read", name)
        end = advance(
            offset,
            known,
            found.shards,
            self._bounds(limit),
            self._settings.is_archive,
            int(time.time() * 1000),
            self._turn,
        )
        self._turn += 1
        was_idle, self._was_idle = self._was_idle, end == offset
        self._warn_of_clocks(offset, end)
        if self._group is not None and was_idle and end != offset:
            self._group.check(self._client(), offset.shards)
        return encode_offset(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end of the log as the last look has seen it, for the query's progress."""
        if not self._look.shards:
            return None
        shards = {
            name: Position(shard.incarnation, shard.next_index)
            for name, shard in self._look.shards.items()
        }
        return encode_offset(Offset(self._settings.log, shards))

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the end of a batch in the group; Spark does so one batch late."""
        self._commit(end)

    # Rows

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[LogPartition]:
        """Return the tasks of a batch."""
        log_name = self._settings.log
        ranges = ranges_between(decode_offset(start, log_name), decode_offset(end, log_name))
        placed = []
        for each in ranges:
            shard = self._look.shards.get(each.shard)
            if shard is not None:
                title = title_of(shard)
                each = each._replace(node=shard.node, address=shard.address, title=title)
            placed.append(each)
        return cut(placed, self._settings.partitions_min)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a task."""
        return read_partition(self._settings, self._table, partition)

    # Inner

    def _client(self) -> Client:
        return reach.client(self._settings.connection)

    def _look_now(self) -> Look:
        """List the shards, and open the group at new ones."""
        client = self._client()
        found = look(client, self._settings)
        self._looked_at = time.monotonic()
        if self._settings.group:
            if self._group is None:
                self._group = ReadGroup(self._settings.log, self._settings.group)
            self._group.open(client, found.shards)
        if set(found.missing) != set(self._look.missing):
            text = "nodes that do not answer, whose rows wait: %s"
            log.warning(text, _names(found.missing) or "none any more")
        self._look = found
        return found

    def _look_again(self) -> Look:
        """List the shards again, but not many times a second without news."""
        wait_s = self._looked_at + LOOK_SECONDS - time.monotonic()
        if self._was_idle and wait_s > 0:
            time.sleep(wait_s)
        return self._look_now()

    def _survey(self, offset: Offset, found: Look) -> Survey:
        client, log_name = self._client(), self._settings.log

        def gone(name: str, position: Position) -> bool:
            return not found.missing and is_gone(client, log_name, name, position)

        def first_of(shard: Shard) -> int:
            if offset.since_ms:
                return index_at(client, self._settings, shard, offset.since_ms)
            return shard.first_index

        known = survey(offset, found.shards, gone, self._seen, first_of)
        self._seen = {name: shard.next_index for name, shard in found.shards.items()} | {
            name: self._seen[name] for name in known.kept if name in self._seen
        }
        return known

    def _bounds(self, limit: ReadLimit) -> Bounds:
        if isinstance(limit, ReadAllAvailable):
            return Bounds(0, 0, self._target)
        rows_max, bytes_max = self._settings.rows_max, self._settings.bytes_max
        if isinstance(limit, ReadMaxRows):
            rows_max = limit.max_rows
        if isinstance(limit, ReadMaxBytes):
            bytes_max = limit.max_bytes
        return Bounds(rows_max, bytes_max, self._target)

    def _commit(self, offset: Mapping[str, Any]) -> None:
        if self._group is not None:
            self._group.commit(self._client(), decode_offset(offset, self._settings.log).shards)

    def _warn_of_clocks(self, offset: Offset, end: Offset) -> None:
        for name, position in end.shards.items():
            if position.until_ms and position != offset.shards.get(name):
                ahead_ms = self._look.shards[name].last_ms - position.until_ms
                text = "the clock of %s is %d ms ahead: times of its rows are lowered"
                log.warning(text, name, ahead_ms)


def read_partition(
    settings: Settings, table: Table, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a task; none for what Spark makes up where there are no tasks."""
    if not isinstance(partition, LogPartition):
        return
    client = reach.client(settings.connection)
    for part in partition.ranges:
        yield from read_range(client, settings.log, table, part, settings.fail_on_data_loss)


def _names(nodes: tuple[str, ...]) -> str:
    return ", ".join(nodes)
