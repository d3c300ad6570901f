"""Tables in Delta Lake, or in plain Parquet, that take each batch exactly once."""

from headrace_pipeline.tables.sink_table import (
    SinkTable,
    Written,
    open_stored,
    open_table,
    query_id,
)
from headrace_pipeline.tables.table_log import ConflictError
from headrace_pipeline.tables.where import Where

__all__ = [
    "ConflictError",
    "SinkTable",
    "Where",
    "Written",
    "open_stored",
    "open_table",
    "query_id",
]
