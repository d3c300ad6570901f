"""A driver that a test may kill: rows of files, by a stream, to a queue.

    python sink_driver.py FOLDER CHECKPOINT ENDPOINTS QUEUE

Publishes each row of the Parquet files in FOLDER once, in batches of one file, and ends.
"""

from __future__ import annotations

import sys

from headrace_pipeline.jobs.session import SessionSettings, session

PARTITIONS = 2


def main(folder: str, checkpoint: str, endpoints: str, queue: str) -> None:
    conf = {"spark.default.parallelism": str(PARTITIONS), "spark.driver.memory": "1g"}
    conf["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1"  # it does not live long
    conf["spark.sql.files.maxPartitionBytes"] = "32k"
    with session(SessionSettings("sink driver", f"local[{PARTITIONS}]", conf)) as spark:
        rows = spark.readStream.schema("number bigint, payload string").option(
            "maxFilesPerTrigger", 1
        )
        query = (
            rows.parquet(folder)
            .select("payload")
            .writeStream.format("headrace")
            .option("checkpointLocation", checkpoint)
            .option("endpoints", endpoints)
            .option("routingKey", queue)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
