"""A job that moves messages of a queue into a Delta table until it is told to stop.

python queue_to_delta.py ENDPOINTS QUEUE FOLDER [OPTION=VALUE ...]

Below FOLDER it makes `table` and `checkpoint`. While there is a file `hold` each batch waits before
it reads.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame

from headrace_pipeline.jobs.running import await_queries
from headrace_pipeline.jobs.session import SessionSettings, session
from headrace_pipeline.schema.queue import QUEUE_MESSAGES
from headrace_pipeline.tables import open_table, query_id

GROUP = "lake"
HOLD_SECONDS = 0.05
CONF = {"spark.driver.memory": "1g", "spark.task.maxFailures": "4"}


def main(endpoints: str, queue: str, folder: Path, *options: str) -> None:
    """Run the job."""
    table = open_table(str(folder / "table"), QUEUE_MESSAGES)
    hold = folder / "hold"

    def write(rows: DataFrame, number: int) -> None:
        say(f"batch {number} begins")
        while hold.exists():
            time.sleep(HOLD_SECONDS)
        started = time.monotonic()
        written = table.write_batch(rows, query_id(rows), number)
        seconds = time.monotonic() - started
        say(f"batch {number}: {written.rows} rows in {seconds:.1f} s, skipped {written.skipped}")

    with session(SessionSettings("queue to Delta", "local[2,4]", CONF)) as spark:
        given = {"endpoints": endpoints, "queue": queue, "group": GROUP}
        for option in options:
            name, _, given[name] = option.partition("=")
        query = (
            spark.readStream.format("headrace_queue")
            .options(**given)
            .load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        await_queries([query])


def say(text: str) -> None:
    """Tell the test."""
    print(text, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
