"""Damage to single records: it concerns them alone, and what a peer holds can be put back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google_crc32c import extend

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.storage.disk.memory_files import SECTOR_BYTES, MemoryFiles
from headrace_raftlog.storage.group.lost_entries import lost_indexes
from headrace_raftlog.storage.recovery.recovery import Recovery
from headrace_raftlog.storage.segment import record
from headrace_raftlog.storage.segment.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentReader,
    decode_segment_header,
)

Run = Callable[..., list[Entry]]
Contents = dict[int, tuple[HardState, list[Entry]]]
FIRST = "/log/0000000000000001.log"


def with_file(disk: MemoryFiles, path: str, data: bytes) -> MemoryFiles:
    """A copy of a disk with one file's bytes replaced."""
    copy = disk.after_power_loss(lambda *_: True, names_synced=False)
    copy.put(path, data)
    return copy


def recovered(disk: MemoryFiles) -> Recovery:
    recovery = Recovery(disk, "/log", SegmentReader(disk, "/log"))
    recovery.run()
    return recovery


def whole(recovery: Recovery) -> Contents:
    """The entries and hard states of the groups that are served."""
    out = {}
    for group, view in recovery.groups.items():
        last = view.last_index()
        out[group] = (view.hard_state, view.entries(1, last + 1, 1 << 40) if last else [])
    return out


def intact(recovery: Recovery) -> Contents:
    """The same, of lost entries nothing; asking for one of them fails."""
    out = {}
    for group, view in recovery.groups.items():
        lost = lost_indexes(view)
        for index in lost:
            with pytest.raises(CorruptLogError):
                view.entry(index)
        held = [i for i in range(1, view.last_index() + 1) if i not in lost]
        out[group] = (view.hard_state, [view.entry(index) for index in held])
    return out


@pytest.fixture
def one_file(disk: MemoryFiles, open_log, run: Run) -> tuple[MemoryFiles, Contents, int]:
    """A log of one segment, its content, and where its batches end."""
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a" * 50, b"b" * 400), HardState(1, 1, 0))
    opened.append(3, run(1, 1, b"e" * 30), HardState(1, 2, 0))
    opened.commit(2, run(1, 1, b"c" * 10))
    opened.commit(1, run(3, 1, b"d" * 100))
    end = opened.log._writer.position.offset
    before = opened.contents()
    opened.log.close()
    return disk, before, end


def without_checks(data: bytes) -> bytes:
    """Return a segment as releases wrote it whose headers had no check of their own."""
    salt = decode_segment_header(FIRST, data).salt
    out = bytearray(data)
    position = SEGMENT_HEADER_BYTES
    while number := record.head_number_at(data, position, salt):
        batch = record.read_batch(data, position, number, salt)
        at = batch.start
        for _ in range(len(batch.offsets) + 2):  # head and trailer too
            end = at + record.HEADER_BYTES + record.record_length_at(data, at)
            out[at + 11] = 0
            out[at : at + 4] = extend(salt, bytes(out[at + 4 : end])).to_bytes(4, "little")
            at = end
        position = batch.end
    return bytes(out)


@pytest.mark.parametrize("checked", [True, False])
def test_every_flipped_byte_of_acknowledged_data_is_noticed_and_never_served(
    one_file: tuple[MemoryFiles, Contents, int], checked: bool
) -> None:
    disk, before, end = one_file
    written = bytes(disk.file(FIRST).written)
    if not checked:
        written = without_checks(written)
        assert intact(recovered(with_file(disk, FIRST, written))) == before
    quarantined: set[int] = set()
    lost: set[tuple[int, int]] = set()
    for at in range(end):
        data = bytearray(written)
        data[at] ^= 1 << (at % 8)
        trial = with_file(disk, FIRST, bytes(data))
        if at < SEGMENT_HEADER_BYTES:
            with pytest.raises(CorruptLogError) as caught:
                recovered(trial)
            assert (caught.value.path, caught.value.offset) == (FIRST, 0)
            continue
        recovery = recovered(trial)
        assert recovery.torn is None, at
        stretch = recovery.damaged[0]
        assert stretch.offset // SECTOR_BYTES <= at // SECTOR_BYTES + 1, at
        assert set(recovery.quarantined) <= set(stretch.groups), at
        quarantined.update(recovery.quarantined)
        for group, (state, entries) in intact(recovery).items():
            gone = lost_indexes(recovery.groups[group])
            lost.update((group, index) for index in gone)
            assert entries == [e for e in before[group][1] if e.index not in gone], at
            known = before[group][0]
            assert state == known or state == HardState(known.term + 1, 0, known.commit), at
            assert state == known or group in stretch.groups
        assert set(before) == set(recovery.groups) | set(recovery.quarantined), at
    assert quarantined == {1, 2, 3}, "a header that is damaged says nothing"
    assert lost == ({(1, 1), (1, 2), (1, 3), (2, 1), (3, 1)} if checked else set())


@pytest.mark.parametrize("mark", [b"a" * 50, b"b" * 400, b"c" * 10, b"d" * 100, b"e" * 30])
def test_damaged_body_concerns_its_entry_alone_and_can_be_put_back(
    one_file: tuple[MemoryFiles, Contents, int], open_log, mark: bytes
) -> None:
    disk, before, _ = one_file
    data = bytearray(disk.file(FIRST).written)
    data[data.index(mark) + 7] ^= 4
    trial = with_file(disk, FIRST, bytes(data))
    opened = open_log(trial)
    assert opened.log.quarantined == {}
    lost = {group: lost_indexes(opened.log.group(group)) for group in before}
    ((group, index),) = [(group, index) for group in lost for index in lost[group]]
    whole_entry = before[group][1][index - 1]
    assert whole_entry.data == mark
    other = Entry(index, whole_entry.term + 1, 0, mark)
    assert not opened.log.mend(group, other), "another entry"
    assert not opened.log.mend(group, Entry(index, whole_entry.term, 0, mark + b"."))
    assert opened.log.mend(group, whole_entry)
    assert not opened.log.mend(group, whole_entry), "it is there"
    assert opened.contents() == before
    opened.log.close()
    again = open_log(trial)
    assert again.contents() == before
    assert all(not lost_indexes(again.log.group(each)) for each in before)


def test_damaged_hard_state_is_the_next_term_without_a_vote(
    one_file: tuple[MemoryFiles, Contents, int], open_log
) -> None:
    disk, before, _ = one_file
    data = bytearray(disk.file(FIRST).written)
    at = data.index((2).to_bytes(8, "little"), data.index(b"e" * 30) - 90)
    opened = open_log(disk)
    assert opened.log.group(3).state_at & 0xFFFFFFFF == at - 40
    opened.log.close()
    data[at] ^= 1
    trial = with_file(disk, FIRST, bytes(data))
    for _ in range(2):  # the second time from a record of its own
        opened = open_log(trial)
        assert opened.log.quarantined == {}
        assert opened.log.group(3).hard_state == HardState(2, 0, 0)
        assert opened.contents()[1] == before[1]
        opened.log.close()
    trial.put(FIRST, with_bit(trial, at))
    assert open_log(trial).log.group(3).hard_state == HardState(2, 0, 0), "terms never fall"


def with_bit(disk: MemoryFiles, at: int) -> bytes:
    data = bytearray(disk.file(FIRST).written)
    data[at] ^= 1
    return bytes(data)


def test_damage_of_several_records_of_a_batch_concerns_each_of_them(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk)
    for group in range(1, 9):
        opened.append(group, run(1, 1, b"%d" % group * 80), HardState(1, 1, 0))
    opened.commit(9, run(1, 1, b"z"))
    opened.commit(9, run(2, 1, b"y"))
    opened.log.close()
    data = bytearray(disk.file(FIRST).written)
    for group in (2, 3, 6):
        data[data.index(b"%d" % group * 80) + group] ^= 1
    recovery = recovered(with_file(disk, FIRST, bytes(data)))
    assert recovery.quarantined == {}
    lost = {group: lost_indexes(view) for group, view in recovery.groups.items()}
    assert [group for group in lost if lost[group]] == [2, 3, 6]


def test_damaged_head_or_trailer_leaves_the_records_between(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a" * 50))
    start = opened.log._writer.position.offset
    opened.commit(2, run(1, 1, b"c" * 10))
    opened.commit(3, run(1, 1, b"d" * 10))
    before = opened.contents()
    opened.log.close()
    written = disk.file(FIRST).written
    for at in (start, written.index(b"c" * 10) + 12):
        data = bytearray(written)
        data[at] ^= 1
        recovery = recovered(with_file(disk, FIRST, bytes(data)))
        assert recovery.quarantined == {}
        assert [(d.sequence, d.groups) for d in recovery.damaged] == [(1, [])]
        assert whole(recovery) == before
    data[start] ^= 1  # both of them
    with pytest.raises(CorruptLogError, match="which groups batch 3 concerns is unreadable too"):
        recovered(with_file(disk, FIRST, bytes(data)))


def test_header_that_is_damaged_concerns_the_group_that_has_no_other_record_in_the_batch(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk)
    for group in (1, 2, 3):
        opened.append(group, run(1, 1, b"%d" % group * 80))
    opened.commit(4, run(1, 1, b"z"))
    opened.commit(4, run(2, 1, b"y"))
    opened.log.close()
    data = bytearray(disk.file(FIRST).written)
    data[data.index(b"2" * 80) - 24] ^= 1  # its group
    recovery = recovered(with_file(disk, FIRST, bytes(data)))
    assert list(recovery.quarantined) == [2]
