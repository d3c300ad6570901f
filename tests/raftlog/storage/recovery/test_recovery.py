"""Reading a log back after power failures and after damage."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable

import pytest

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.errors import CorruptLogError, UnknownVersionError
from headrace_raftlog.model.membership import NOBODY
from headrace_raftlog.storage.group.lost_entries import lost_indexes
from headrace_raftlog.storage.inspection.inspect import dump, verify
from headrace_raftlog.storage.recovery.recovery import Recovery
from headrace_raftlog.storage.segment.segment import (
    SEGMENT_HEADER_BYTES,
    SEGMENT_VERSION,
    SegmentHeader,
    SegmentReader,
    decode_segment_header,
)
from headrace_simulation.memory_files import SECTOR_BYTES, MemoryFile, MemoryFiles, overlay

Run = Callable[..., list[Entry]]
Contents = dict[int, tuple[HardState, list[Entry]]]
FIRST = "/log/0000000000000001.log"
SECOND = "/log/0000000000000002.log"


def with_file(disk: MemoryFiles, path: str, data: bytes) -> MemoryFiles:
    """A copy of a disk with one file's bytes replaced."""
    copy = disk.after_power_loss(lambda *_: True, names_synced=False)
    copy.put(path, data)
    return copy


def recovered(disk: MemoryFiles) -> Recovery:
    recovery = Recovery(disk, "/log", SegmentReader(disk, "/log"))
    recovery.run()
    return recovery


def last_indexes(recovery: Recovery) -> dict[int, int]:
    return {group: view.last_index() for group, view in recovery.groups.items()}


class Failing:
    """Fails every sync of the first segment."""

    def __call__(self, call: str, path: str) -> None:
        if call == "sync" and path == FIRST:
            raise OSError(5, "power failed", path)


@pytest.fixture
def torn(disk: MemoryFiles, open_log, run: Run) -> tuple[MemoryFiles, Contents, Contents]:
    """A log whose last batch was written and not synced; its content before, and with it."""
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a" * 300, b"b" * 300), HardState(1, 1, 0))
    opened.commit(2, run(1, 1, b"c" * 10))
    before = opened.contents()
    disk.fault = Failing()
    opened.append(1, run(3, 2, b"d" * 500, b"e" * 600), HardState(2, 3, 2))
    opened.append(2, run(1, 2, b"f" * 700))
    opened.append(3, run(1, 1, b"g" * 833))
    opened.log.flush()
    opened.wait(lambda: opened.failures)
    assert len(opened.tokens) == 2
    after = opened.contents()
    return disk, before, after


def unsynced(disk: MemoryFiles) -> MemoryFile:
    return disk.file(FIRST)


def test_every_prefix_of_the_unsynced_batch_is_cut(torn) -> None:
    disk, before, after = torn
    file = unsynced(disk)
    start = file.unsynced[0][0]
    stream = b"".join(sector for _, sector in file.unsynced)
    for length in range(len(stream) + 1):
        data = bytearray(file.synced)
        overlay(data, stream[:length], start)
        found = last_indexes(recovered(with_file(disk, FIRST, bytes(data))))
        expected = after if length >= len(stream.rstrip(b"\0")) else before
        assert found == {group: len(held[1]) for group, held in expected.items()}, length


def test_log_goes_on_after_any_prefix_of_the_unsynced_batch(torn, open_log, run: Run) -> None:
    disk, before, after = torn
    file = unsynced(disk)
    start = file.unsynced[0][0]
    stream = b"".join(sector for _, sector in file.unsynced)
    boundaries = [0, 40, 88, 628, 1268, 2008, 2881, len(stream) - 40, len(stream)]
    for length in sorted({b + d for b in boundaries for d in (-1, 0, 1) if b + d >= 0}):
        data = bytearray(file.synced)
        overlay(data, stream[:length], start)
        trial = with_file(disk, FIRST, bytes(data))
        opened = open_log(trial)
        whole = length >= len(stream.rstrip(b"\0"))
        assert opened.contents() == (after if whole else before), length
        assert opened.commit(9, run(1, 1, b"on"))
        expected = opened.contents()
        opened.log.close()
        assert open_log(trial).contents() == expected, length


def test_every_subset_of_the_unsynced_sectors_is_cut_or_whole(torn, open_log, run: Run) -> None:
    disk, before, after = torn
    sectors = len(unsynced(disk).unsynced)
    assert sectors >= 6
    for kept in itertools.product((False, True), repeat=sectors):
        trial = disk.after_power_loss(
            lambda path, number, offset, kept=kept: kept[number], names_synced=True
        )
        opened = open_log(trial)
        assert opened.contents() == (after if all(kept) else before), kept
        assert opened.commit(9, run(1, 1, b"short"))
        expected = opened.contents()
        opened.log.close()
        assert open_log(trial).contents() == expected, kept


def test_torn_bytes_are_gone_after_opening(torn, open_log) -> None:
    disk, _, _ = torn
    trial = disk.after_power_loss(lambda path, number, offset: number > 1, names_synced=True)
    recovery = open_log(trial).log.recovery
    assert recovery.torn is not None
    assert "no batch head" in recovery.torn.reason
    file = trial.file(FIRST)
    assert file.synced.count(b"\0", recovery.torn.start + SECTOR_BYTES) == (
        len(file.synced) - recovery.torn.start - SECTOR_BYTES
    )


def test_power_loss_during_repair_is_repaired_again(torn, open_log) -> None:
    disk, before, _ = torn
    start = disk.after_power_loss(lambda path, number, offset: number != 2, names_synced=True)
    probe = start.after_power_loss(lambda *_: True, names_synced=True)
    open_log(probe).log.close()
    assert len(probe.calls) > 6
    for crash_at in range(1, len(probe.calls)):
        trial = start.after_power_loss(lambda *_: True, names_synced=True)

        def fail(call: str, path: str, trial: MemoryFiles = trial, at: int = crash_at) -> None:
            if len(trial.calls) >= at:
                raise OSError(5, "power failed", path)

        trial.fault = fail
        with contextlib.suppress(OSError):
            open_log(trial).log.close()
        assert trial._open == {}
        for odd in (0, 1):
            again = trial.after_power_loss(
                lambda path, number, offset, odd=odd: number % 2 == odd, names_synced=bool(odd)
            )
            assert open_log(again).contents() == before, crash_at


def test_recovered_last_batch_is_synced_before_anything_builds_on_it(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    """A killed process leaves written, unsynced data that the next one reads from memory."""
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a"))
    disk.fault = Failing()
    opened.append(1, run(2, 1, b"b"))
    opened.log.flush()
    opened.wait(lambda: opened.failures)
    disk.fault = lambda call, path: None
    opened.log.close()
    assert disk.file(FIRST).unsynced
    again = open_log(disk)
    assert again.log.group(1).last_index() == 2
    lost = disk.after_power_loss(lambda *_: False, names_synced=True)
    assert open_log(lost).log.group(1).last_index() == 2


def whole(recovery: Recovery) -> Contents:
    """The entries and hard states of the groups that are served."""
    out = {}
    for group, view in recovery.groups.items():
        last = view.last_index()
        out[group] = (view.hard_state, view.entries(1, last + 1, 1 << 40) if last else [])
    return out


def test_refusal_changes_nothing_on_disk(three_segments: MemoryFiles, open_log) -> None:
    data = bytearray(three_segments.file(SECOND).written)
    data[20] ^= 1
    data[SEGMENT_HEADER_BYTES + 20] ^= 1  # nor does the batch behind it show whose it is
    trial = with_file(three_segments, SECOND, bytes(data))
    with pytest.raises(CorruptLogError):
        open_log(trial)
    assert trial.calls == []
    assert trial.file(SECOND).written == data


@pytest.mark.parametrize("number", [1, 2, 3])
def test_damaged_segment_header_is_restored_from_the_others(
    three_segments: MemoryFiles, open_log, number: int
) -> None:
    path = f"/log/{number:016d}.log"
    before = recovered(three_segments)
    written = bytes(three_segments.file(path).written)
    for at in range(0, SEGMENT_HEADER_BYTES, 7):
        data = bytearray(written)
        data[at] ^= 0x10
        trial = with_file(three_segments, path, bytes(data))
        recovery = recovered(trial)
        assert [(d.sequence, d.offset, d.groups) for d in recovery.damaged] == [(number, 0, [])]
        assert whole(recovery) == whole(before)
    opened = open_log(trial)
    assert opened.contents() == whole(before)
    opened.log.close()
    assert trial.file(path).written[:SEGMENT_HEADER_BYTES] == written[:SEGMENT_HEADER_BYTES]
    assert recovered(trial).damaged == []


def test_quarantine_outlives_the_damage(disk: MemoryFiles, open_log, run: Run) -> None:
    """Data that was unreadable once is not trusted when it can be read again."""
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a" * 50), HardState(1, 1, 0))
    opened.log.close()
    at = disk.file(FIRST).written.index(b"a" * 50) - 40
    for _ in range(2):
        data = bytearray(disk.file(FIRST).written)
        data[at + 16] ^= 1  # whose it is
        disk.put(FIRST, bytes(data))
        opened = open_log(disk)
        assert list(opened.log.quarantined) == [1]
        assert f"{FIRST}: damaged record at byte {at}" in opened.log.quarantined[1]
        opened.log.close()


def test_quarantine_is_remembered_until_the_group_is_begun_anew(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a" * 50), HardState(1, 1, 0))
    opened.commit(2, run(1, 1, b"b"))
    opened.log.close()
    data = bytearray(disk.file(FIRST).written)
    data[data.index(b"a" * 50) - 24] ^= 1  # whose it is
    disk.put(FIRST, bytes(data))
    for _ in range(2):
        opened = open_log(disk)
        assert opened.log.groups() == [2]
        assert list(opened.log.quarantined) == [1]
        with pytest.raises(KeyError, match=r"group 1 is quarantined: /log/0+1\.log"):
            opened.log.group(1)
        with pytest.raises(KeyError, match="group 1 is quarantined"):
            opened.append(1, run(1, 1, b"a"))
        assert opened.commit(2, run(opened.log.group(2).last_index() + 1, 1, b"b"))
        opened.log.close()
    opened = open_log(disk)
    view = opened.log.begin(1, (77 << 10) | 3, NOBODY)
    assert (view.last_index(), view.hard_state) == (0, HardState(0, 0, 0))
    assert opened.commit(1, run(1, 4, b"new"), HardState(4, 0, 0))
    opened.log.close()
    again = open_log(disk)
    assert again.log.quarantined == {}
    assert again.contents()[1] == (HardState(4, 0, 0), run(1, 4, b"new"))
    assert again.log.group(1).member == (77 << 10) | 3


@pytest.fixture
def three_segments(disk: MemoryFiles, open_log, run: Run) -> MemoryFiles:
    opened = open_log(disk)
    index = 1
    while len([name for name in disk.names("/log") if name.endswith(".log")]) < 3:
        opened.commit(1, run(index, 1, b"x" * 700))
        index += 1
    opened.commit(1, run(index, 1, b"y"))
    opened.log.close()
    return disk


def test_damage_in_an_older_segment_is_never_a_torn_tail(three_segments: MemoryFiles) -> None:
    data = bytearray(three_segments.file(SECOND).written)
    last = data.rindex(b"x" * 700)
    data[last] ^= 1
    recovery = recovered(with_file(three_segments, SECOND, bytes(data)))
    assert recovery.torn is None
    assert [(d.sequence, d.offset) for d in recovery.damaged] == [(2, last - 40)]
    assert recovery.quarantined == {}
    assert len(lost_indexes(recovery.groups[1])) == 1
    data[last - 40 + 16] ^= 0xFF  # its header as well
    recovery = recovered(with_file(three_segments, SECOND, bytes(data)))
    assert list(recovery.quarantined) == [1]
    assert recovery.ledger.segments[2].pinned


def test_flipped_bit_in_the_zeros_of_an_older_segment_is_noticed(
    three_segments: MemoryFiles,
) -> None:
    data = bytearray(three_segments.file(SECOND).written)
    data[-1] ^= 1
    recovery = recovered(with_file(three_segments, SECOND, bytes(data)))
    assert [d.reason for d in recovery.damaged] == [
        f"no batch head, expected batch {recovery.spans[2].first}, behind the last batch"
    ]
    assert recovery.quarantined == {}


def test_batch_lost_whole_from_an_older_segment_is_noticed(three_segments: MemoryFiles) -> None:
    data = bytearray(three_segments.file(SECOND).written)
    start = (data.rindex(b"x" * 700) - 48) // SECTOR_BYTES * SECTOR_BYTES
    data[start:] = bytes(len(data) - start)
    with pytest.raises(CorruptLogError, match="no batch head, expected batch"):
        recovered(with_file(three_segments, SECOND, bytes(data)))


@pytest.mark.parametrize("path", [FIRST, SECOND])
def test_missing_segment_is_noticed(three_segments: MemoryFiles, path: str) -> None:
    three_segments.remove(path)
    with pytest.raises(CorruptLogError, match=r"segment \d is missing"):
        recovered(three_segments)


def test_segment_of_another_log_is_noticed(three_segments: MemoryFiles, open_log) -> None:
    other = MemoryFiles()
    other.random = lambda count: b"\xff" * count  # type: ignore[method-assign]
    open_log(other).log.close()
    data = bytes(three_segments.file(SECOND).written)
    with pytest.raises(CorruptLogError, match="belongs to another log"):
        recovered(with_file(other, SECOND, data))


def test_shortened_segment_is_noticed(three_segments: MemoryFiles) -> None:
    data = bytes(three_segments.file(SECOND).written)
    with pytest.raises(CorruptLogError, match="not 8192 bytes long"):
        recovered(with_file(three_segments, SECOND, data[:-512]))


def test_segment_under_a_wrong_name_is_noticed(three_segments: MemoryFiles) -> None:
    data = bytes(three_segments.file(FIRST).written)
    with pytest.raises(CorruptLogError, match="the header says segment 1"):
        recovered(with_file(three_segments, SECOND, data))


def history(opened, run: Run, acknowledged: dict[int, list[Entry]]) -> None:
    """Append to three groups, with truncations, until done or the writer fails."""
    for step in range(1, 40):
        group = 1 + step % 3
        held = acknowledged.setdefault(group, [])
        first = len(held) + 1 if step % 5 else max(1, len(held))
        blobs = [bytes([step]) * (97 * step % 900)] * (1 + step % 2)
        entries = run(first, step, *blobs)
        if opened.log.failure is not None or not opened.commit(
            group, entries, HardState(step, 0, 0)
        ):
            return
        acknowledged[group] = held[: first - 1] + entries


def test_power_loss_at_any_call_loses_nothing_acknowledged(open_log, run: Run) -> None:
    """A walk over every call of a run with rotations, each with several legal outcomes."""
    probe = MemoryFiles()
    opened = open_log(probe)
    history(opened, run, {})
    opened.log.close()
    assert len(probe.names("/log")) >= 4
    dice = random.Random(7)
    for crash_at in range(1, len(probe.calls) + 1, 2):
        disk = MemoryFiles()

        def fail(call: str, path: str, disk: MemoryFiles = disk, at: int = crash_at) -> None:
            if len(disk.calls) >= at:
                raise OSError(5, "power failed", path)

        disk.fault = fail
        acknowledged: dict[int, list[Entry]] = {}
        try:
            opened = open_log(disk)
        except OSError:
            pass
        else:
            history(opened, run, acknowledged)
            opened.log.close()
        for share in (0.0, 0.5, 1.0):
            lost = disk.after_power_loss(
                lambda *_, share=share: dice.random() < share, names_synced=dice.random() < 0.5
            )
            again = open_log(lost)
            found = {group: held[1] for group, held in again.contents().items()}
            for group, entries in acknowledged.items():
                held = found.get(group, [])
                kept = held[: len(entries)] == entries
                replaced = held[: len(entries) - 1] == entries[:-1] and held[-1:] != entries[-1:]
                assert kept or replaced, (crash_at, share, group)
            assert again.commit(9, run(1, 1, b"on"))
            again.log.close()


def test_log_of_a_later_release_is_refused_and_left_alone(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a"))
    opened.log.close()
    data = bytes(disk.file(FIRST).written)
    known = decode_segment_header(FIRST, data)
    later = SegmentHeader(1, known.size, known.salt, 0, "", SEGMENT_VERSION + 1).encode()
    disk.put(FIRST, later + data[512:])
    calls = list(disk.calls)
    with pytest.raises(UnknownVersionError, match="nothing was changed"):
        open_log(disk)
    assert not [call for call in disk.calls[len(calls) :] if call[0] in ("write", "remove")]
    for look in (verify, lambda directory, files: list(dump(directory, files))):
        with pytest.raises(UnknownVersionError):
            look("/log", disk)
