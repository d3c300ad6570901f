"""Collection of files in which long records stand."""

from __future__ import annotations

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_simulation.memory_files import MemoryFiles

LONG = 3 << 20


class CountedFiles(MemoryFiles):
    """A disk that notes how much each read asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    def read(self, fd: int, count: int, offset: int) -> bytes:
        self.reads.append(count)
        return super().read(fd, count, offset)


def test_long_entry_that_is_read_no_more_is_not_read_for_collection() -> None:
    disk = CountedFiles()
    options = LogOptions(segment_bytes=8 << 20, cache_bytes=0, spare_files=0, stepped=True)
    log = SharedLog.open("/log", options, files=disk)

    def append(group: int, index: int, data: bytes, term: int) -> None:
        log.append(group, None, [Entry(index, term, 0, data)], True, None)
        log.flush()
        log.step()
        log.flush()

    append(1, 1, bytes(LONG), 1)
    for term in range(1, 60):
        append(2, 1, bytes(200 << 10), term)  # replaces the one before
    log.entry_dead(1, 1)
    disk.reads.clear()
    asked: set[int] = set()
    for _ in range(40):
        asked.update(log.collect(1 << 30))
        log.flush()
        log.step()
        log.flush()
    assert 1 in asked
    assert disk.reads
    assert max(disk.reads) < LONG
    log.close()
