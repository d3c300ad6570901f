"""A job that copies a log into a Delta table until it is told to stop.

python log_to_delta.py ENDPOINTS LOG FOLDER [OPTION=VALUE ...]

Below FOLDER it makes `table` and `checkpoint`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from headrace_pipeline.jobs.running import await_queries
from headrace_pipeline.jobs.session import SessionSettings, session
from headrace_pipeline.schema.log import LOGS
from headrace_pipeline.tables import open_table, query_id

CONF = {"spark.driver.memory": "1g", "spark.task.maxFailures": "4"}


def main(endpoints: str, log: str, folder: Path, *options: str) -> None:
    """Run the job."""
    columns = LOGS[log].without("headers")
    table = open_table(str(folder / "table"), columns._replace(partition_by=("shard",)))

    def write(rows: DataFrame, number: int) -> None:
        written = table.write_batch(rows, query_id(rows), number)
        print(f"batch {number}: {written.rows} rows, skipped {written.skipped}", flush=True)

    with session(SessionSettings("log to Delta", "local[2,4]", CONF)) as spark:
        given = {"endpoints": endpoints, "log": log, "startingOffsets": "earliest"}
        for option in options:
            name, _, given[name] = option.partition("=")
        query = (
            spark.readStream.format("headrace_log")
            .options(**given)
            .load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        await_queries([query])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
