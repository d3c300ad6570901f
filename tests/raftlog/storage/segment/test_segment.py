"""Segment files: header, creation in steps, bounded reader."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest

from headrace_raftlog.model.errors import CorruptLogError, UnknownVersionError
from headrace_raftlog.model.limits import OPEN_SEGMENTS_MAX, READ_AHEAD_BYTES
from headrace_raftlog.storage.segment.segment import (
    SEGMENT_VERSION,
    SEGMENT_VERSION_WHOLE,
    SegmentDraft,
    SegmentHeader,
    SegmentReader,
    decode_segment_header,
    segment_name,
    segment_sequence,
)
from headrace_simulation.memory_files import MemoryFiles


def a_header(sequence: int = 3) -> SegmentHeader:
    return SegmentHeader(sequence, 4096, 0xFFFFFFF1, 1023, "zürich")


def test_names_sort_as_sequences_do() -> None:
    assert segment_name(1) == "0000000000000001.log"
    assert segment_name(9) < segment_name(10) < segment_name(10**15)
    assert segment_sequence(segment_name(123)) == 123
    for other in ("lock", "node.json", "1.log", segment_name(1) + ".new", "x" + segment_name(1)):
        assert segment_sequence(other) == 0


def test_header_is_read_as_written() -> None:
    sector = a_header().encode()
    assert len(sector) == 512
    header = decode_segment_header("f", sector + b"more")
    assert (header.sequence, header.size, header.salt) == (3, 4096, 0xFFFFFFF1)
    assert (header.node, header.cluster) == (1023, "zürich")


def test_header_of_an_earlier_release_is_read_and_one_of_a_later_refused() -> None:
    fields = 3, 4096, 0xFFFFFFF1, 1023, "zürich"
    old = SegmentHeader(*fields, SEGMENT_VERSION_WHOLE)
    assert decode_segment_header("f", old.encode()).version == SEGMENT_VERSION_WHOLE
    assert decode_segment_header("f", a_header().encode()).version == SEGMENT_VERSION
    later = SegmentHeader(*fields, SEGMENT_VERSION + 1)
    with pytest.raises(UnknownVersionError, match=r"f has version 4.*a later one has written it"):
        decode_segment_header("f", later.encode())


def test_every_flipped_byte_of_a_header_is_noticed() -> None:
    for at in range(512):
        sector = bytearray(a_header().encode())
        sector[at] ^= 0x40
        with pytest.raises(CorruptLogError, match="f: damaged record at byte 0"):
            decode_segment_header("f", bytes(sector))


def test_short_file_is_damaged() -> None:
    with pytest.raises(CorruptLogError, match="shorter than a segment header"):
        decode_segment_header("f", a_header().encode()[:511])


def test_too_long_a_cluster_name_is_refused() -> None:
    with pytest.raises(ValueError, match="255 bytes"):
        SegmentHeader(1, 4096, 1, 1, "x" * 256).encode()


def test_draft_gets_its_name_only_when_whole_and_synced(disk: MemoryFiles) -> None:
    draft = SegmentDraft(disk, "/d", a_header())
    path = "/d/0000000000000003.log"
    draft.step(1000)
    assert draft.filled == 1000
    assert disk.names("/d") == ["0000000000000003.log.new"]
    fd = draft.finish()
    assert disk.file(path).written == a_header().encode().ljust(4096, b"\0")
    assert disk.calls[-3:] == [("sync", path + ".new"), ("rename", path), ("sync_directory", "/d")]
    lost = disk.after_power_loss(lambda path, number, offset: False, names_synced=True)
    assert lost.file(path).written == disk.file(path).written
    disk.close(fd)


def test_draft_takes_short_writes(disk: MemoryFiles) -> None:
    disk.short_write_bytes = 100
    SegmentDraft(disk, "/d", a_header()).finish()
    assert disk.file("/d/0000000000000003.log").written == a_header().encode().ljust(4096, b"\0")


def test_draft_without_space_leaves_nothing_and_can_start_anew(disk: MemoryFiles) -> None:
    disk.capacity_bytes = 3000
    draft = SegmentDraft(disk, "/d", a_header())
    with pytest.raises(OSError, match="no space") as caught:
        draft.finish()
    assert caught.value.errno == errno.ENOSPC
    assert disk.names("/d") == []
    disk.capacity_bytes = 4096
    draft.finish()
    assert disk.names("/d") == ["0000000000000003.log"]


def test_rest_of_a_draft_that_batches_wait_for_is_reserved(disk: MemoryFiles) -> None:
    path = "/d/0000000000000003.log"
    for filled in (0, 100, 1000):
        draft = SegmentDraft(disk, "/d", a_header())
        if filled:
            draft.step(filled)
        disk.calls.clear()
        disk.close(draft.finish(hurried=True))
        made = [call for call, _ in disk.calls if call != "write"]
        assert made[-4:] == ["reserve", "sync", "rename", "sync_directory"]
        assert disk.file(path).written == a_header().encode().ljust(4096, b"\0")
        lost = disk.after_power_loss(lambda path, number, offset: False, names_synced=True)
        assert lost.file(path).written == disk.file(path).written
        disk.remove(path)


def test_little_that_is_missing_is_zeroed_though_batches_wait(disk: MemoryFiles) -> None:
    draft = SegmentDraft(disk, "/d", a_header())
    draft.step(4096 - 4096 // 16)
    disk.close(draft.finish(hurried=True))
    assert "reserve" not in [call for call, _ in disk.calls]


class WithoutReserving(MemoryFiles):
    """A file system that cannot set space aside."""

    def reserve(self, fd: int, offset: int, count: int) -> bool:
        del fd, offset, count
        return False


def test_draft_is_zeroed_where_nothing_can_be_reserved() -> None:
    disk = WithoutReserving()
    disk.make_directory("/d")
    disk.close(SegmentDraft(disk, "/d", a_header()).finish(hurried=True))
    assert disk.file("/d/0000000000000003.log").written == a_header().encode().ljust(4096, b"\0")


def test_disk_without_room_for_what_is_reserved_is_full(disk: MemoryFiles) -> None:
    disk.capacity_bytes = 3000
    draft = SegmentDraft(disk, "/d", a_header())
    with pytest.raises(OSError, match="no space") as caught:
        draft.finish(hurried=True)
    assert caught.value.errno == errno.ENOSPC
    assert disk.names("/d") == []


def test_reader_keeps_a_bounded_number_of_files_open(disk: MemoryFiles) -> None:
    reader = SegmentReader(disk, "/d")
    count = OPEN_SEGMENTS_MAX + 10
    for sequence in range(1, count + 1):
        disk.put(reader.path(sequence), b"%04d" % sequence)
    for sequence in [*range(1, count + 1), 1, count]:
        assert reader.read(sequence, 0, 4) == b"%04d" % sequence
    assert len(disk._open) == OPEN_SEGMENTS_MAX
    reader.close()
    assert disk._open == {}


def test_reads_that_follow_each_other_are_announced_ahead(disk: MemoryFiles) -> None:
    reader = SegmentReader(disk, "/d")
    disk.put(reader.path(1), bytes(100))
    step = READ_AHEAD_BYTES // 8
    for at in range(24):
        reader.read(1, 512 + at * step, step)
    assert len(disk.expected) == 5
    for (start, count), (following, _) in pairwise(disk.expected):
        assert start + count == following
    assert sum(disk.expected[-1]) >= 512 + 24 * step + READ_AHEAD_BYTES // 2


def test_reads_here_and_there_are_not_announced(disk: MemoryFiles) -> None:
    reader = SegmentReader(disk, "/d")
    disk.put(reader.path(1), bytes(100))
    for at in (20, 3, 15, 9, 40):
        reader.read(1, at << 20, 1000)
    assert disk.expected == []
