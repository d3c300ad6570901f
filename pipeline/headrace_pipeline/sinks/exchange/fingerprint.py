"""Fingerprint of a task's rows: equal for the same rows in the same order.

It does not depend on how the rows were cut into batches, nor on what stands behind nulls.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_TEXTS: Final = pa.struct([("key", pa.string()), ("value", pa.string())])
_ENTRIES: Final = pa.list_(_TEXTS)  # what a map is, with functions that Arrow has for it

BITS: Final = 22  # two different contents have one number once in four million times


class Fingerprint:
    """Reads batches of `column.uniform`, which all have the same columns."""

    def __init__(self) -> None:
        self._digests: dict[str, Any] = {}
        self._rows = 0

    def update(self, batch: pa.RecordBatch) -> None:
        """Take the next rows."""
        self._rows += batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self._feed(name, column)

    def value(self) -> int:
        """Return the number, 0 to 2**BITS - 1, of all rows so far."""
        whole = hashlib.blake2b(str(self._rows).encode(), digest_size=8)
        for name, digest in sorted(self._digests.items()):
            whole.update(name.encode() + b"\0" + digest.digest())
        return int.from_bytes(whole.digest(), "big") >> (64 - BITS)

    def _feed(self, name: str, column: pa.Array) -> None:
        self._add(f"{name}?", pc.is_valid(column).cast(pa.int8()))
        if pa.types.is_map(column.type):
            entries = column.cast(_ENTRIES)
            self._add(f"{name}#", pc.fill_null(pc.list_value_length(entries), 0))
            fields = entries.flatten()
            self._feed(f"{name}.key", fields.field(0))
            self._feed(f"{name}.value", fields.field(1))
        elif pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            full = pc.fill_null(column.cast(pa.binary()), b"")
            self._add(f"{name}#", pc.binary_length(full))
            self._digest(name).update(_data(full))
        elif pa.types.is_boolean(column.type):
            self._add(name, pc.fill_null(column, False).cast(pa.int8()))
        else:
            self._add(name, pc.fill_null(column.cast(pa.int64()), 0))

    def _add(self, name: str, numbers: pa.Array) -> None:
        self._digest(name).update(numbers.to_numpy(zero_copy_only=False).tobytes())

    def _digest(self, name: str) -> Any:
        found = self._digests.get(name)
        if found is None:
            found = self._digests[name] = hashlib.blake2b(digest_size=16)
        return found


def _data(column: pa.Array) -> memoryview:
    """Return the values of a binary column without nulls, one behind the other."""
    _, offsets, values = column.buffers()
    if values is None or not len(column):
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int32)
    start, stop = int(ends[column.offset]), int(ends[column.offset + len(column)])
    return memoryview(values)[start:stop]
