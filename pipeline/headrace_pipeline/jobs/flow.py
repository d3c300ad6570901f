"""The job `flow`: telemetry becomes windows, blame, bottleneck classes and advice.

It goes round: land what the brokers have noted since, samples first and then events and edges; make
windows of the minutes that are complete; give advice. All that it knows stands in the checkpoints
of the streams and in the tables, each of which takes a batch once, so it may be killed at any point
and goes on where it was. See INTERNALS.md, "Windows without a watermark", for why it is made so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from headrace_pipeline.jobs.advising import give_advice
from headrace_pipeline.jobs.driver_fence import DriverFence
from headrace_pipeline.jobs.flow_analysis import AdviceTerms, FlowAnalysis
from headrace_pipeline.jobs.flow_tables import FlowTables, Place
from headrace_pipeline.jobs.running import stop_signals
from headrace_pipeline.limits import FLOW_BATCH_ROWS, STOP_LOOK_SECONDS
from headrace_pipeline.options import reach
from headrace_pipeline.options.connection import Connection
from headrace_pipeline.schema.analysis import CONSUMER_ADVICE
from headrace_pipeline.tables import SinkTable, query_id
from headrace_pipeline.transforms.event_time import land

LOGS: Final = ("flow_samples", "flow_events", "debt_edges")  # samples first: see transforms.horizon

log = logging.getLogger(__name__)


class FlowSettings(NamedTuple):
    """Settings of the job."""

    connection: Connection  # of the brokers
    place: Place  # of the tables
    checkpoint: str  # folder of the streams' checkpoints
    group: str = "headrace-flow"  # by which brokers know the job
    starting: str = "latest"  # where it begins without a checkpoint: earliest or latest
    every_s: float = 20.0  # seconds between rounds
    terms: AdviceTerms = AdviceTerms()  # of advice
    # whether advice is given to the brokers; it is written to its table anyway
    advises: bool = True
    # or goes on with a warning where brokers have dropped rows unread
    fails_on_data_loss: bool = False


class FlowJob:
    """The cycle of landing, windows and advice."""

    def __init__(self, spark: SparkSession, settings: FlowSettings) -> None:
        self._spark = spark  # which does the work
        self._settings = settings  # what it is told
        self._client = reach.client(settings.connection)
        self._tables = FlowTables(spark, settings.place)
        self._analysis = FlowAnalysis(spark, self._tables, settings.terms)
        self._fence = DriverFence(self._client, f"{settings.group}-driver")

    def run(self, once: bool = False) -> None:
        """Go round until the process is told to stop.

        Args:
            once: end after one round, in which all is made that can be.

        Raises:
            FencedError: another driver has started.
            HeadraceError: no broker answers, or one may not.
            PipelineError: tables cannot be read or written.
            StreamingQueryException: rows cannot be read.
        """
        with stop_signals() as told:
            self._fence.check()
            self._give()
            while True:
                began = time.monotonic()
                self.round(told.is_set)
                left = self._settings.every_s - (time.monotonic() - began)
                if once or told.wait(max(left, 0.0)):
                    return

    def round(self, is_told: Callable[[], bool] = lambda: False) -> None:
        """Land new rows, make complete windows, and give advice.

        Args:
            is_told: whether to stop at the next place where that costs nothing.
        """
        for name in LOGS:
            self._land(name, is_told)
        while not is_told():
            minutes = self._analysis.next_minutes()
            if not minutes:
                return
            self._fence.check()
            self._analysis.make(minutes)
            self._give()

    def _land(self, name: str, is_told: Callable[[], bool]) -> None:
        """Land the rows of a log that there are now."""
        settings = self._settings
        reader = self._spark.readStream.format("headrace_log").options(
            **settings.connection.options(),
            log=name,
            startingOffsets=settings.starting,
            maxRowsPerTrigger=str(FLOW_BATCH_ROWS),
            failOnDataLoss=str(settings.fails_on_data_loss).lower(),
            group=settings.group,
        )
        query = (
            reader.load()
            .writeStream.foreachBatch(_lander(self._tables.by_name[name]))
            .option("checkpointLocation", f"{settings.checkpoint.rstrip('/')}/{name}")
            .queryName(f"land {name}")
            .trigger(availableNow=True)
            .start()
        )
        try:
            while not query.awaitTermination(STOP_LOOK_SECONDS):
                if is_told():
                    return
        finally:
            query.stop()

    def _give(self) -> None:
        """Send valid advice to the brokers."""
        if not self._settings.advises:
            return
        now = datetime.now(UTC)
        since = now - timedelta(seconds=2 * self._settings.terms.valid_s)
        give_advice(self._client, self._tables.read(CONSUMER_ADVICE.name, since), now)


def _lander(table: SinkTable) -> Callable[[DataFrame, int], None]:
    def land_batch(rows: DataFrame, batch_id: int) -> None:
        table.write_batch(land(rows), query_id(rows), batch_id)

    return land_batch
