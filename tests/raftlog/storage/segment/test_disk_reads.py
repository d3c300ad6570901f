"""Pieces of segments that threads read beside the event loop."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import (
    READ_CACHED_BYTES_MAX,
    READ_PIECES_BYTES_MAX,
    READ_PIECES_MAX,
    READ_THREADS,
)
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.segment.disk_reads import DiskReads, Place
from headrace_raftlog.storage.segment.piece_cache import Piece
from headrace_simulation.memory_files import MemoryFiles

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
    """A disk whose reads wait until they are released, and count how many wait."""

    def __init__(self) -> None:
        super().__init__()
        self.reading: SimpleQueue[str] = SimpleQueue()
        self.go = threading.Semaphore(0)
        self.error: BaseException | None = None

    def read(self, fd: int, count: int, offset: int) -> bytes:
        self.reading.put(threading.current_thread().name)
        assert self.go.acquire(timeout=WAIT_SECONDS)
        if self.error is not None:
            raise self.error
        return super().read(fd, count, offset)


class Case:
    """Reads of a slow disk with one segment, and their callbacks."""

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


def test_read_for_which_there_is_no_memory_is_an_error_and_others_go_on(case: Case) -> None:
    case.disk.error = MemoryError()
    assert not case.fetch(7)
    case.disk.go.release()
    case.loop.turn()
    with pytest.raises(OSError, match="no memory to read 10 bytes"):
        case.reads.find(1, 7, 10)
    case.disk.error = None
    assert not case.fetch(30)
    case.disk.go.release()
    while case.done != [7, 30]:
        case.loop.turn()
    assert case.reads.holds(1, 30, 10)


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
        case.reads._keep(2, Piece(number, b"x", None))
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


def test_a_long_piece_is_read_by_a_thread_though_the_system_has_it(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"x" * (READ_CACHED_BYTES_MAX + 1))
    files = Files()
    fd = files.open(str(path))
    loop = Loop()
    reads = DiskReads(files)
    reads.start(loop.call_soon)
    told: list[str] = []
    place = Place(str(path), 1, 0, READ_CACHED_BYTES_MAX + 1)
    assert not reads.fetch(place, fd, place.size, partial(told.append, "read"))
    loop.turn()
    assert told == ["read"]
    assert reads.holds(1, 0, place.size)
    reads.close()
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
    view.on_read = lambda _group: told.append("read")
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
    view.on_read = lambda _group: told.append("read")
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


def test_loop_that_closes_between_two_steps_of_a_reader_is_called_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors: list[object] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    disk = SlowFiles()
    disk.put("/log/1", bytes(4096))
    reads = DiskReads(disk)
    called = threading.Event()

    def closed(call: Callable[[], object]) -> None:
        reads.close()  # after the thread has looked whether it may call
        called.set()
        raise RuntimeError("Event loop is closed")

    reads.start(closed)
    place = Place("/log/1", 1, 0, 64)
    fd = disk.open("/log/1")
    assert not reads.fetch(place, fd, 64, lambda: None)
    disk.go.release()
    assert called.wait(WAIT_SECONDS)
    for thread in reads._threads:
        thread.join(WAIT_SECONDS)
    assert errors == []


def test_pieces_that_meet_are_joined(case: Case) -> None:
    for offset in (0, 10, 25):
        assert not case.fetch(offset)
        case.disk.go.release()
    while len(case.done) < 3:
        case.loop.turn()
    assert case.reads.join(1, 3, 14) == bytes(range(3, 17))
    assert case.reads.join(1, 3, 18) is None  # nothing holds byte 20
    assert case.reads.join(2, 3, 4) is None


def test_owners_take_turns(case: Case) -> None:
    places = [Place("/log/1", 1, 100 * at, 10, 7) for at in range(READ_THREADS + 3)]
    places.append(Place("/log/1", 1, 2000, 10, 8))
    done: list[int] = []
    for place in places:
        assert not case.reads.fetch(place, case.fd, 10, partial(done.append, place.offset))
    for _ in places:
        case.disk.go.release()
    while len(done) < len(places):
        case.loop.turn()
    assert done.index(2000) <= READ_THREADS + 1


def test_what_nobody_waits_for_any_more_is_not_read(case: Case) -> None:
    for offset in range(0, 100 * (READ_THREADS + 2), 100):
        assert not case.fetch(offset)
    told: list[str] = []
    first, late = partial(told.append, "first"), partial(told.append, "late")
    assert not case.reads.fetch(Place("/log/1", 1, 0, 10), case.fd, 10, first)
    assert not case.reads.fetch(Place("/log/1", 1, 3000, 10), case.fd, 10, late)
    for done in (first, late, late):
        case.reads.give_up(done)
    for _ in range(READ_THREADS + 3):
        case.disk.go.release()
    while len(case.done) < READ_THREADS + 2:
        case.loop.turn()
    assert told == []
    assert case.reads.fetched == READ_THREADS + 2
    assert not case.fetch(3000)  # it may be asked for again


def test_reads_that_the_loop_waits_for_are_counted(open_log, run) -> None:
    opened = open_log(MemoryFiles(), cache_bytes=0)
    opened.commit(1, run(1, 1, *(bytes([at]) * 100 for at in range(30))))
    assert opened.log.backlog_bytes == 0
    view, reader = opened.log.group(1), opened.log.recovery.reader
    assert view.entry(1).data == bytes(100)
    assert reader.blocking == 0  # nothing else runs yet
    loop, told = Loop(), []
    reader.reads.start(loop.call_soon)
    assert view.entry_at_hand(20, lambda: told.append(20)) is None
    while not told:
        loop.turn()
    found = view.entry_at_hand(20, lambda: told.append(20))
    assert found == Entry(20, 1, 0, bytes([19]) * 100)
    assert reader.blocking == 0
    assert view.entry(10).data == bytes([9]) * 100
    assert reader.blocking == 1


def test_a_run_of_entries_that_pieces_hold_together_does_not_wait(open_log, run) -> None:
    opened = open_log(MemoryFiles(), cache_bytes=0)
    opened.commit(1, run(1, 1, *(bytes([at]) * 100 for at in range(4))))
    assert opened.log.backlog_bytes == 0
    view, reader = opened.log.group(1), opened.log.recovery.reader
    loop, told = Loop(), []
    reader.reads.start(loop.call_soon)
    for index in (2, 1):  # each a piece of its own: it is the file that is written
        assert not view.prepare(index, lambda: told.append("read"))
    while len(told) < 2:
        loop.turn()
    assert view.at_hand(1, 3, 1 << 20) == 3
    assert [entry.index for entry in view.entries(1, 3, 1 << 20)] == [1, 2]
    assert reader.blocking == 0


def test_error_of_a_callback_keeps_no_other_waiting(case: Case) -> None:
    place = Place("/log/1", 1, 0, 10)
    called: list[str] = []

    def fails() -> None:
        called.append("fails")
        raise KeyError("a bug")

    for done in (fails, partial(called.append, "after")):
        assert not case.reads.fetch(place, case.fd, 10, done)
    for offset in range(100, 100 * (READ_THREADS + 2), 100):
        assert not case.fetch(offset)
    for _ in range(READ_THREADS + 3):
        case.disk.go.release()
    failures = 0
    while len(case.done) < READ_THREADS + 1 or len(called) < 2:
        try:
            case.loop.turn()
        except KeyError:
            failures += 1
    assert failures == 1
    assert called == ["fails", "after"]


class BadSector(MemoryFiles):
    """A disk that has lost one byte."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def read(self, fd: int, count: int, offset: int) -> bytes:
        if offset <= self.at < offset + count:
            raise OSError(errno.EIO, "bad sector")
        return super().read(fd, count, offset)


@pytest.mark.parametrize(("at", "is_lost"), [(50, False), (10, False), (9, True)])
def test_bad_sector_behind_a_record_does_not_lose_the_record(at: int, is_lost: bool) -> None:
    disk = BadSector(at)
    disk.put("/log/1", bytes(range(100)))
    loop = Loop()
    reads = DiskReads(disk)
    reads.start(loop.call_soon)
    done: list[bool] = []
    place = Place("/log/1", 1, 0, 100)
    assert not reads.fetch(place, disk.open("/log/1"), 10, lambda: done.append(True))
    loop.turn()
    assert done == [True]
    if is_lost:
        with pytest.raises(OSError, match="bad sector"):
            reads.find(1, 0, 10)
    else:
        assert reads.find(1, 0, 10) == bytes(range(10))
    reads.close()
    for thread in reads._threads:
        thread.join(WAIT_SECONDS)


class CachedFiles(MemoryFiles):
    """A disk of which the system has everything in its cache."""

    def read_cached(self, fd: int, count: int, offset: int) -> bytes | None:
        return self.read(fd, count, offset)


def test_pieces_of_the_systems_cache_that_nobody_uses_are_dropped() -> None:
    disk, loop = CachedFiles(), Loop()
    count = 2 * READ_PIECES_MAX
    disk.put("/log/1", bytes(10 * count))
    reads = DiskReads(disk)
    reads.start(loop.call_soon)
    fd = disk.open("/log/1")
    for at in range(count):
        assert reads.fetch(Place("/log/1", 1, 10 * at, 10), fd, 10, lambda: None)
    assert reads.held_bytes == 10 * count  # whoever asked may want all of them in this turn
    loop.turn()
    loop.turn()
    assert reads.held_bytes == 10 * READ_PIECES_MAX
    assert loop.calls.empty(), "nothing is left to age"
    reads.close()
