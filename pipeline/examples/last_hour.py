"""Writes the report of the last hour, from what brokers have in their telemetry.

The same as `headrace-pipeline report --from 1h --out last-hour.html`, for programs that want the
figures as pandas frames, too.

HEADRACE_ENDPOINTS=broker:7672 python last_hour.py [FILE]
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace_pipeline.jobs.report import collect, read_brokers, write_report
from headrace_pipeline.jobs.session import SessionSettings, session
from headrace_pipeline.options.connection import Connection
from headrace_pipeline.report.frames import span_of


def main(endpoints: str, out: Path) -> None:
    """Run the example."""
    now = datetime.now(UTC)
    span = span_of(now - timedelta(hours=1), now)
    with session(SessionSettings("report", os.environ.get("HEADRACE_MASTER", "local[2]"))) as spark:
        frames = collect(read_brokers(spark, Connection(endpoints), span), span)
    # Rows of the tables of headrace_pipeline.schema.analysis: window by window, ready for a look.
    busiest = frames.queues.groupby("queue")["published"].sum().sort_values(ascending=False)
    for queue, published in busiest.head(3).items():
        print(f"{queue}: {published} messages")
    byte_count = write_report(frames, span, f"brokers at {endpoints}", out)
    print(f"{out}: {byte_count} bytes")


if __name__ == "__main__":
    arguments = sys.argv[1:] or ["last-hour.html"]
    main(os.environ.get("HEADRACE_ENDPOINTS", "127.0.0.1"), Path(arguments[0]))
