"""Statistics of a file, gathered batch by batch while it is written."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace_pipeline.schema.column import Column, Kind
from headrace_pipeline.tables.data_file import Stats, high_text, low_text
from headrace_pipeline.tables.partition import Value

# Floats have none, for NaN is greater than all of them to Spark and to others it is not; bytes and
# flags have none in Delta.
_BOUNDED: Final = frozenset({Kind.INT64, Kind.INT32, Kind.UTF8, Kind.TIMESTAMP, Kind.DATE})


class FileStats:
    """Counts, nulls and bounds of the rows of a file."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._columns = columns  # of the file
        self._rows = 0
        self._nulls = dict.fromkeys((column.name for column in columns), 0)
        self._bounds: dict[str, tuple[Value, Value]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch with these columns."""
        self._rows += batch.num_rows
        for column in self._columns:
            array = batch.column(column.name)
            self._nulls[column.name] += array.null_count
            if column.kind in _BOUNDED and array.null_count < len(array):
                self._widen(column.name, pc.min_max(array).as_py())

    def stats(self) -> Stats:
        """Return them as Delta's log has them."""
        lows = {name: low_text(low) for name, (low, _) in self._bounds.items()}
        highs = {name: high_text(high) for name, (_, high) in self._bounds.items()}
        return Stats(
            self._rows,
            {name: low for name, low in lows.items() if low is not None},
            {name: high for name, high in highs.items() if high is not None},
            dict(self._nulls),
        )

    def _widen(self, name: str, found: dict[str, Value]) -> None:
        low, high = found["min"], found["max"]
        if name in self._bounds:
            before = self._bounds[name]
            low, high = min(low, before[0]), max(high, before[1])  # type: ignore[type-var]
        self._bounds[name] = low, high
