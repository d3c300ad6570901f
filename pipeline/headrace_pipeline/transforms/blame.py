"""Blame for stopped publishers.

For a window w and a queue q at which somebody was stopped:

    share(a | q, w)  = cost(a, q, w) / sum of cost(*, q, w)
    blamed_ms(a, w)  = sum over q of blocked_ms(q, w) * share(a | q, w)

with the cost of `transforms/cost.py`, and a the ultimate cause (`origin_account`) of what was
brought. A queue that stops publishers for what waits there (its watermark, an account's limit) does
so for what came long before as well: to that part of the time what is owed there is added to the
cost. Where nobody brought anything, what is owed is the cost; where nobody is told of at all, that
of the queue's last window in which somebody was, CARRIED_S before at most: an old backlog goes on
stopping publishers after everybody has been stopped. Shares of a queue and window sum to 1, and
blamed_ms to blocked_ms, wherever there is such a window; where there is none, there is nobody to
blame and no row.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from headrace_pipeline.schema.analysis import BLAME
from headrace_pipeline.transforms.cost import CARRIED_S, owed_us
from headrace_pipeline.transforms.event_time import as_table

_WINDOW = ("window_start", "window_s")
_QUEUE = (*_WINDOW, "vhost", "queue")


def blame(queues: DataFrame, accounts: DataFrame) -> DataFrame:
    """Return BLAME.

    Args:
        queues: QUEUE_WINDOWS, of one length or more.
        accounts: ACCOUNT_WINDOWS of the same windows, and of those CARRIED_S before.
    """
    at_queue, in_window = Window.partitionBy(*_QUEUE), Window.partitionBy(*_WINDOW)
    told = _told(accounts)
    stopped = _with_cause(queues.where(fn.col("blocked_ms") > 0), told)
    told = told.withColumnRenamed("window_start", "cause_start")
    rows = stopped.join(told, ["cause_start", "window_s", "vhost", "queue"])
    owed = fn.when(fn.col("anything"), fn.col("owed_us") * fn.col("backlog_share"))
    rows = rows.withColumn("cost_us", fn.col("cost_us") + fn.coalesce(owed, fn.col("owed_us")))
    rows = rows.where(fn.col("cost_us") > 0)
    rows = rows.withColumn("share", fn.col("cost_us") / fn.sum("cost_us").over(at_queue))
    rows = rows.withColumn("blamed_ms", fn.col("blocked_ms") * fn.col("share"))
    of_account = Window.partitionBy(*_WINDOW, "origin_account")
    rows = rows.withColumn("window_blamed_ms", fn.sum("blamed_ms").over(of_account))
    worst = in_window.orderBy(fn.desc("window_blamed_ms"))
    rows = rows.withColumn("queue_rank", fn.rank().over(at_queue.orderBy(fn.desc("blamed_ms"))))
    return as_table(rows.withColumn("window_rank", fn.dense_rank().over(worst)), BLAME)


def _told(accounts: DataFrame) -> DataFrame:
    """Return who brought or owes something, with `owed_us` and whether anybody brought anything."""
    owed = owed_us(fn.col("owed_messages_max"), fn.col("owed_octets_max"))
    anything = fn.sum("cost_us").over(Window.partitionBy(*_QUEUE)) > 0
    rows = accounts.drop("blocked_ms", "day").withColumn("owed_us", owed)
    rows = rows.withColumn("anything", anything)
    return rows.where((fn.col("cost_us") > 0) | (fn.col("owed_us") > 0))


def _with_cause(stopped: DataFrame, told: DataFrame) -> DataFrame:
    """Return windows with stopped publishers, with `backlog_share` and `cause_start`.

    The one is the share of the time for which what waits was the reason; the other the start of the
    window whose accounts are to blame: the same one, or the queue's last one before. Those without
    are left out.

    Args:
        stopped: QUEUE_WINDOWS.
        told: of `_told`.
    """
    waits = fn.col("blocked_watermark_ms") + fn.col("blocked_account_ms")
    share = (waits / fn.col("blocked_ms")).alias("backlog_share")
    at = told.select(*_QUEUE).distinct().withColumn("told_at", fn.col("window_start"))
    both = stopped.select(*_QUEUE, "blocked_ms", share, "day").join(at, [*_QUEUE], "full")
    until = Window.partitionBy("window_s", "vhost", "queue").orderBy("window_start")
    cause = fn.last("told_at", ignorenulls=True).over(until)
    age_s = fn.unix_seconds("window_start") - fn.unix_seconds("cause_start")
    rows = both.withColumn("cause_start", cause).drop("told_at")
    return rows.where(fn.col("blocked_ms").isNotNull() & (age_s <= CARRIED_S))
