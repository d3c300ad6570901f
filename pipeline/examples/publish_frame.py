"""Publishes the rows of a DataFrame to an exchange, each as one message.

HEADRACE_ENDPOINTS=broker:7672 python publish_frame.py EXCHANGE
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import functions as fn

from headrace_pipeline.jobs.session import SessionSettings, session

ORDERS = 1000


def main(endpoints: str, exchange: str) -> None:
    """Run the example."""
    with session(SessionSettings("send", os.environ.get("HEADRACE_MASTER", "local[2]"))) as spark:
        orders = spark.range(ORDERS).select(
            fn.col("id").alias("order"),
            (fn.col("id") % 3).alias("shop"),
            (fn.rand(7) * 100).alias("price"),
        )
        messages = orders.select(
            # A message is what these columns say; routing_key and payload are the least of it.
            fn.concat(fn.lit("order.shop-"), fn.col("shop")).alias("routing_key"),
            fn.to_json(fn.struct("*")).cast("binary").alias("payload"),
            fn.lit("application/json").alias("content_type"),
            fn.col("order").cast("string").alias("message_id"),
        )
        (
            messages.write.format("headrace")
            .option("endpoints", endpoints)
            .option("exchange", exchange)
            # With the same id and epoch a message is published once, however often this runs.
            .option("publisherId", "orders-of-today")
            .option("epoch", "1")
            .mode("append")
            .save()
        )  # returns when all messages are confirmed
        print(f"{ORDERS} messages are confirmed by {exchange or 'the default exchange'}")


if __name__ == "__main__":
    main(os.environ.get("HEADRACE_ENDPOINTS", "127.0.0.1"), sys.argv[1])
