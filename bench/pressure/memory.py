"""The memory of a broker's processes while something happens."""

from __future__ import annotations

import threading
from typing import Final

from replication.figures import resident_bytes

SAMPLE_SECONDS: Final = 0.05  # between two looks; a node's alarm looks every 0.2 s


class PeakMemory:
    """Looks at the resident memory of processes until it is left.

    Attributes:
        most: the most that one of them had, in bytes.
        ended: processes that ended meanwhile.
    """

    def __init__(self, pids: list[int]) -> None:
        self.most = 0
        self.ended: set[int] = set()
        self._pids = pids
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            for pid in self._pids:
                try:
                    self.most = max(self.most, resident_bytes(pid))
                except (FileNotFoundError, ProcessLookupError):
                    self.ended.add(pid)
