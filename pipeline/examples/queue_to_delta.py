"""Moves what a queue holds into a Delta table: each message is in it once, and gone from the queue.

Run it again, after whatever interruption: it goes on from its checkpoint.

HEADRACE_ENDPOINTS=broker:7672 python queue_to_delta.py QUEUE FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from headrace_pipeline.jobs.session import SessionSettings, session
from headrace_pipeline.schema.column import Column, Kind
from headrace_pipeline.schema.queue import QUEUE_MESSAGES
from headrace_pipeline.tables import open_table, query_id

# As the queue gives them, and the day on which they came, to divide files by.
MESSAGES = QUEUE_MESSAGES._replace(
    columns=(*QUEUE_MESSAGES.columns, Column("day", Kind.DATE)), partition_by=("day",)
)


def main(endpoints: str, queue: str, folder: Path) -> None:
    """Run the example."""
    with session(SessionSettings("move", os.environ.get("HEADRACE_MASTER", "local[2]"))) as spark:
        table = open_table(str(folder / "messages"), MESSAGES)

        def write(batch: DataFrame, number: int) -> None:
            days = batch.withColumn("day", batch.enqueued_at.cast("date"))
            # Tasks write files, one commit makes them visible: a batch that Spark repeats is known
            # by its query and number, and skipped. Only then are the messages settled.
            written = table.write_batch(days, query_id(batch), number)
            print(f"batch {number}: {written.rows} messages", flush=True)

        query = (
            spark.readStream.format("headrace_queue")
            .option("endpoints", endpoints)
            .option("queue", queue)
            .option("group", "lake")
            .load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)  # what is there now; leave it out to go on for ever
            .start()
        )
        query.awaitTermination()
        print(f"{table.read(spark).count()} messages in {folder / 'messages'}")


if __name__ == "__main__":
    main(os.environ.get("HEADRACE_ENDPOINTS", "127.0.0.1"), sys.argv[1], Path(sys.argv[2]))
