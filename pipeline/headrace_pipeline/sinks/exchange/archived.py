"""Publishes blocks of archived messages, each under a publisher id of its own.

A message's sequence is its index in the archive, so that it is the same in every replay, however
many tasks there are and whatever is archived later. A queue that has had a message of a block under
its sequence, or a later one, keeps it away. Indexes that are not selected are not sent: who selects
others under the same name must have another publisher id, which is why the id has a digest of what
is selected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headrace_pipeline.sinks.exchange.column import uniform
from headrace_pipeline.sinks.exchange.identity import Identity
from headrace_pipeline.sinks.exchange.option import SinkOptions
from headrace_pipeline.sinks.exchange.pace import Pacer
from headrace_pipeline.sinks.exchange.partition import fencing, publisher, row_publisher
from headrace_pipeline.sinks.exchange.row import Row, rows

RESULT: Final = (
    "shard string, incarnation bigint, block bigint, published bigint, octets bigint, "
    "refused bigint, resent bigint, repeated bigint, named string"
)
_SCHEMA: Final = pa.schema(
    [
        ("shard", pa.string()),
        *((name, pa.int64()) for name in ("incarnation", "block", "published", "octets")),
        *((name, pa.int64()) for name in ("refused", "resent", "repeated")),
        ("named", pa.string()),
    ]
)
_KEY: Final = ("shard", "incarnation", "block")
_MESSAGE: Final = ("exchange", "routing_key", "properties", "payload")

Key = tuple[str, int, int]


class ReplayTask(NamedTuple):
    """Settings of each task."""

    options: SinkOptions  # of the sink
    name: str  # of the publish streams in listings, `replay:ID`
    digest: str  # of what is selected and where it goes
    rate: float  # messages a second of one task, 0 for any


def digest_of(*parts: Any) -> str:
    """Return the digest of a selection and its target."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def publisher_id(task: ReplayTask, key: Key) -> str:
    """Return who publishes a block."""
    shard, incarnation, block = key
    return f"{task.name}:{task.digest}:{shard}.{incarnation}.{block}"


def publish_blocks(task: ReplayTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Publish the rows of `transforms.replay.in_order` of one partition, for mapInArrow.

    Returns:
        What became of each block (`RESULT`), once its rows are safe.

    Raises:
        RowsRefusedError: rows were refused, and options say that this fails.
        HeadraceError: it is not known what became of some rows.
    """
    pacer = Pacer(task.rate)
    runs = (run for batch in batches for run in _runs(batch))
    for key, group in groupby(runs, key=lambda run: run[0]):
        found = _publish_block(task, key, (batch for _, batch in group), pacer)
        yield pa.RecordBatch.from_pylist([found], _SCHEMA)


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """Cut a batch where another block begins."""
    keys = list(zip(*(batch.column(name).to_pylist() for name in _KEY), strict=True))
    start = 0
    for key, group in groupby(keys):
        count = sum(1 for _ in group)
        yield key, batch.slice(start, count)
        start += count


def _publish_block(
    task: ReplayTask, key: Key, batches: Iterable[pa.RecordBatch], pacer: Pacer
) -> dict[str, Any]:
    who = Identity(publisher_id(task, key), 0)
    repeated = 0
    last = -1
    with fencing(who), publisher(task.options, who, task.name) as sender:
        found = row_publisher(task.options, sender, 1, f" of shard {key[0]}")
        for batch in batches:
            indexes = batch.column("archive_index").to_pylist()
            for part in rows(uniform(batch.select(_MESSAGE)), 0, persistent=True):
                fresh: list[Row] = []
                for row in part:
                    index = indexes[row.number]
                    if index <= last:  # the table has it twice
                        repeated += 1
                        continue
                    last = index
                    fresh.append(row._replace(number=index))
                for paced in pacer.parts(fresh):
                    found.publish(paced)
        found.finish()
    tally = found.tally
    named = "\n".join(str(each) for each in tally.named)
    counts = tally.published, tally.byte_count, tally.refused, tally.resent, repeated
    return dict(zip(_SCHEMA.names, (*key, *counts, named), strict=True))
