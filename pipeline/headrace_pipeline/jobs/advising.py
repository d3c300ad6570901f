"""Advice goes from its table to the brokers, who keep it until it lapses."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as fn

from headrace_client.advice import CONSUMERS, AdviceItem
from headrace_client.blocking import Client
from headrace_client.error import NotFoundError, PreconditionError

MARGIN_S: Final = 5  # s; what lapses sooner is not worth a call, and clocks differ
_FIGURES: Final = (
    *("arrival_rate_p95", "service_rate", "backlog", "drain_s", "consumers", "baseline", "wanted"),
)

log = logging.getLogger(__name__)


def give_advice(client: Client, advice: DataFrame, now: datetime) -> int:
    """Give the newest advice about each queue, if it holds.

    Repetitions do no harm: the same user's advice on the same thing is replaced.

    Args:
        client: of the brokers.
        advice: CONSUMER_ADVICE.
        now: the time, aware.

    Returns:
        How many pieces were given.

    Raises:
        HeadraceError: no broker answers, one may not, or there is too much advice.
    """
    holds = advice.where(fn.col("valid_until") > now + timedelta(seconds=MARGIN_S))
    newest = holds.groupBy("vhost", "queue").agg(
        fn.max_by(fn.struct(*advice.columns), "window_start").alias("row")
    )
    items = [_item(row) for row in newest.select("row.*").collect()]
    try:
        client.advice.put(items)
    except (NotFoundError, PreconditionError):  # of one of them, and none is taken
        return _give_each(client, items)
    return len(items)


def _give_each(client: Client, items: Sequence[AdviceItem]) -> int:
    given = 0
    for item in items:
        try:
            client.advice.put([item])
        except (NotFoundError, PreconditionError) as error:
            log.info("no advice on queue %s in vhost %s: %s", item.queue, item.vhost, error)
        else:
            given += 1
    return given


def _item(row: Row) -> AdviceItem:
    figures = {name: float(row[name]) for name in _FIGURES if row[name] is not None}
    return AdviceItem(
        vhost=row["vhost"],
        queue=row["queue"],
        kind=CONSUMERS,
        value=row["advised"],
        current=row["consumers"] or 0,
        reason=row["because"],
        valid_until_ms=int(row["valid_until"].timestamp() * 1000),
        figures=figures,
    )
