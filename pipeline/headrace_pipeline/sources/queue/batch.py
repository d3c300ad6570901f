"""A batch read of a queue: a look at what waits, which takes nothing out of it.

What is looked at is leased by a group of its own, and goes back when the lease expires. The same
DataFrame reads the same messages as long as that has not happened.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace_client import error as client_error
from headrace_client.blocking import LeaseGroup
from headrace_client.lease_value import HELD, GroupState, LeaseState
from headrace_pipeline.error import FencedError
from headrace_pipeline.limits import LEASE_BYTES_MAX, LEASE_MESSAGES_MAX, LEASES_MAX
from headrace_pipeline.options.reach import client
from headrace_pipeline.sources.queue.holder import TOO_MANY_LEASES
from headrace_pipeline.sources.queue.option import QueueOptions
from headrace_pipeline.sources.queue.plan import Room, admit, divide
from headrace_pipeline.sources.queue.rows import QueuePartition, closed_meanwhile, read_part

log = logging.getLogger(__name__)

SUFFIX = (
    " (batch)"  # of the group, so that a look at a queue does not fence the query that reads it
)


class QueueBatchReader(DataSourceReader):
    """Spark's reader of a batch."""

    def __init__(self, options: QueueOptions, snapshot: str) -> None:
        self._options = options  # of the source
        self._snapshot = snapshot  # tells this DataFrame from all others

    def partitions(self) -> Sequence[InputPartition]:
        """Lease ready messages, or find the leases of this DataFrame.

        Raises:
            FencedError: another DataFrame has read with the group since.
            PipelineError: the group was closed meanwhile.
        """
        try:
            return self._planned()
        except client_error.UnknownGroupError as error:
            raise closed_meanwhile(self._options, is_batch=True) from error

    def _planned(self) -> Sequence[InputPartition]:
        options = self._options
        name = options.group + SUFFIX
        group = client(options.connection).lease_group(options.queue, name)
        state, is_first = self._open(group)
        end, room = admit(state.leases, 0, Room(options.rows_max, options.bytes_max))
        held = [each for each in state.leases if each.state == HELD and each.lease <= end]
        if is_first or not held:
            held += self._take(group, state, room)
        parts = divide(held, options.partitions_min)
        if not parts:
            return [_Nothing()]
        return [QueuePartition(name, state.epoch, part, renews=True) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part of a lease, in a task."""
        if isinstance(partition, _Nothing):
            return iter(())
        assert isinstance(partition, QueuePartition)
        return read_part(self._options, partition)

    def _open(self, group: LeaseGroup) -> tuple[GroupState, bool]:
        """Open the group; say whether this DataFrame is the first time planned.

        What another one has looked at before, and is held still, it looks at as well.
        """
        before = group.describe()
        state = group.open(self._snapshot, self._options.ttl_ms / 1000)
        epoch = before.epoch if before is not None else 0
        if state.epoch < epoch:
            raise FencedError(
                f"{self._options.where}: another DataFrame has read with this group since this one "
                "was loaded: load it again, or give it a group of its own"
            )
        return state, state.epoch > epoch

    def _take(self, group: LeaseGroup, state: GroupState, room: Room) -> list[LeaseState]:
        """Lease ready messages, as far as there is room."""
        options, number = self._options, state.next_lease
        if state.leases and not any(lease.state == HELD for lease in state.leases):
            group.settle(number - 1)  # nothing: they are gone, and need not be remembered
        taken: list[LeaseState] = []
        while room.is_left and len(taken) < LEASES_MAX:
            most = min(room.rows, LEASE_MESSAGES_MAX), min(room.byte_count, LEASE_BYTES_MAX)
            try:
                leased = group.lease(number, *most, ttl_s=options.ttl_ms / 1000)
            except client_error.ExhaustedError as error:
                if error.reason != TOO_MANY_LEASES:
                    raise
                log.warning("%s: reads no more than is leased: %s", options.where, error)
                break
            if not leased.messages:
                break
            taken.append(LeaseState(number, HELD, leased.messages, leased.byte_count))
            room, number = room.without(leased.messages, leased.byte_count), number + 1
        return taken


class _Nothing(InputPartition):
    """An empty queue: Spark makes a partition of its own where there is none."""

    def __init__(self) -> None:
        super().__init__(None)
