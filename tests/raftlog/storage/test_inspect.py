"""Verify and dump: everything wrong is named, nothing is changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.storage.identity import Identity
from headrace_raftlog.storage.inspect import Damage, dump, verify
from headrace_raftlog.storage.memory_files import MemoryFiles

Run = Callable[..., list[Entry]]
FIRST = "/log/0000000000000001.log"
SECOND = "/log/0000000000000002.log"


@pytest.fixture
def stored(disk: MemoryFiles, open_log, run: Run) -> MemoryFiles:
    opened = open_log(disk, identity=Identity("mill", 3, 1, 5))
    opened.commit(1, run(1, 1, b"a" * 2000, b""), HardState(1, 2, 0))
    opened.commit(2, run(1, 4, b"b" * 5000))
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
    assert (report.segments, report.groups, report.records) == (2, 2, 6)
    assert report.data_bytes > 5000


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


def test_damaged_header_is_named_and_the_rest_still_read(stored: MemoryFiles) -> None:
    flip(stored, FIRST, b"mill")
    report = verify("/log", stored)
    assert report.damaged == [Damage(FIRST, 0, "the segment header fails its checksum")]
    assert report.batches >= 2


def test_what_only_recovery_sees_is_named(stored: MemoryFiles) -> None:
    stored.remove(FIRST)
    reasons = [damage.reason for damage in verify("/log", stored).damaged]
    assert "segment 1 is missing" in reasons


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
    assert report.records == 1
    assert lost.calls == []


def test_dump_shows_every_record_with_its_offset(stored: MemoryFiles) -> None:
    lines = list(dump("/log", stored))
    assert lines[0] == f"{FIRST}: segment 1, 8192 bytes, node 3 of cluster 'mill'"
    assert "  512 batch 1, seal, to byte 1024" in lines
    assert "  1024 batch 2, 3 records, to byte 3584" in lines
    assert "    1064 state group 1 term 1 vote 2 commit 0" in lines
    assert "    1112 entry group 1 index 1 term 1 kind 0 bytes 2000" in lines
    assert any(line.endswith("entry group 2 index 1 term 4 kind 0 bytes 5000") for line in lines)
    assert any(line.endswith("tombstone group 7") for line in lines)


def test_dump_goes_on_behind_damage(stored: MemoryFiles) -> None:
    at = flip(stored, FIRST, b"a" * 100)
    flip(stored, SECOND, b"mill")
    lines = list(dump("/log", stored))
    assert f"  {at - 40} NOT INTACT: checksum or length wrong in batch 2" in lines
    assert lines[-1].startswith(f"{SECOND}: DAMAGED at byte 0")
