"""Rows of one file of a table, with exactly the columns that are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace_pipeline.limits import READ_ROWS
from headrace_pipeline.schema.column import Table
from headrace_pipeline.tables.data_file import DataFile
from headrace_pipeline.tables.partition import value_of


def file_rows(stream: Any, file: DataFile, wanted: Table) -> Iterator[pa.RecordBatch]:
    """Give the rows of a file; columns that it lacks are null.

    Args:
        stream: of a Parquet file, as pyarrow takes it.
        file: what is known of it.
        wanted: columns, in order; those of the partition are among them or not.
    """
    parquet = pq.ParquetFile(stream)
    present = [name for name in wanted.names if name in parquet.schema_arrow.names]
    schema = wanted.arrow()
    for batch in parquet.iter_batches(READ_ROWS, columns=present):
        arrays = []
        for column, field in zip(wanted.columns, schema, strict=True):
            if column.name in file.partition:
                value = value_of(file.partition[column.name], column.kind)
                arrays.append(pa.repeat(pa.scalar(value, field.type), batch.num_rows))
            elif column.name in present:
                arrays.append(batch.column(column.name).cast(field.type))
            else:
                arrays.append(pa.nulls(batch.num_rows, field.type))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
