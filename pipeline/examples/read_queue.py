"""Looks at what waits in a queue: how much of which kind, how large, since when.

Nothing leaves the queue. What is looked at is leased, and goes back to where it stood.

HEADRACE_ENDPOINTS=broker:7672 python read_queue.py QUEUE
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import functions as fn

from headrace_pipeline.jobs.session import SessionSettings, session


def main(endpoints: str, queue: str) -> None:
    """Run the example."""
    with session(SessionSettings("look", os.environ.get("HEADRACE_MASTER", "local[2]"))) as spark:
        messages = (
            spark.read.format("headrace_queue")
            .option("endpoints", endpoints)
            .option("queue", queue)
            .option("group", "look")  # holds the lease; two looks at a time need two names
            .option("leaseTtlMs", "10000")  # back in the queue 10 s after the last task
            .load()
        )
        # A DataFrame like any other: `payload` holds the bytes, `properties` all of AMQP's.
        kinds = messages.groupBy("routing_key", "content_type").agg(
            fn.count("*").alias("messages"),
            fn.sum("payload_bytes").alias("octets"),
            fn.min("enqueued_at").alias("oldest"),
        )
        for row in kinds.orderBy(fn.desc("messages")).toLocalIterator():
            kind = row.content_type or "unknown"
            print(f"{row.messages} of {row.routing_key} ({kind}), {row.octets} bytes, ", end="")
            print(f"the oldest of {row.oldest:%Y-%m-%d %H:%M:%S} UTC")


if __name__ == "__main__":
    main(os.environ.get("HEADRACE_ENDPOINTS", "127.0.0.1"), sys.argv[1])
