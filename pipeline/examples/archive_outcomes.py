"""Counts how the messages of a queue ended: acknowledged, rejected, expired, ...

Their queue must keep an archive:  headrace policy declare keep '^orders' archive=headers

HEADRACE_ENDPOINTS=broker:7672 python archive_outcomes.py QUEUE
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import functions as fn

from headrace_pipeline.jobs.session import SessionSettings, session


def main(endpoints: str, queue: str) -> None:
    """Run the example."""
    with session(SessionSettings("ends", os.environ.get("HEADRACE_MASTER", "local[2]"))) as spark:
        archive = (
            spark.read.format("headrace_log")
            .option("endpoints", endpoints)
            .option("log", "archive")
            .option("queue", queue)  # patterns work, too: orders.*
            .option("startingOffsets", "earliest")
            .option("failOnDataLoss", "false")  # older rows may have gone; count what there is
            .load()
        )
        # How long a message was on its way: from the queue's taking it in to its end.
        took = fn.unix_millis("settled_at") - fn.unix_millis("enqueued_at")
        ends = archive.groupBy("outcome", "reason").agg(
            fn.count("*").alias("messages"),
            fn.percentile_approx(took, 0.5).alias("median_ms"),
            fn.max("delivery_count").alias("failures"),  # deliveries of one message that failed
        )
        for row in ends.orderBy(fn.desc("messages")).toLocalIterator():
            why = f" ({row.reason})" if row.reason else ""
            print(
                f"{row.messages} {row.outcome}{why}, half of them within {row.median_ms} ms, ",
                end="",
            )
            print(f"none failed more than {row.failures} times")


if __name__ == "__main__":
    main(os.environ.get("HEADRACE_ENDPOINTS", "127.0.0.1"), sys.argv[1])
