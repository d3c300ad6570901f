"""The data source `headrace_queue`."""

from __future__ import annotations

import uuid
from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from headrace_pipeline.error import SchemaError
from headrace_pipeline.sources.queue.batch import QueueBatchReader
from headrace_pipeline.sources.queue.option import NAME, read_options
from headrace_pipeline.sources.queue.stream import QueueStreamReader


class QueueDataSource(DataSource):
    """Messages of a live quorum queue; see docs/pipeline.md.

    Args:
        options: as Spark has them; they are checked here, so that a wrong one is reported at once.

    Raises:
        OptionError: one is wrong.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._found = read_options(options)
        self._snapshot = str(uuid.uuid4())  # one for each DataFrame, however often it is planned

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NAME

    def schema(self) -> StructType:
        """Return what rows look like."""
        return self._found.table.spark()

    def reader(self, schema: StructType) -> QueueBatchReader:
        """Return what reads once."""
        self._check(schema)
        return QueueBatchReader(self._found, self._snapshot)

    def streamReader(self, schema: StructType) -> QueueStreamReader:  # noqa: N802 - Spark's name
        """Return what reads a stream."""
        self._check(schema)
        return QueueStreamReader(self._found)

    def _check(self, schema: StructType) -> None:
        """Refuse a schema of the user's.

        Raises:
            SchemaError: it is another one.
        """
        if schema != self.schema():
            raise SchemaError(f"{NAME} has a schema of its own: select from its columns instead")
