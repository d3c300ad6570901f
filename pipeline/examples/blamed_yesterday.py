"""Says who made publishers wait since yesterday, and at which queues.

HEADRACE_ENDPOINTS=broker:7672 python blamed_yesterday.py [HOURS]
"""

from __future__ import annotations

import os
import sys
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headrace_pipeline.jobs.session import SessionSettings, session
from headrace_pipeline.transforms.blame import blame
from headrace_pipeline.transforms.windows import account_windows, queue_windows


def main(endpoints: str, hours: float = 24) -> None:
    """Run the example."""
    since = round((time.time() - hours * 3600) * 1000)
    with session(SessionSettings("blame", os.environ.get("HEADRACE_MASTER", "local[2]"))) as spark:

        def rows(log: str) -> DataFrame:
            reader = spark.read.format("headrace_log").option("endpoints", endpoints)
            reader = reader.option("failOnDataLoss", "false").option("log", log)
            return reader.option("startingTimestamp", str(since)).load()

        # Once a second each node notes how queues and publishers fare, and who brings what where.
        samples, edges = rows("flow_samples").cache(), rows("debt_edges")
        queues = queue_windows(samples, seconds=60)
        accounts = account_windows(edges, samples, seconds=60)
        # Of the time that a queue made publishers wait, accounts have shares by what they brought.
        shares = (
            blame(queues, accounts)
            .groupBy("vhost", "queue", "origin_account")
            .agg(
                fn.sum("blamed_ms").alias("blamed_ms"),
                fn.last("account_name").alias("name"),
                fn.last("user").alias("user"),
            )
        )
        worst = shares.orderBy(fn.desc("blamed_ms")).limit(10).collect()
        for row in worst:
            waited = f"{row.blamed_ms / 1000:.1f} s of waiting at {row.queue}"
            print(f"{row.name or row.origin_account} (user {row.user}): {waited}")
        if not worst:
            print("nobody had to wait")


if __name__ == "__main__":
    main(os.environ.get("HEADRACE_ENDPOINTS", "127.0.0.1"), *map(float, sys.argv[1:2]))
