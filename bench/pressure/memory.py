"""The memory of a broker's nodes while something happens."""

from __future__ import annotations

import threading
from typing import Final

from peers import node_processes
from replication.figures import resident_bytes

SAMPLE_SECONDS: Final = 0.05  # between two looks; a node's alarm looks every 0.2 s


def node_bytes(pid: int) -> int:
    """Return the resident memory of a node: of all its shards where it has several."""
    return sum(map(resident_bytes, node_processes(pid)))


class PeakMemory:
    """Looks at the resident memory of nodes until it is left.

    Attributes:
        most: the most that one of them had, in bytes.
        ended: processes that ended meanwhile.

    Args:
        pids: of the nodes.
    """

    def __init__(self, pids: list[int]) -> None:
        self.most = 0
        self.ended: set[int] = set()
        self._nodes = [node_processes(pid) for pid in pids]
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
            for processes in self._nodes:
                self.most = max(self.most, sum(map(self._bytes, processes)))

    def _bytes(self, pid: int) -> int:
        try:
            return resident_bytes(pid)
        except (FileNotFoundError, ProcessLookupError):
            self.ended.add(pid)
            return 0
