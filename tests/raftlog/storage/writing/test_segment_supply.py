"""The next file and the files that are to go, while the writer goes on."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import ZERO_STEP_BYTES
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.segment.segment import (
    SegmentHeader,
    decode_segment_header,
    segment_name,
)
from headrace_raftlog.storage.writing.segment_supply import SegmentSupply
from headrace_simulation.memory_files import MemoryFiles

SIZE = 3 * ZERO_STEP_BYTES + 4096
LAST = SegmentHeader(7, 4096, 5, 1, "blue")
NEXT = f"/log/{segment_name(8)}"
FILLED = ("sync", f"{NEXT}.new")


@pytest.fixture(params=[False, True], ids=["thread", "stepped"])
def supply(disk: MemoryFiles, request: pytest.FixtureRequest) -> Iterator[SegmentSupply]:
    options = LogOptions(segment_bytes=SIZE, full_retry_seconds=0.01, stepped=request.param)
    made = SegmentSupply(disk, "/log", options)
    made.start()
    yield made
    made.close()


def until(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Held:
    """Holds every call of one kind until it is opened."""

    def __init__(self, disk: MemoryFiles, call: str) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self._call = call
        disk.fault = self._hold

    def _hold(self, call: str, path: str) -> None:
        if call == self._call and not path.endswith(segment_name(1)):
            self.entered.set()
            assert self.opened.wait(30)


def test_file_that_was_prepared_is_whole_and_follows_the_last(
    disk: MemoryFiles, supply: SegmentSupply
) -> None:
    for count in (-ZERO_STEP_BYTES, 0, 1, 2, ZERO_STEP_BYTES + 1, SIZE + 1, 10 * SIZE):
        supply.prepare(LAST, count)
    until(lambda: disk.calls.count(FILLED) == 4)
    header, fd = supply.take(LAST)
    written = bytes(disk.file(NEXT).written)
    assert len(written) == SIZE
    assert not any(written[512:])
    found = decode_segment_header(NEXT, written)
    assert (found.sequence, found.size, found.salt, found.node) == (8, SIZE, 5, 1)
    assert header.sequence == 8
    assert disk.calls.count(FILLED) == 4
    following, other = supply.take(header)
    assert following.sequence == 9
    disk.close(fd)
    disk.close(other)


def test_steps_are_not_filled_twice(disk: MemoryFiles, supply: SegmentSupply) -> None:
    for count in range(1, 100):
        supply.prepare(LAST, count)
    until(lambda: FILLED in disk.calls)
    _, fd = supply.take(LAST)
    assert disk.calls.count(FILLED) == 2
    disk.close(fd)


def test_what_was_not_taken_is_dropped(disk: MemoryFiles, supply: SegmentSupply) -> None:
    supply.prepare(LAST, 1)
    supply.close()
    assert disk.names("/log") == []


def test_full_disk_is_told_to_who_takes_and_can_be_tried_again(
    disk: MemoryFiles, supply: SegmentSupply
) -> None:
    disk.capacity_bytes = SIZE - 1
    supply.prepare(LAST, SIZE)
    for _ in range(2):
        with pytest.raises(OSError, match="no space") as caught:
            supply.take(LAST)
        assert caught.value.errno == errno.ENOSPC
    assert disk.names("/log") == []
    disk.capacity_bytes = SIZE
    _, fd = supply.take(LAST)
    assert disk.names("/log") == [segment_name(8)]
    disk.close(fd)


@pytest.mark.parametrize("call", ["create", "remove"])
def test_any_other_failure_is_raised_by_a_later_call_and_stays(
    disk: MemoryFiles, call: str
) -> None:
    supply = SegmentSupply(disk, "/log", LogOptions(segment_bytes=SIZE))
    supply.start()

    def fail(made: str, path: str) -> None:
        if made == call:
            raise OSError(errno.EIO, "broken")

    disk.fault = fail
    if call == "create":
        supply.prepare(LAST, 1)
    else:
        supply.remove([1])
    until(lambda: supply.failure is not None)
    for _ in range(2):
        with pytest.raises(OSError, match="broken"):
            supply.take(LAST)
    for refused in (lambda: supply.prepare(LAST, SIZE), lambda: supply.remove([2])):
        with pytest.raises(OSError, match="broken"):
            refused()
    supply.close()


@pytest.mark.parametrize("call", ["sync", "remove"])
def test_caller_waits_for_neither_zeros_nor_removals(disk: MemoryFiles, call: str) -> None:
    disk.close(disk.create(f"/log/{segment_name(3)}"))
    supply = SegmentSupply(disk, "/log", LogOptions(segment_bytes=SIZE))
    supply.start()
    held = Held(disk, call)
    supply.remove([3])
    supply.prepare(LAST, SIZE)
    assert held.entered.wait(30)
    held.opened.set()
    supply.close()
    assert disk.names("/log") == []


def test_file_that_is_waited_for_is_not_zeroed_first(disk: MemoryFiles) -> None:
    supply = SegmentSupply(disk, "/log", LogOptions(segment_bytes=SIZE))
    held = Held(disk, "sync")
    supply.start()
    supply.prepare(LAST, 2 * ZERO_STEP_BYTES)
    assert held.entered.wait(30)  # in the first step of two
    taken: list[int] = []
    taker = threading.Thread(target=lambda: taken.append(supply.take(LAST)[1]))
    taker.start()
    until(lambda: supply._to_finish is not None)
    held.opened.set()
    taker.join(30)
    synced = [call for call, path in disk.calls if path == f"{NEXT}.new" and call != "write"]
    assert synced == ["create", "sync", "reserve", "sync"]
    assert len(disk.file(NEXT).written) == SIZE
    disk.close(taken[0])
    supply.close()


def test_batches_are_written_while_the_next_file_is_filled(disk: MemoryFiles, open_log) -> None:
    opened = open_log(disk, segment_bytes=64 << 10)
    held = Held(disk, "create")
    for index in range(1, 9):  # half of the file: from a quarter on, the next one is made
        opened.commit(1, [Entry(index, 1, 0, bytes(4096))])
    assert held.entered.wait(30)
    opened.commit(1, [Entry(9, 1, 0, bytes(4096))])
    held.opened.set()
    for more in range(10, 48):  # through the next file
        opened.commit(1, [Entry(more, 1, 0, bytes(4096))])
    assert len(disk.names("/log")) > 2


def full(call: str, times: int) -> Callable[[str, str], None]:
    """Returns a fault: the disk is full for the first calls of one kind."""
    left = [times]

    def fail(made: str, path: str) -> None:
        if made == call and left[0]:
            left[0] -= 1
            raise OSError(errno.ENOSPC, "no space", path)

    return fail


def test_what_a_full_disk_does_not_remove_goes_later(
    disk: MemoryFiles, supply: SegmentSupply
) -> None:
    for sequence in (1, 2, 3):
        disk.close(disk.create(f"/log/{segment_name(sequence)}"))
    disk.fault = full("remove", 2)
    supply.remove([1, 2, 3])
    _, fd = supply.take(LAST)
    disk.close(fd)

    def gone() -> bool:
        supply.remove([])  # stepped, it is tried when it is called
        return disk.names("/log") == [segment_name(8)]

    until(gone)
    assert supply.failure is None


def test_file_that_is_gone_already_is_no_failure(disk: MemoryFiles, supply: SegmentSupply) -> None:
    disk.close(disk.create(f"/log/{segment_name(3)}"))
    supply.remove([2, 3])
    supply.close()
    assert supply.failure is None
    assert disk.names("/log") == []


def test_full_disk_is_made_room_on_before_it_is_told(disk: MemoryFiles) -> None:
    options = LogOptions(segment_bytes=SIZE, full_retry_seconds=3600)
    supply = SegmentSupply(disk, "/log", options)
    old = f"/log/{segment_name(3)}"
    fd = disk.create(old)
    disk.write(fd, bytes(SIZE), 0)
    disk.close(fd)
    disk.capacity_bytes = SIZE
    disk.fault = full("remove", 1)
    supply.start()
    supply.remove([3])
    until(lambda: ("remove", old) in disk.calls)
    _, fd = supply.take(LAST)
    disk.close(fd)
    supply.close()
    assert disk.names("/log") == [segment_name(8)]


def test_file_that_is_waited_for_comes_before_removals(disk: MemoryFiles) -> None:
    for sequence in (2, 3, 4):
        disk.close(disk.create(f"/log/{segment_name(sequence)}"))
    supply = SegmentSupply(disk, "/log", LogOptions(segment_bytes=SIZE))
    held = Held(disk, "remove")
    supply.start()
    supply.remove([2, 3, 4])
    assert held.entered.wait(30)
    taken = threading.Thread(target=lambda: disk.close(supply.take(LAST)[1]))
    taken.start()
    until(lambda: supply._to_finish is not None)
    held.opened.set()
    taken.join(30)
    supply.close()
    made = disk.calls.index(("rename", NEXT))
    assert made < disk.calls.index(("remove", f"/log/{segment_name(4)}"))


def test_what_a_full_disk_did_not_fill_is_filled_when_there_is_room(
    disk: MemoryFiles, supply: SegmentSupply
) -> None:
    disk.capacity_bytes = ZERO_STEP_BYTES - 1
    supply.prepare(LAST, 1)
    until(lambda: ("remove", f"{NEXT}.new") in disk.calls)
    disk.capacity_bytes = 0

    def filled() -> bool:
        supply.prepare(LAST, 1)
        return disk.names("/log") == [f"{segment_name(8)}.new"]

    until(filled)
    assert supply.failure is None


@pytest.mark.parametrize("taken", [False, True], ids=["filled", "taken"])
def test_draft_that_a_full_disk_does_not_remove_is_made_anew(
    disk: MemoryFiles, supply: SegmentSupply, taken: bool
) -> None:
    left = {"write": 1, "remove": 2}

    def fail(made: str, path: str) -> None:
        if left.get(made) and path.endswith(".new"):
            left[made] -= 1
            raise OSError(errno.ENOSPC, "no space", path)

    disk.fault = fail

    def filled() -> bool:
        if not taken:
            supply.prepare(LAST, 1)
            return FILLED in disk.calls
        try:
            disk.close(supply.take(LAST)[1])
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return False
        return True

    until(filled)
    assert supply.failure is None
    assert not any(left.values())
