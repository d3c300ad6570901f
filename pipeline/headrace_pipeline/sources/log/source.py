# ruff: noqa: N802  (names of Spark's methods)
"""The data source `headrace_log`: archives of queues, and telemetry, as rows.

spark.readStream.format("headrace_log").option("endpoints", "broker-0:7672,broker-1:7672")
.option("log", "archive").option("queue", "orders.*").load()
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from headrace_pipeline.error import SchemaError
from headrace_pipeline.schema.column import Table
from headrace_pipeline.sources.log.batch import LogReader
from headrace_pipeline.sources.log.settings import NAME, check_batch, check_stream, read_settings
from headrace_pipeline.sources.log.stream import LogStreamReader


class LogSource(DataSource):
    """See the module; `read_settings` says which options there are."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of the log.

        Raises:
            OptionError: an option is wrong.
        """
        return read_settings(self.options).table.spark()

    def reader(self, schema: StructType) -> LogReader:
        """Return the reader of a batch."""
        settings = check_batch(read_settings(self.options), self.options)
        return LogReader(settings, selected(settings.table, schema))

    def streamReader(self, schema: StructType) -> LogStreamReader:
        """Return the reader of a stream."""
        check_stream(self.options)
        settings = read_settings(self.options)
        return LogStreamReader(settings, selected(settings.table, schema))


def selected(table: Table, schema: StructType) -> Table:
    """Return the columns of a table that a schema names, in its order.

    Raises:
        SchemaError: it names one that is not there, or with another type.
    """
    known = {field.name: field.dataType for field in table.spark().fields}
    columns = {column.name: column for column in table.columns}
    for field in schema.fields:
        if known.get(field.name) != field.dataType:
            there = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
            given = f"{field.name} {field.dataType.simpleString()}"
            raise SchemaError(f"the log has no column {given}; it has {there}")
    return table._replace(columns=tuple(columns[field.name] for field in schema.fields))
