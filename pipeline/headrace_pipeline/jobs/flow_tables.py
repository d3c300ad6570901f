"""Tables of the job `flow`, and what of them a step needs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from headrace_pipeline.schema.analysis import ANALYSIS, LANDED, LONG_S
from headrace_pipeline.tables import SinkTable, open_table
from headrace_pipeline.transforms.event_time import once

# As what minutes are written. It is not the checkpoint's: who begins a new one has the same tables.
APP_ID: Final = "headrace-flow"


class Place(NamedTuple):
    """Location of tables."""

    uri: str  # folder; each table lies below it by its name
    format: Literal["delta", "parquet"] = "delta"  # of the tables
    # path of a JSON object with an object store's options; None for none
    storage_options_file: str | None = None


class FlowTables:
    """Landed tables and tables made of them."""

    def __init__(self, spark: SparkSession, place: Place) -> None:
        self._spark = spark  # which reads and writes
        self.by_name: Mapping[str, SinkTable] = {
            name: open_table(
                f"{place.uri.rstrip('/')}/{name}",
                table,
                place.format,
                storage_options_file=place.storage_options_file,
            )
            for name, table in (LANDED | ANALYSIS).items()
        }

    def made(self, name: str) -> int | None:
        """Return the first minute that a table has not, None where it has none at all."""
        return self.by_name[name].last_batch(APP_ID)

    def landed(self, log: str, since: datetime | None, until: datetime | None = None) -> DataFrame:
        """Return rows of a log, each once, from one time to before another."""
        where = [("at", ">=", since)] if since is not None else []
        where += [("at", "<", until)] if until is not None else []
        rows = self.by_name[log].read(self._spark, where=where)
        return once(rows, LANDED[log])

    def read(self, name: str, since: datetime, until: datetime | None = None) -> DataFrame:
        """Return rows of windows that start from one time to before another."""
        where = [("window_start", ">=", since), ("day", ">=", since.date())]
        where += [("window_start", "<", until)] if until is not None else []
        return self.by_name[name].read(self._spark, where=where)

    def write(self, name: str, rows: DataFrame, minutes: range) -> None:
        """Write rows of windows once, however often it is tried.

        Args:
            name: of the table.
            rows: of its windows in these minutes.
            minutes: since 1970; those that the table has are left out.

        Raises:
            SchemaError: the table was made by something else.
            ConflictError: others write to it all the time.
        """
        first = max(minutes.start, self.made(name) or 0)
        if first < minutes.stop:
            new = rows.where(rows["window_start"] >= instant(first))
            self.by_name[name].write_batch(new, APP_ID, minutes.stop)


def instant(minute: int) -> datetime:
    """Return the start of a minute since 1970."""
    return datetime.fromtimestamp(minute * LONG_S, UTC)
