"""Batches that wait: in memory as far as there is room, then in a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import IO

import pyarrow as pa

from headrace_pipeline.error import PipelineError
from headrace_pipeline.limits import SPOOL_FILE_BYTES, SPOOL_MEMORY_BYTES


class Spool:
    """Takes batches of one schema, and gives them back in order."""

    def __init__(
        self, memory_bytes: int = SPOOL_MEMORY_BYTES, file_bytes: int = SPOOL_FILE_BYTES
    ) -> None:
        self._room = memory_bytes  # that it keeps in memory
        # that it writes to a file without a name in TMPDIR, which goes with it
        self._file_room = file_bytes
        self._kept: list[pa.RecordBatch] = []
        self._file: IO[bytes] | None = None
        self._stream: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kept.clear()
        if self._file is not None:
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next batch.

        Raises:
            PipelineError: there is more than may be written.
            OSError: the file cannot be written.
        """
        if self._stream is None and batch.nbytes <= self._room:
            self._room -= batch.nbytes
            self._kept.append(batch)
            return
        if self._stream is None:
            self._file = tempfile.TemporaryFile(prefix="headrace-spool-")  # noqa: SIM115 - __exit__
            self._stream = pa.ipc.new_stream(self._file, batch.schema)
        self._file_room -= batch.nbytes
        if self._file_room < 0:
            raise PipelineError(
                "a partition is too large to be kept until its content is known: repartition the "
                "DataFrame into more, smaller ones"
            )
        self._stream.write_batch(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return all batches, once; none may be added any more."""
        if self._stream is not None:
            self._stream.close()
        while self._kept:
            yield self._kept.pop(0)
        if self._file is not None:
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)
