"""Pieces of segments that threads read beside the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import READ_PIECES_BYTES_MAX, READ_PIECES_MAX, READ_THREADS
from headrace_raftlog.storage.disk_reads import DiskReads, Place
from headrace_raftlog.storage.files import Files
from headrace_raftlog.storage.memory_files import MemoryFiles

WAIT_SECONDS = 30.0


class Loop:
    """An event loop that a test turns by hand."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], object]] = SimpleQueue()

    def call_soon(self, call: Callable[[], object]) -> None:
        self.calls.put(call)

    def turn(self) -> None:
        """Wait for the next call and do it."""
        self.calls.get(timeout=WAIT_SECONDS)()


class SlowFiles(MemoryFiles):
    """A disk whose reads wait until they are let go, and count how many wait."""

    def __init__(self) -> None:
        super().__init__()
        self.reading: SimpleQueue[str] = SimpleQueue()
        self.go = threading.Semaphore(0)
        self.error: OSError | None = None

    def read(self, fd: int, count: int, offset: int) -> bytes:
        self.reading.put(threading.current_thread().name)
        assert self.go.acquire(timeout=WAIT_SECONDS)
        if self.error is not None:
            raise self.error
        return super().read(fd, count, offset)


class Case:
    """Reads of a slow disk with one segment, and what was called back."""

    def __init__(self, size: int = 4096) -> None:
        self.disk = SlowFiles()
        self.disk.put("/log/1", bytes(at % 251 for at in range(size)))
        self.loop = Loop()
        self.reads = DiskReads(self.disk)
        self.reads.start(self.loop.call_soon)
        self.fd = self.disk.open("/log/1")
        self.done: list[int] = []

    def fetch(self, offset: int, size: int = 10, count_min: int = 10) -> bool:
        place = Place("/log/1", 1, offset, size)
        return self.reads.fetch(place, self.fd, count_min, lambda: self.done.append(offset))

    def end(self) -> None:
        """End the threads, whatever they wait for."""
        self.reads.close()
        for _ in range(100):
            self.disk.go.release()
        for thread in self.reads._threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()


@pytest.fixture
def case() -> Iterator[Case]:
    case = Case()
    yield case
    case.end()


def test_bytes_that_the_system_does_not_have_are_read_by_a_thread(case: Case) -> None:
    assert not case.fetch(7)
    assert case.disk.reading.get(timeout=WAIT_SECONDS) != threading.current_thread().name
    assert not case.reads.holds(1, 7, 10)
    case.disk.go.release()
    case.loop.turn()
    assert case.done == [7]
    assert case.reads.find(1, 9, 3) == bytes([9, 10, 11])
    assert case.reads.find(1, 7, 11) is None
    assert case.reads.find(2, 7, 3) is None


def test_a_piece_that_is_under_way_is_read_once_and_told_to_all(case: Case) -> None:
    place = Place("/log/1", 1, 0, 10)
    told: list[str] = []
    for name in ("a", "b"):
        assert not case.reads.fetch(place, case.fd, 10, partial(told.append, name))
    case.disk.go.release()
    case.loop.turn()
    assert told == ["a", "b"]
    assert case.reads.fetched == 1


def test_no_more_threads_read_than_allowed(case: Case) -> None:
    for offset in range(0, 100 * (READ_THREADS + 3), 100):
        assert not case.fetch(offset)
    names = {case.disk.reading.get(timeout=WAIT_SECONDS) for _ in range(READ_THREADS)}
    assert len(names) == READ_THREADS
    assert case.disk.reading.empty()
    for _ in range(READ_THREADS + 3):
        case.disk.go.release()
    while len(case.done) < READ_THREADS + 3:
        case.loop.turn()


def test_error_of_a_read_is_raised_where_the_bytes_are_used_and_once(case: Case) -> None:
    case.disk.error = OSError(5, "broken")
    assert not case.fetch(7)
    case.disk.go.release()
    case.loop.turn()
    assert case.done == [7]
    assert case.reads.holds(1, 7, 10)
    with pytest.raises(OSError, match="broken"):
        case.reads.find(1, 7, 10)
    assert not case.reads.holds(1, 7, 10)
    case.disk.error = None
    assert not case.fetch(7)


def test_pieces_stay_within_their_bounds() -> None:
    case = Case(READ_PIECES_MAX * 20)
    for offset in range(0, READ_PIECES_MAX * 20, 10):
        assert not case.fetch(offset)
        case.disk.go.release()
        while case.done[-1:] != [offset]:
            case.loop.turn()
        for _ in range(2):
            case.loop.turn()
            case.loop.call_soon(case.reads._turn)
    assert sum(case.reads.holds(1, at, 10) for at in range(0, READ_PIECES_MAX * 20, 10)) <= (
        READ_PIECES_MAX
    )
    assert case.reads.held_bytes <= READ_PIECES_BYTES_MAX
    case.end()


def test_piece_is_there_for_whoever_waited_for_it_whatever_comes_beside_it(case: Case) -> None:
    assert not case.fetch(0)
    case.disk.go.release()
    case.loop.turn()
    for number in range(READ_PIECES_MAX + 5):
        case.reads._keep((2, number), case.reads._pieces[1, 0])
    assert case.reads.holds(1, 0, 10)


def test_pieces_of_a_segment_that_goes_are_dropped(case: Case) -> None:
    assert not case.fetch(0)
    case.disk.go.release()
    case.loop.turn()
    case.reads.forget(1)
    assert not case.reads.holds(1, 0, 10)
    assert case.reads.held_bytes == 0


def test_nobody_is_called_back_after_the_end(case: Case) -> None:
    assert not case.fetch(0)
    case.disk.reading.get(timeout=WAIT_SECONDS)
    case.reads.close()
    case.disk.go.release()
    for thread in case.reads._threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    assert case.loop.calls.empty()
    assert case.done == []


def test_what_the_system_has_in_its_cache_is_there_at_once(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"x" * 5000)
    files = Files()
    fd = files.open(str(path))
    if files.read_cached(fd, 100, 0) is None:
        pytest.skip("this file system cannot tell what is in memory")
    reads = DiskReads(files)
    reads.start(Loop().call_soon)
    assert reads.fetch(Place(str(path), 1, 4000, 4096), fd, 100, lambda: None)
    assert reads.find(1, 4000, 100) == b"x" * 100
    assert reads.held_bytes == 1000
    files.close(fd)


def test_entries_that_left_memory_are_read_beside_the_loop(open_log, run) -> None:
    disk = SlowFiles()
    for _ in range(100):
        disk.go.release()  # what opening reads
    opened = open_log(disk, cache_bytes=0)
    opened.commit(1, run(1, 1, *(bytes([at]) * 100 for at in range(30))))
    assert opened.log.backlog_bytes == 0  # what is durable may leave memory
    view = opened.log.group(1)
    loop, told = Loop(), []
    while disk.go.acquire(blocking=False):
        pass
    opened.log.recovery.reader.reads.start(loop.call_soon)
    view.on_read = lambda: told.append("read")
    assert view.at_hand(3, 31, 1 << 20) == 3
    assert not view.prepare(20, lambda: told.append("prepared"))
    assert view.prepare(99, lambda: told.append("never"))  # `entry` says that there is none
    for _ in range(2):
        disk.go.release()
    while len(told) < 2:
        loop.turn()
    assert sorted(told) == ["prepared", "read"]
    assert view.at_hand(3, 31, 1 << 20) == 4
    assert view.entries(3, 4, 1 << 20) == [Entry(3, 1, 0, bytes([2]) * 100)]
    assert view.entry(20).data == bytes([19]) * 100
    for _ in range(100):
        disk.go.release()


def test_entries_that_follow_each_other_in_an_old_file_come_together(open_log, run) -> None:
    disk = MemoryFiles()
    opened = open_log(disk, cache_bytes=0)
    for first in range(1, 61, 10):
        opened.commit(1, run(first, 1, *(bytes([at]) * 200 for at in range(10))))
    assert opened.log.backlog_bytes == 0
    view = opened.log.group(1)
    assert view.ledger.newest > 1
    loop, told = Loop(), []
    opened.log.recovery.reader.reads.start(loop.call_soon)
    view.on_read = lambda: told.append("read")
    index, steps = 1, 0
    while index < 31:
        found = view.at_hand(index, 31, 1 << 20)
        if found > index:
            assert [one.index for one in view.entries(index, found, 1 << 20)] == list(
                range(index, found)
            )
            index = found
            continue
        told.clear()
        while not told:
            loop.turn()
        steps += 1
    assert steps <= 3
