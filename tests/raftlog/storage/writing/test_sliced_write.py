"""Long records: written in slices, between batches of other groups."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.group.lost_entries import lost_indexes
from headrace_raftlog.storage.inspection.inspect import dump, verify
from headrace_raftlog.storage.inspection.salvage import Salvage
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.segment.segment import (
    SEGMENT_VERSION_WHOLE,
    SegmentHeader,
    decode_segment_header,
)
from headrace_raftlog.storage.writing.sliced_write import SlicedWrite
from headrace_raftlog.storage.writing.write_job import WriteJob
from headrace_simulation.memory_files import MemoryFiles

DIRECTORY = "/log"
FIRST = "/log/0000000000000001.log"
SECOND = "/log/0000000000000002.log"
OPTIONS = LogOptions(
    segment_bytes=32 << 10,
    cache_bytes=0,
    whole_bytes_max=1024,
    slice_bytes=1024,
    spare_files=0,
    stepped=True,
)
LONG = b"long" * 1250


class Stepped:
    """A log without a thread, and the tokens in their order."""

    def __init__(self, disk: MemoryFiles, options: LogOptions = OPTIONS) -> None:
        self.tokens: list[object] = []
        self.log = SharedLog.open(DIRECTORY, options, None, disk)
        self.log.writer.on_durable = self.tokens.extend

    def append(self, group: int, index: int, data: bytes, token: object, term: int = 1) -> None:
        """Append an entry and hand it over."""
        self.log.append(group, None, [Entry(index, term, 0, data)], True, token)
        self.log.flush()

    def data(self, group: int, index: int) -> bytes:
        """Read an entry."""
        return self.log.group(group).entry(index).data


def fail_write(disk: MemoryFiles, skip: int, number: int) -> None:
    """Fail a write after `skip` others."""
    left = skip

    def fault(call: str, path: str) -> None:
        nonlocal left
        if call == "write":
            left -= 1
            if left < 0:
                raise OSError(number, errno.errorcode[number], path)

    disk.fault = fault


def flip(disk: MemoryFiles, path: str, at: int) -> None:
    data = bytearray(disk.file(path).written)
    data[at] ^= 4
    disk.put(path, bytes(data))


@pytest.fixture
def stored(disk: MemoryFiles) -> MemoryFiles:
    """A closed log: group 1 has a long entry and a short one behind it, 2 and 3 a short one."""
    opened = Stepped(disk)
    opened.append(1, 1, LONG, "long")
    opened.append(2, 1, b"small", "small")
    opened.append(1, 2, b"behind", "behind")
    opened.append(3, 1, b"other", "other")
    opened.log.step()
    assert opened.tokens == ["small", "other", "long", "behind"]
    opened.log.close()
    return disk


def place(disk: MemoryFiles, what: bytes) -> int:
    """Return where bytes stand in the first segment."""
    return bytes(disk.file(FIRST).written).index(what)


def test_order_holds_within_a_group_and_others_pass(stored: MemoryFiles) -> None:
    again = Stepped(stored)
    assert (again.data(1, 1), again.data(1, 2)) == (LONG, b"behind")
    assert (again.data(2, 1), again.data(3, 1)) == (b"small", b"other")
    report = verify(DIRECTORY, stored)
    assert report.intact
    assert report.groups == 3


def test_dump_shows_what_is_reserved_and_what_is_placed(stored: MemoryFiles) -> None:
    lines = "\n".join(dump(DIRECTORY, stored))
    start = place(stored, LONG) - 40
    assert "reserved bytes 5120" in lines
    assert f"placed at {start} to {start + 40 + len(LONG)}" in lines
    assert f"    {start} entry group 1 era 0 index 1 term 1 kind 0 bytes {len(LONG)}" in lines


def test_short_record_is_one_write(disk: MemoryFiles) -> None:
    opened = Stepped(disk)
    opened.append(1, 1, b"x" * 900, "whole")
    before = disk.calls.count(("sync", FIRST))
    opened.log.step()
    assert disk.calls.count(("sync", FIRST)) - before == 1
    opened.append(1, 2, LONG, "long")
    before = disk.calls.count(("sync", FIRST))
    opened.log.step()
    syncs = disk.calls.count(("sync", FIRST)) - before
    assert syncs == 1 + 5 + 1, "one reserves, 5000 bytes are five slices, one places"


def test_token_alone_keeps_its_place_behind_a_long_record(disk: MemoryFiles) -> None:
    opened = Stepped(disk)
    opened.append(1, 1, LONG, "long")
    opened.log.append(1, HardState(0, 0, 1), [], False, "hint")
    opened.log.append(2, HardState(0, 0, 1), [], False, "other hint")
    opened.log.flush()
    opened.log.step()
    assert opened.tokens == ["other hint", "long", "hint"]


def test_power_failure_between_slices_leaves_what_passed(disk: MemoryFiles) -> None:
    opened = Stepped(disk)
    opened.append(1, 1, b"first", 0)
    opened.log.step()
    opened.append(1, 2, LONG, 1)
    opened.append(2, 1, b"small", 2)
    fail_write(disk, 4, errno.EIO)
    opened.log.step()
    assert opened.tokens == [0, 2]
    left = disk.after_power_loss(lambda path, number, offset: False, names_synced=True)
    again = Stepped(left)
    assert again.log.group(1).last_index() == 1
    assert again.data(2, 1) == b"small"
    again.append(1, 2, LONG[::-1], 3, term=2)
    again.log.step()
    again.log.close()
    third = Stepped(left)
    assert third.data(1, 2) == LONG[::-1]
    assert third.data(2, 1) == b"small"
    assert verify(DIRECTORY, left).intact


def test_full_disk_goes_on_with_the_slice_that_it_refused(disk: MemoryFiles) -> None:
    opened = Stepped(disk)
    full: list[bool] = []
    opened.log.writer.on_full = full.append
    opened.append(1, 1, LONG, 1)
    fail_write(disk, 3, errno.ENOSPC)
    opened.log.step()
    assert full == [True]
    disk.fault = lambda call, path: None
    opened.log.step()
    assert full == [True, False]
    assert opened.tokens == [1]
    opened.log.close()
    assert Stepped(disk).data(1, 1) == LONG


@pytest.mark.parametrize("sealed", [True, False])
def test_rot_in_a_slice_loses_that_entry_alone_until_it_is_put_back(
    stored: MemoryFiles, sealed: bool
) -> None:
    if not sealed:  # even the last batch proves that what it places was synced
        data = bytearray(stored.file(FIRST).written)
        seal = max(at for at in range(0, len(data), 512) if any(data[at : at + 512]))
        data[seal : seal + 512] = bytes(512)
        stored.put(FIRST, bytes(data))
    flip(stored, FIRST, place(stored, LONG) + 3000)
    assert verify(DIRECTORY, stored).lost == {1: [1]}
    again = Stepped(stored)
    view = again.log.group(1)
    assert lost_indexes(view) == [1]
    assert (again.data(1, 2), again.data(2, 1)) == (b"behind", b"small")
    assert again.log.mend(1, Entry(1, 1, 0, LONG))
    again.log.flush()
    again.log.step()
    again.log.close()
    third = Stepped(stored)
    assert third.data(1, 1) == LONG
    assert lost_indexes(third.log.group(1)) == []


def test_rot_of_a_placed_header_quarantines_its_group_alone(stored: MemoryFiles) -> None:
    flip(stored, FIRST, place(stored, LONG) - 20)
    again = Stepped(stored)
    assert list(again.log.quarantined) == [1]
    assert again.data(2, 1) == b"small"


@pytest.mark.parametrize("at", range(40))
def test_rot_of_the_record_that_places_concerns_its_group_alone(
    stored: MemoryFiles, at: int
) -> None:
    behind = place(stored, b"behind") - 40
    flip(stored, FIRST, behind - 40 + at)
    again = Stepped(stored)
    assert list(again.log.quarantined) in ([], [1])
    if not again.log.quarantined:
        assert again.data(1, 1) == LONG
    assert (again.data(2, 1), again.data(3, 1)) == (b"small", b"other")


@pytest.mark.parametrize("at", range(120))
def test_rot_of_the_batch_that_reserves_loses_nothing(stored: MemoryFiles, at: int) -> None:
    flip(stored, FIRST, 1024 + at)
    again = Stepped(stored)
    assert not again.log.quarantined
    assert (again.data(1, 1), again.data(1, 2)) == (LONG, b"behind")
    assert (again.data(2, 1), again.data(3, 1)) == (b"small", b"other")


@pytest.mark.parametrize("at", range(40))
def test_rot_of_what_reserves_concerns_no_group_of_its_batch(disk: MemoryFiles, at: int) -> None:
    opened = Stepped(disk)
    opened.append(2, 1, b"before", "before")
    opened.append(1, 1, LONG, "long")
    opened.append(2, 2, b"small", "small")
    opened.log.step()
    opened.log.close()
    lines = list(dump(DIRECTORY, disk))
    (line,) = [number for number, each in enumerate(lines) if "reserved bytes" in each]
    assert "entry group 2" in lines[line + 1]
    flip(disk, FIRST, int(lines[line].split()[0]) + at)
    again = Stepped(disk)
    assert not again.log.quarantined
    assert (again.data(1, 1), again.data(2, 2)) == (LONG, b"small")


def test_salvage_reads_long_records_and_passes_over_a_damaged_one(stored: MemoryFiles) -> None:
    salvage = Salvage(stored, DIRECTORY)
    salvage.run()
    assert salvage.damaged == []
    assert salvage.group(1).entry(1).data == LONG
    flip(stored, FIRST, place(stored, LONG) + 3000)
    salvage = Salvage(stored, DIRECTORY)
    salvage.run()
    assert len(salvage.damaged) == 1
    with pytest.raises(CorruptLogError):
        salvage.group(1).entry(1)
    assert salvage.group(1).entry(2).data == b"behind"
    assert salvage.group(2).entry(1).data == b"small"


def test_collection_moves_a_long_record_out_of_an_old_file(disk: MemoryFiles) -> None:
    opened = Stepped(disk)
    opened.append(1, 1, LONG, "long")
    opened.log.step()
    for index in range(1, 90):
        opened.append(2, 1, b"x" * 900, index, term=index)  # replaces the one before
        opened.log.step()
    for _ in range(200):
        opened.log.collect(1 << 20)
        opened.log.flush()
        opened.log.step()
    assert FIRST.rsplit("/", 1)[1] not in disk.names(DIRECTORY)
    assert opened.data(1, 1) == LONG
    opened.log.close()
    assert Stepped(disk).data(1, 1) == LONG


def test_segment_of_an_earlier_release_gets_no_slices(disk: MemoryFiles) -> None:
    opened = Stepped(disk)
    opened.append(1, 1, b"old", 1)
    opened.log.step()
    opened.log.close()
    data = bytes(disk.file(FIRST).written)
    known = decode_segment_header(FIRST, data)
    old = SegmentHeader(1, known.size, known.salt, 0, "", SEGMENT_VERSION_WHOLE).encode()
    disk.put(FIRST, old + data[512:])
    again = Stepped(disk)
    for index in range(2, 10):
        again.append(1, index, LONG, index)
        again.append(2, index - 1, b"small", -index)
        again.log.step()
    assert again.tokens[:2] == [2, -2], "in one batch, in order"
    assert again.tokens[-2:] == [-9, 9], "the next file is of this release"
    again.log.close()
    lines = list(dump(DIRECTORY, disk))
    second = next(at for at, line in enumerate(lines) if line.startswith(SECOND))
    assert not any("reserved" in line for line in lines[:second])
    assert any("reserved" in line for line in lines[second:])
    third = Stepped(disk)
    assert third.data(1, 1) == b"old"
    assert all(third.data(1, index) == LONG for index in range(2, 10))


def test_record_that_fits_no_segment_in_slices_is_written_whole(disk: MemoryFiles) -> None:
    options = replace(OPTIONS, segment_bytes=4096, slice_bytes=512, whole_bytes_max=512)
    opened = Stepped(disk, options)
    opened.append(1, 1, b"y" * 1300, 1)
    opened.append(2, 1, b"small", 2)
    opened.log.step()
    assert opened.tokens == [1, 2]
    opened.log.close()
    assert Stepped(disk, options).data(1, 1) == b"y" * 1300


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=8), st.integers(1, 200))
def test_slices_are_the_records_bytes(pieces: list[bytes], count: int) -> None:
    job = WriteJob(None, None)
    for piece in pieces:
        job.add(piece)
    sliced = SlicedWrite(job, 0)
    out = b""
    while not sliced.is_done():
        piece = b"".join(sliced.slice(count))
        assert 0 < len(piece) <= count + count // 4
        out += piece
        sliced.advance(len(piece))
    assert out == b"".join(pieces)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"whole_bytes_max": 511}, "whole_bytes_max is 511"),
        ({"slice_bytes": 0}, "slice_bytes is 0"),
        ({"slice_bytes": 1000}, "multiples of 512"),
    ],
)
def test_bounds_of_slices_are_checked(change: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        LogOptions(**change)  # type: ignore[arg-type]


def test_what_dies_with_a_job_waits_for_the_long_one_that_it_passed(disk: MemoryFiles) -> None:
    opened = Stepped(disk)
    opened.append(1, 1, b"x" * 700, 0)
    opened.log.step()
    ledger = opened.log.group(1).ledger
    assert opened.log.backlog_bytes == 0
    before = ledger.live
    opened.log.append(1, None, [Entry(1, 2, 0, LONG)], True, 1)  # replaces the short one
    opened.append(2, 1, b"small", 2)
    fail_write(disk, 3, errno.ENOSPC)
    opened.log.step()
    assert opened.tokens == [0, 2]
    assert opened.log.backlog_bytes > 0
    assert ledger.live == before + 45, "needed while the long one is not durable"
    disk.fault = lambda call, path: None
    opened.log.step()
    assert opened.log.backlog_bytes == 0
    opened.log.flush()
    opened.log.step()
    assert opened.log.backlog_bytes == 0
    assert ledger.live == len(LONG) + 40 + 45
