"""The file in which a node remembers how far disks have come."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.limits import MARK_SLOT_BYTES, STARTS_KEPT
from headrace_raftlog.model.mark import Mark
from headrace_raftlog.storage.writing.mark_file import MARKS_NAME, MarkFile, Marks
from headrace_simulation.memory_files import MemoryFiles

DIRECTORY = "/data"
OWN = Mark(7, 3, 99, 500)
PEERS = {2: (Mark(21, 1, 5, 10), Mark(22, 1, 6, 90)), 3: (Mark(33, 4, 7, 1 << 40),)}


@pytest.fixture
def disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    return files


def test_new_file_remembers_nothing(disk: MemoryFiles) -> None:
    assert MarkFile.open(DIRECTORY, disk).marks == Marks()
    assert MarkFile.open(DIRECTORY, disk).marks == Marks()


def test_what_was_written_last_is_read(disk: MemoryFiles) -> None:
    file = MarkFile.open(DIRECTORY, disk)
    for batch in range(500, 505):
        marks = Marks(OWN._replace(batch=batch), ((2, 40), (3, 450)), PEERS)
        file.write(marks)
        assert MarkFile.open(DIRECTORY, disk).marks == marks


def test_starts_follow_each_other_up_to_a_bound() -> None:
    marks = Marks()
    for boot in range(1, STARTS_KEPT + 3):
        marks = marks.begun(Mark(7, boot, 99, boot * 10))
    assert marks.starts[0] == (3, 30)
    assert marks.starts[-1] == (STARTS_KEPT + 2, (STARTS_KEPT + 2) * 10)
    assert len(marks.starts) == STARTS_KEPT


def test_starts_of_another_disk_or_of_boots_that_came_again_are_dropped() -> None:
    marks = Marks().begun(Mark(7, 1, 9, 10)).begun(Mark(7, 2, 9, 20)).begun(Mark(7, 3, 9, 30))
    assert marks.begun(Mark(7, 2, 9, 20)).starts == ((1, 10), (2, 20))
    assert marks.begun(Mark(8, 4, 9, 0)).starts == ((4, 0),)


def test_power_loss_at_any_call_leaves_these_marks_or_those_before(disk: MemoryFiles) -> None:
    first, second = Marks(OWN, (), PEERS), Marks(OWN._replace(batch=501), (), PEERS)
    file = MarkFile.open(DIRECTORY, disk)
    file.write(first)
    before = disk.after_power_loss(lambda *_: True, names_synced=True)
    MarkFile.open(DIRECTORY, before).write(second)
    for crash_at in range(len(before.calls)):
        for kept in (False, True):
            trial = disk.after_power_loss(lambda *_: True, names_synced=True)

            def fail(call: str, path: str, trial: MemoryFiles = trial, at: int = crash_at) -> None:
                if len(trial.calls) == at + 1:
                    raise OSError(5, f"{call} {path}")

            trial.fault = fail
            with pytest.raises(OSError, match="/data"):
                MarkFile.open(DIRECTORY, trial).write(second)
            after = trial.after_power_loss(lambda *_, kept=kept: kept, names_synced=kept)
            assert MarkFile.open(DIRECTORY, after).marks in (first, second)


def test_damaged_slot_leaves_the_other_and_two_leave_nothing(disk: MemoryFiles) -> None:
    file = MarkFile.open(DIRECTORY, disk)
    file.write(Marks(OWN))
    file.write(Marks(OWN._replace(batch=501)))
    path = f"{DIRECTORY}/{MARKS_NAME}"
    data = bytearray(disk.file(path).written)
    data[30] ^= 1
    disk.put(path, bytes(data))
    assert MarkFile.open(DIRECTORY, disk).marks.own == OWN
    data[MARK_SLOT_BYTES + 30] ^= 1
    disk.put(path, bytes(data))
    assert MarkFile.open(DIRECTORY, disk).marks == Marks()


def test_more_than_a_slot_takes_is_refused_and_nothing_changes(disk: MemoryFiles) -> None:
    file = MarkFile.open(DIRECTORY, disk)
    file.write(Marks(OWN))
    many = {node: tuple(Mark(1, 1, 1 << 56, 1 << 56) for _ in range(9)) for node in range(1023)}
    with pytest.raises(ValueError, match="a slot"):
        file.write(Marks(OWN, (), many))
    assert MarkFile.open(DIRECTORY, disk).marks == Marks(OWN)
