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
        self.order: deque[bytes] = deque()  # in order: a dict is slow to find its first key

    def is_new(self, name: bytes, now_ms: i64, most: i64, keep_ms: i64) -> bool:
        """Return whether a name is new and remember it: `most` names, for ever if negative."""
        if len(name) > _NAME_BYTES_MAX:
            name = hashlib.blake2b(name, digest_size=_NAME_BYTES_MAX).digest()
        self._forget(now_ms, keep_ms)
        if name in self.seen:
            return False
        self.remember(name, now_ms)
        while len(self.order) > most:
            del self.seen[self.order.popleft()]
        return True

    def remember(self, name: bytes, time_ms: i64) -> None:
        """Remember a name, which is not remembered yet, as the newest."""
        self.seen[name] = time_ms
        self.order.append(name)

    def _forget(self, now_ms: i64, keep_ms: i64) -> None:
        if keep_ms < 0:
            return
        while self.order:
            name = self.order[0]
            if self.seen[name] + keep_ms > now_ms:
                return
            self.order.popleft()
            del self.seen[name]
