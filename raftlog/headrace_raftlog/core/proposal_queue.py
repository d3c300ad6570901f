"""Proposals that wait: two queues, of which the urgent one goes first."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64


@final
class ProposalQueue:
    """Two queues, first in first out each."""

    def __init__(self) -> None:
        self.size: i64 = 0  # bytes waiting, by `entry_cost`
        self._urgent: deque[tuple[list[bytes], int]] = deque()
        self._normal: deque[tuple[list[bytes], int]] = deque()

    def blocks(self, urgent: bool) -> bool:
        """Return whether a new proposal has to stand behind another."""
        return len(self._urgent) > 0 or (not urgent and len(self._normal) > 0)

    def add(self, blobs: list[bytes], size: i64, urgent: bool) -> None:
        """Put a proposal at the end of its queue."""
        self.size += size
        (self._urgent if urgent else self._normal).append((blobs, size))

    def first_size(self) -> i64:
        """Return the size of the proposal that is next, -1 when there is none."""
        queue = self._urgent if self._urgent else self._normal
        return queue[0][1] if queue else -1

    def pop(self) -> list[bytes]:
        """Take the proposal that is next."""
        blobs, size = (self._urgent if self._urgent else self._normal).popleft()
        self.size -= size
        return blobs
