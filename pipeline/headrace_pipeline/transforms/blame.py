"""Who is to blame that publishers were stopped.

For a window w and a queue q at which somebody was stopped:

    share(a | q, w)  = cost(a, q, w) / sum of cost(*, q, w)
    blamed_ms(a, w)  = sum over q of blocked_ms(q, w) * share(a | q, w)

with the cost of `transforms/cost.py`, and a the ultimate cause (`origin_account`) of what was
brought. Shares of a queue and window sum to 1, and blamed_ms to blocked_ms, wherever anybody
brought or owed anything there; where nobody did, there is nobody to blame and no row.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from headrace_pipeline.schema.analysis import BLAME
from headrace_pipeline.transforms.cost import owed_us
from headrace_pipeline.transforms.event_time import as_table

_WINDOW = ("window_start", "window_s")
_QUEUE = (*_WINDOW, "vhost", "queue")


def blame(queues: DataFrame, accounts: DataFrame) -> DataFrame:
    """Return BLAME.

    Args:
        queues: QUEUE_WINDOWS, of one length or more.
        accounts: ACCOUNT_WINDOWS of the same windows.
    """
    at_queue, in_window = Window.partitionBy(*_QUEUE), Window.partitionBy(*_WINDOW)
    stopped = queues.where(fn.col("blocked_ms") > 0).select(*_QUEUE, "blocked_ms", "day")
    brought = accounts.drop("blocked_ms", "day").withColumn(
        "owed_us", owed_us(fn.col("owed_messages_max"), fn.col("owed_octets_max"))
    )
    rows = stopped.join(brought, [*_QUEUE])
    anything = fn.sum("cost_us").over(at_queue) > 0
    rows = rows.withColumn(
        "cost_us", fn.when(anything, fn.col("cost_us")).otherwise(fn.col("owed_us"))
    )
    rows = rows.where(fn.col("cost_us") > 0)
    rows = rows.withColumn("share", fn.col("cost_us") / fn.sum("cost_us").over(at_queue))
    rows = rows.withColumn("blamed_ms", fn.col("blocked_ms") * fn.col("share"))
    of_account = Window.partitionBy(*_WINDOW, "origin_account")
    rows = rows.withColumn("window_blamed_ms", fn.sum("blamed_ms").over(of_account))
    worst = in_window.orderBy(fn.desc("window_blamed_ms"))
    rows = rows.withColumn("queue_rank", fn.rank().over(at_queue.orderBy(fn.desc("blamed_ms"))))
    return as_table(rows.withColumn("window_rank", fn.dense_rank().over(worst)), BLAME)
