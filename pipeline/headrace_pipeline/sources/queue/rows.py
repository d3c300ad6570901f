"""A task that reads a part of a lease, as record batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from time import monotonic
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace_client import error as client_error
from headrace_client.blocking import LeaseGroup
from headrace_client.export_stream import Block
from headrace_pipeline.arrow_block import to_batch
from headrace_pipeline.error import DataLossError, FencedError, PipelineError
from headrace_pipeline.limits import LEASE_FETCH_BYTES, NODE_WAIT_SECONDS
from headrace_pipeline.options.reach import client
from headrace_pipeline.schema.conform import conform
from headrace_pipeline.sources.queue.option import QueueOptions
from headrace_pipeline.sources.queue.plan import Part

log = logging.getLogger(__name__)


class QueuePartition(InputPartition):
    """A part of a lease, for one task."""

    def __init__(self, group: str, epoch: int, part: Part, renews: bool = False) -> None:
        super().__init__(part)
        self.group = group  # its name at the broker
        self.epoch = epoch  # of the group
        self.part = part  # of one of its leases
        self.renews = renews  # nobody else keeps the group's leases while they are read


class Renewal(NamedTuple):
    """Renewal of leases by the reader of a batch."""

    group: LeaseGroup
    ttl_s: float  # time to live of the leases

    def over(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Hand blocks on, and renew now and then."""
        renewed_at = monotonic()
        for block in blocks:
            if monotonic() - renewed_at > self.ttl_s / 3:
                self.group.renew(self.ttl_s)
                renewed_at = monotonic()
            yield block


def read_part(options: QueueOptions, partition: QueuePartition) -> Iterator[pa.RecordBatch]:
    """Read a part of a lease.

    It is empty when the lease is gone, which the log says: its messages come again, in another one.

    Raises:
        FencedError: somebody else works for the group.
        DataLossError: the lease is settled.
        PipelineError: the lease went away while it was read; there is nothing of it another time.
            Or brokers gave fewer messages than the lease has, or the group is no more.
        HeadraceError: no broker answers in time.
    """
    part = partition.part
    reach = client(options.connection)
    group = reach.lease_group(options.queue, partition.group, epoch=partition.epoch)
    blocks = group.fetch_columns(
        part.lease,
        part.offset,
        part.messages,
        chunk_bytes=LEASE_FETCH_BYTES,
        timeout_s=NODE_WAIT_SECONDS,
    )
    if partition.renews:
        blocks = Renewal(group, options.ttl_ms / 1000).over(blocks)
    done = 0
    try:
        for block in blocks:
            yield _batch(options, part.lease, block)
            done += block.rows
        if done != part.messages:  # what is behind them would be settled unread
            raise PipelineError(
                f"lease {part.lease} of {options.where}: brokers gave {done} messages from "
                f"{part.offset} on, and the lease has {part.messages} there: start the query again"
            )
    except client_error.LeaseExpiredError as error:
        where = f"lease {part.lease} of {options.where}"
        ids = error.metadata.get("message_ids") or _ids(group, part.lease)
        if done:
            raise PipelineError(
                f"{where} has expired after {done} of {part.messages} messages were read: they "
                f"went back (ids {ids}) and come again; the next attempt leaves them out"
            ) from error
        text = "%s has expired: %d messages of this task (among ids %s) went back and come again"
        log.warning(text, where, part.messages, ids)
    except client_error.LeaseSettledError as error:
        raise settled_elsewhere(options, part.lease) from error
    except client_error.FencedError as error:
        raise FencedError(
            f"{options.where}: another query has opened it since; a group is one query's"
        ) from error
    except client_error.UnknownGroupError as error:
        raise closed_meanwhile(options, partition.renews) from error


def _ids(group: LeaseGroup, lease: int) -> str:
    """Return which messages of a lease went back, as far as the group remembers."""
    state = group.describe()
    leases = state.leases if state is not None else ()
    return next((each.message_id_text for each in leases if each.lease == lease), "unknown")


def closed_meanwhile(options: QueueOptions, is_batch: bool) -> PipelineError:
    """Return the error text for a group that was deleted.

    Args:
        options: of the source.
        is_batch: whether a DataFrame is read, and not a stream.
    """
    again = "load the DataFrame again" if is_batch else "start the query again"
    return PipelineError(
        f"{options.where}: it was closed, or the queue was declared anew, while it was read: what "
        f"it held went back to the queue; {again}"
        + ("" if is_batch else ", with a new checkpoint location")
    )


def settled_elsewhere(options: QueueOptions, lease: int) -> DataLossError:
    """Return the error text for a batch that cannot be read again."""
    return DataLossError(
        f"lease {lease} of {options.where} is settled: another query has read it with this group, "
        "or the checkpoint is an old copy. To go on without its messages set failOnDataLoss to "
        "false; give each query a group of its own"
    )


def _batch(options: QueueOptions, lease: int, block: Block) -> pa.RecordBatch:
    rows = block.rows
    first = block.first_index
    return conform(
        to_batch(block.schema, block),
        options.table,
        {
            "vhost": _same(options.connection.vhost, pa.string(), rows),
            "queue": _same(options.queue, pa.string(), rows),
            "lease": _same(lease, pa.int64(), rows),
            "lease_offset": pa.array(range(first, first + rows), pa.int64()),
        },
    )


def _same(value: str | int, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows)
