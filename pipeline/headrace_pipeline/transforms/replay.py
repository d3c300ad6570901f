"""Archived messages as messages to be published again: which, where to, and in which order."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

BLOCK_ROWS: Final = 1 << 20  # indexes of a shard that one publisher id stands for
KEY: Final = ("shard", "incarnation", "block")  # of such a block


class Selection(NamedTuple):
    """Which rows of an archive."""

    vhost: str  # of their queues
    queues: tuple[str, ...] = ()  # their names; none for all
    outcomes: tuple[str, ...] = ()  # how they ended; none for however
    since: datetime | None = None  # when they were settled, at the earliest; None for whenever
    until: datetime | None = None  # before this; likewise
    where: str = ""  # condition in Spark's SQL on the archive's columns, "" for none


class Target(NamedTuple):
    """Target of messages."""

    # None for the one that each came through; "" is the default exchange
    exchange: str | None = None
    routing_key: str | None = None  # None for each one's own


def select(rows: DataFrame, selection: Selection) -> DataFrame:
    """Return the rows that are selected.

    Args:
        rows: with the columns of `schema.log.ARCHIVE`.
        selection: which of them.
    """
    found = rows.where(F.col("vhost") == selection.vhost)
    if selection.queues:
        found = found.where(F.col("queue").isin(*selection.queues))
    if selection.outcomes:
        found = found.where(F.col("outcome").isin(*selection.outcomes))
    if selection.since is not None:
        found = found.where(F.col("settled_at") >= F.lit(selection.since))
    if selection.until is not None:
        found = found.where(F.col("settled_at") < F.lit(selection.until))
    return found.where(F.expr(selection.where)) if selection.where else found


def has_no_payload() -> Column:
    """Return the condition that only headers of a message were archived."""
    return F.col("payload").isNull()


def summary(rows: DataFrame) -> DataFrame:
    """Count rows of an archive: vhost, queue, outcome, messages, bytes, headers_only."""
    return (
        rows.groupBy("vhost", "queue", "outcome")
        .agg(
            F.count("*").alias("messages"),
            F.coalesce(F.sum("payload_bytes"), F.lit(0)).alias("octets"),
            F.count_if(has_no_payload()).alias("headers_only"),
        )
        .orderBy("vhost", "queue", "outcome")
    )


def messages(rows: DataFrame, target: Target) -> DataFrame:
    """Return rows as the replay publishes them.

    Returns:
        shard, incarnation, block, archive_index, exchange, routing_key, properties (AMQP's block),
        payload.
    """
    return rows.select(
        "shard",
        "incarnation",
        F.shiftright("archive_index", BLOCK_ROWS.bit_length() - 1).alias("block"),
        "archive_index",
        _given(target.exchange, "exchange"),
        _given(target.routing_key, "routing_key"),
        "properties",
        "payload",
    )


def _given(value: str | None, column: str) -> Column:
    return F.col(column) if value is None else F.lit(value).alias(column)


def in_order(rows: DataFrame, partitions: int) -> DataFrame:
    """Bring each block into one partition, in the order of its indexes."""
    spread = rows.repartition(partitions, *KEY)
    return spread.sortWithinPartitions(*KEY, "archive_index")
