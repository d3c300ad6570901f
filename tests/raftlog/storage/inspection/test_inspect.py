"""Verify and dump: everything wrong is named, nothing is changed."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.storage.inspection.inspect import Damage, dump, verify
from headrace_raftlog.storage.writing.identity import Identity
from headrace_simulation.memory_files import MemoryFiles

Run = Callable[..., list[Entry]]
FIRST = "/log/0000000000000001.log"
SECOND = "/log/0000000000000002.log"


@pytest.fixture
def stored(disk: MemoryFiles, open_log, run: Run) -> MemoryFiles:
    opened = open_log(disk, identity=Identity("mill", 3, 1, 5))
    opened.commit(1, run(1, 1, b"a" * 2000, b""), HardState(1, 2, 0))
    opened.commit(2, run(1, 4, b"b" * 4500))
    opened.commit(7, run(1, 1, b"c"))
    opened.log.remove_group(7)
    opened.log.close()
    return disk


def flip(disk: MemoryFiles, path: str, needle: bytes) -> int:
    data = disk.file(path).written
    at = data.index(needle)
    data[at] ^= 1
    return at


def test_intact_log_is_counted(stored: MemoryFiles) -> None:
    report = verify("/log", stored)
    assert report.intact
    assert report.torn is None
    assert (report.segments, report.groups, report.records) == (2, 2, 8)
    assert report.data_bytes > 4500


def test_empty_directory_is_intact() -> None:
    report = verify("/log", MemoryFiles())
    assert (report.intact, report.segments, report.records) == (True, 0, 0)


def test_every_damage_is_named(stored: MemoryFiles) -> None:
    first = flip(stored, FIRST, b"a" * 100)
    second = flip(stored, SECOND, b"b" * 100)
    report = verify("/log", stored)
    assert not report.intact
    assert [(damage.path, damage.offset) for damage in report.damaged] == [
        (FIRST, first - 40),
        (SECOND, second - 40),
    ]
    assert report.quarantined == {}
    assert sorted(report.lost) == [1, 2]
    assert report.refused == ""


def test_damaged_header_is_named_and_the_rest_still_read(stored: MemoryFiles) -> None:
    flip(stored, FIRST, b"mill")
    report = verify("/log", stored)
    reason = "the segment header is damaged, and known from the other segments"
    assert report.damaged == [Damage(FIRST, 0, reason)]
    assert report.refused == ""
    assert report.batches >= 2


def test_what_only_recovery_sees_is_named(stored: MemoryFiles) -> None:
    stored.remove(FIRST)
    report = verify("/log", stored)
    assert report.refused == "segment 1 is missing"
    assert not report.intact


def test_torn_tail_is_no_damage(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a"))

    def fail(call: str, path: str) -> None:
        if (call, path) == ("sync", FIRST):
            raise OSError(5, "power failed", path)

    disk.fault = fail
    opened.append(1, run(2, 1, b"b" * 2000))
    opened.log.flush()
    opened.wait(lambda: opened.failures)
    lost = disk.after_power_loss(lambda path, number, offset: number == 0, names_synced=True)
    report = verify("/log", lost)
    assert report.intact
    assert report.torn is not None
    assert report.torn.path == FIRST
    assert report.records == 2
    assert lost.calls == []


def test_dump_shows_every_record_with_its_offset(stored: MemoryFiles) -> None:
    lines = list(dump("/log", stored))
    assert lines[0] == f"{FIRST}: segment 1, 8192 bytes, node 3 of cluster 'mill'"
    assert "  512 batch 1, 1 records, to byte 1024" in lines
    assert "    552 files" in lines
    assert "  1024 batch 2, 3 records, to byte 3584" in lines
    assert "    1072 state group 1 era 0 term 1 vote 2 commit 0" in lines
    assert "    1120 entry group 1 era 0 index 1 term 1 kind 0 bytes 2000" in lines
    assert "    560 files 1 (1 to 2)" in lines
    assert any(line.endswith("group 2 era 0 index 1 term 4 kind 0 bytes 4500") for line in lines)
    assert any(line.endswith("tombstone group 7 era 0 since segment 2") for line in lines)


def test_dump_describes_every_kind_of_record(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    opened.log.begin(4, 5, Membership((1, 2, 5)))
    opened.commit(4, run(1, 1, b"a" * 1000, b"b"), HardState(1, 0, 2))
    snapshot = Snapshot(2, 1, Membership((1, 2, 5)), b"s" * 9000, array("Q", [1]))
    opened.log.save_snapshot(4, snapshot, "saved")
    opened.log.flush()
    opened.wait(lambda: "saved" in opened.tokens)
    opened.log.add_incoming(4, run(5, 1, b"e"))
    opened.commit(9, run(1, 1, b"x" * 3000))
    for _ in range(9):
        opened.log.collect(1 << 20)
        opened.commit(9, run(opened.log.group(9).last_index() + 1, 1, b"x"))
    opened.log.close()
    text = "\n".join(dump("/log", disk))
    assert " base group 4 era 1 member 5 of 1,2,5" in text
    assert " snapshot part group 4 era 1 index 2 number 0 bytes" in text
    assert " snapshot group 4 era 1 taken at index 2 term 1, " in text
    assert " incoming group 4 era 1 index 5 term 1 kind 0 bytes 1" in text


def test_dump_goes_on_behind_damage(stored: MemoryFiles) -> None:
    at = flip(stored, FIRST, b"a" * 100)
    flip(stored, SECOND, b"mill")
    lines = list(dump("/log", stored))
    assert f"  {at - 40} NOT INTACT: checksum or length wrong in batch 2" in lines
    assert lines[-1].startswith(f"{SECOND}: DAMAGED at byte 0")
