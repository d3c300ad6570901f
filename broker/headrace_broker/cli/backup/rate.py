"""A bound on bytes a second, so that a backup leaves a cluster its time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, Final

import click
from typing_extensions import override

CHUNK_BYTES_MIN: Final = 16 << 10
CHUNK_BYTES: Final = 1 << 20
_UNITS: Final = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "Ki": 1 << 10, "Mi": 1 << 20}
_UNITS["Gi"] = 1 << 30
_AMOUNT: Final = re.compile(r"([1-9][0-9]{0,14})(|k|M|G|Ki|Mi|Gi)B?")


class Bytes(click.ParamType[int]):
    """A number of bytes: 1000000, 50M, 64MiB."""

    name = "bytes"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _AMOUNT.fullmatch(str(value))
        if found is None:
            self.fail(f"'{value}' must be a number of bytes like 500000, 50M or 64MiB", param, ctx)
        return int(found[1]) * _UNITS[found[2]]


class Rate:
    """Lets bytes pass no faster than so many a second."""

    def __init__(
        self,
        bytes_s: int | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_s = bytes_s  # a second, None for no bound
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    @property
    def chunk_bytes(self) -> int:
        """Size of the next chunk."""
        if self._bytes_s is None:
            return CHUNK_BYTES
        return min(max(self._bytes_s // 4, CHUNK_BYTES_MIN), CHUNK_BYTES)

    def take(self, byte_count: int) -> None:
        """Wait until what passed before has had its time, and let these bytes pass."""
        if self._bytes_s is None:
            return
        now = self._clock()
        if self._free_at > now:
            self._sleep(self._free_at - now)
        self._free_at = max(self._free_at, now) + byte_count / self._bytes_s
