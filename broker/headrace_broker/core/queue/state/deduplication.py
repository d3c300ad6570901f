"""Which messages a queue has had before, as their publishers name them."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Final, final

from mypy_extensions import i64

_NAME_BYTES_MAX: Final = 16  # longer names are remembered by a digest of as many bytes


@final
class Deduplication:
    """Names of messages within a window of number and time."""

    def __init__(self) -> None:
        self.seen: dict[bytes, int] = {}  # name -> when it came, in that order
        # in order, as a dict is slow to find its first key; None before there is any
        self._order: deque[bytes] | None = None

    def is_new(self, name: bytes, now_ms: i64, most: i64, keep_ms: i64) -> bool:
        """Return whether a name is new and remember it: `most` names, for ever if negative."""
        if len(name) > _NAME_BYTES_MAX:
            name = hashlib.blake2b(name, digest_size=_NAME_BYTES_MAX).digest()
        self._forget(now_ms, keep_ms)
        if name in self.seen:
            return False
        self.remember(name, now_ms)
        while len(self.seen) > most:
            self._forget_first()
        return True

    def remember(self, name: bytes, time_ms: i64) -> None:
        """Remember a name, which is not remembered yet, as the newest."""
        self.seen[name] = time_ms
        if self._order is None:
            self._order = deque()
        self._order.append(name)

    def _forget(self, now_ms: i64, keep_ms: i64) -> None:
        if keep_ms < 0 or self._order is None:
            return
        while self._order and self.seen[self._order[0]] + keep_ms <= now_ms:
            self._forget_first()

    def _forget_first(self) -> None:
        assert self._order is not None, "a name is remembered"
        del self.seen[self._order.popleft()]
