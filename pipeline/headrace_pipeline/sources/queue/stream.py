"""Structured Streaming of a queue: a batch is some leases, and settling them its commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headrace_client.lease_value import HELD, LeaseState
from headrace_pipeline.error import PipelineError
from headrace_pipeline.limits import (
    LEASE_POLL_SECONDS,
    LEASES_MAX,
    QUEUE_TRIGGER_BYTES_MAX,
    QUEUE_TRIGGER_ROWS_MAX,
)
from headrace_pipeline.options.reach import client
from headrace_pipeline.sources.queue.holder import Holder
from headrace_pipeline.sources.queue.offset import QueueOffset, read_offset
from headrace_pipeline.sources.queue.option import QueueOptions
from headrace_pipeline.sources.queue.plan import Room, admit, divide
from headrace_pipeline.sources.queue.rows import QueuePartition, read_part, settled_elsewhere

log = logging.getLogger(__name__)


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's reader of a stream, in a process of the driver's own, and pickled for its tasks.

    Spark commits a batch late, and the last one never. What a batch begins behind has been
    committed, however, so it is settled before the next lease is taken.
    """

    def __init__(self, options: QueueOptions) -> None:
        self._options = options  # of the source
        self._driver: Holder | None = None  # of the process that plans batches only
        self._ready_left: int | None = None  # messages that may be leased; None for any number
        self._ask_at = 0.0  # when an empty queue may be asked again
        self._limit_told = False  # the log says that brokers lease no more

    def __getstate__(self) -> dict[str, Any]:
        assert self._driver is None, "what plans batches stays where it is"
        return self.__dict__

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Begin behind the settled leases; held ones form the first batch."""
        return self._offset(self._holder().state().settled)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return what a batch takes; bytes are bounded as well."""
        return ReadMaxRows(self._options.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take no more messages than are ready now, and what the group holds."""
        self._holder().state()
        counts = client(self._options.connection).topology.queue(self._options.queue).counts
        if counts is None:
            raise PipelineError(
                f"queue '{self._options.queue}' has no leader that says how much waits in it: try "
                "again"
            )
        self._ready_left = counts.messages_ready

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Settle the finished batch, and lease the next one; `start` if the queue is empty."""
        before = self._read(start).lease
        holder = self._holder()
        holder.settle(before)
        end, room = admit(holder.leases(), before, self._room(limit))
        while room.is_left and end - before < LEASES_MAX and self._may_ask():
            leased = holder.take(self._bounded(room))
            if leased is None:
                if end == before:
                    self._ask_at = time.monotonic() + LEASE_POLL_SECONDS
                    self._tell_of_limit(holder.limit)
                break
            end, self._limit_told = leased.lease, False
            room = room.without(leased.messages, leased.byte_count)
            if self._ready_left is not None:
                self._ready_left -= leased.messages
        return self._offset(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut the leases of a batch into parts; those that are gone have none."""
        first, last = self._read(start).lease + 1, self._read(end).lease
        known = {lease.lease: lease for lease in self._holder().leases()}
        held = []
        for number in range(first, last + 1):
            lease = known.get(number)
            if lease is None:
                self._pass_over(number)
            elif lease.state == HELD:
                held.append(lease)
            else:
                self._leave_out(lease)
        options, epoch = self._options, self._holder().epoch
        parts = divide(held, options.partitions_min)
        return [QueuePartition(options.group, epoch, part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part of a lease, in a task."""
        assert isinstance(partition, QueuePartition)
        return read_part(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Settle what Spark is done with."""
        self._holder().settle(self._read(end).lease)

    def stop(self) -> None:
        """Stop renewing; held leases are there for the next run."""
        if self._driver is not None:
            self._driver.stop()

    # Inner

    def _holder(self) -> Holder:
        if self._driver is None:
            options = self._options
            group = client(options.connection).lease_group(options.queue, options.group)
            self._driver = Holder(group, options.where, options.ttl_ms / 1000)
        return self._driver

    def _offset(self, lease: int) -> dict[str, Any]:
        return QueueOffset(self._options.queue, self._options.group, lease).to_json()

    def _read(self, given: dict[str, Any]) -> QueueOffset:
        """Return an offset that the group can have.

        Raises:
            PipelineError: it cannot.
        """
        offset = read_offset(given, self._options.queue, self._options.group)
        next_lease = self._holder().state().next_lease
        if offset.lease >= next_lease:
            raise PipelineError(
                f"{self._options.where}: the checkpoint is at lease {offset.lease}, and the "
                f"group's next one is {next_lease}: it was closed, or the queue declared "
                "anew, since. Start the query with a new checkpoint location, or another group"
            )
        return offset

    def _room(self, limit: ReadLimit) -> Room:
        if isinstance(limit, ReadAllAvailable):
            return Room(QUEUE_TRIGGER_ROWS_MAX, QUEUE_TRIGGER_BYTES_MAX)
        assert isinstance(limit, ReadMaxRows), f"no source has asked for {limit}"
        return Room(limit.max_rows, self._options.bytes_max)

    def _may_ask(self) -> bool:
        if self._ready_left is not None:
            return self._ready_left > 0
        return time.monotonic() >= self._ask_at

    def _bounded(self, room: Room) -> Room:
        if self._ready_left is None:
            return room
        return Room(min(room.rows, self._ready_left), room.byte_count)

    def _tell_of_limit(self, limit: str) -> None:
        """Warn, once until something is leased again, where a limit leaves a batch without rows."""
        if not limit or self._limit_told:
            return
        self._limit_told = True
        left = self._ready_left
        stays = "it waits" if left is None else f"{left} messages stay that this run was to take"
        text = (
            "%s: brokers lease no more (%s), and %s. Other groups hold messages of the queue: have "
            "their queries go on, or close those that nobody works for; and start this query again "
            "if it has ended"
        )
        log.warning(text, self._options.where, limit, stays)

    def _pass_over(self, number: int) -> None:
        """Pass over a lease of a batch that is read again, though it was settled.

        Raises:
            DataLossError: that is not wanted.
        """
        if self._options.fail_on_data_loss:
            raise settled_elsewhere(self._options, number)
        log.warning("lease %d of %s is settled, and left out", number, self._options.where)

    def _leave_out(self, lease: LeaseState) -> None:
        text = "the batch runs without lease %d of %s, whose %d messages (ids %s) come again"
        ids = lease.message_id_text
        log.warning(text, lease.lease, self._options.where, lease.messages, ids)
