"""A Parquet file of a table while it is written: rows are held, and written in groups."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace_pipeline.schema.column import Table
from headrace_pipeline.tables.data_file import DataFile
from headrace_pipeline.tables.file_stats import FileStats
from headrace_pipeline.tables.place import Place, sync_local

_COMPRESSION: Final = "zstd"


class FileWriter:
    """A file under construction; it is invisible before its commit.

    Args:
        table: its columns.
    """

    def __init__(
        self, place: Place, table: Table, path: str, partition: dict[str, str | None]
    ) -> None:
        inner = table.without(*partition)
        self._place = place  # of the table
        self._path = path  # below the table's directory
        # texts of the partition columns, which the file itself does not hold
        self._partition = partition
        self._held: list[pa.RecordBatch] = []
        self._schema = inner.arrow()
        self._stats = FileStats(inner.columns)
        self._files = place.files()
        self._files.create_dir(os.path.dirname(path) or ".", recursive=True)
        self._stream = self._files.open_output_stream(path, compression=None)
        self._writer = pq.ParquetWriter(self._stream, self._schema, compression=_COMPRESSION)
        self.held_bytes = 0
        self.rows = 0

    @property
    def byte_count(self) -> int:
        """Bytes that were written."""
        return int(self._stream.tell())

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows to the buffer; their columns may be in any order."""
        batch = batch.select(self._schema.names)
        self._held.append(batch)
        self._stats.add(batch)
        self.held_bytes += batch.nbytes
        self.rows += batch.num_rows

    def write(self) -> None:
        """Write the buffer as a group of rows, and empty it.

        Raises:
            OSError: the file system says no.
        """
        if self._held:
            held = pa.Table.from_batches(self._held, self._schema)
            self._writer.write_table(held, row_group_size=max(held.num_rows, 1))
            self._held, self.held_bytes = [], 0

    def finish(self) -> DataFile:
        """Write the buffer, and force a local file to the disk.

        Raises:
            OSError: the file system says no.
        """
        self.write()
        self._writer.close()
        byte_count = self.byte_count
        self._stream.close()
        if self._place.local:
            path = self._place.path(self._path)
            sync_local(path)
            sync_local(os.path.dirname(path))
        return DataFile(
            self._path, byte_count, self._partition, self._stats.stats(), int(time.time() * 1000)
        )

    def abandon(self) -> None:
        """Remove the file; if that fails, vacuum takes it, because no commit refers to it."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._stream.close()
        with contextlib.suppress(OSError):
            self._files.delete_file(self._path)
