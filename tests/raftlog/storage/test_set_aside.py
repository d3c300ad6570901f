"""Setting a damaged log aside: what is needed here stays, and a crash at any call loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from headrace_raftlog.model.entry import ENTRY_CONFIG, Entry, HardState
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.storage.identity import Identity, read_identity
from headrace_raftlog.storage.memory_files import MemoryFiles
from headrace_raftlog.storage.options import LogOptions
from headrace_raftlog.storage.segment import segment_sequence
from headrace_raftlog.storage.set_aside import needed_here, set_aside
from headrace_raftlog.storage.shared_log import SharedLog

Run = Callable[..., list[Entry]]
FIRST = "/log/0000000000000001.log"
OPTIONS = LogOptions(segment_bytes=8192)
ANEW_DISK = 4711


@pytest.fixture
def owned(disk: MemoryFiles, open_log, run: Run) -> tuple[MemoryFiles, Identity]:
    """The log of node 1, of three segments, with groups of different members."""
    identity = Identity.open("/log", "test", 1, disk).form("/log", {1: 9, 2: 8, 3: 7}, disk)
    opened = open_log(disk, identity=identity)
    opened.log.begin(1, 1, Membership((1, 2, 3)))
    opened.log.begin(2, 1, Membership((1,)))
    opened.log.begin(3, 1, Membership((1, 2)))
    opened.log.begin(4, 1, Membership((1,)))
    grown = Membership((1, 2, 3)).encode()
    opened.append(4, [Entry(1, 1, ENTRY_CONFIG, grown)], HardState(1, 1, 1))
    opened.log.begin(5, 1, Membership((1,)))
    opened.log.remove_group(5)
    opened.commit(1, run(1, 1, b"a"), HardState(1, 1, 0))
    for index in range(2, 40):
        opened.commit(1, run(index, 1, b"x" * 500))
    opened.log.close()
    return disk, identity


def segments(disk: MemoryFiles, directory: str) -> list[str]:
    return [name for name in disk.names(directory) if segment_sequence(name)]


def test_groups_that_too_few_others_have_are_needed(owned) -> None:
    disk, _ = owned
    data = bytearray(disk.file(FIRST).written)
    data[20] ^= 1  # its header
    disk.put(FIRST, bytes(data))
    with pytest.raises(CorruptLogError):
        SharedLog.open("/log", OPTIONS, None, disk)
    assert needed_here("/log", 1, disk) == [2, 3]
    assert needed_here("/log", 3, disk) == []


def test_crash_at_any_call_leaves_a_log_that_is_refused_or_a_new_disk_without_one(owned) -> None:
    disk, identity = owned
    disk.remove(FIRST)
    disk.sync_directory("/log")
    whole = segments(disk, "/log")
    anew = replace(identity, disk=ANEW_DISK, boot=77)
    at = 0
    while True:
        trial = disk.after_power_loss(lambda *_: True, names_synced=True)
        failing = Failing(at)
        trial.fault = failing
        try:
            set_aside("/log", identity, anew, trial)
        except OSError:
            trial = trial.after_power_loss(lambda *_: True, names_synced=True)
        else:
            break
        at += 1
        assert failing.failed
        known = read_identity("/log", trial)
        assert known in (identity, anew)
        left = segments(trial, "/log")
        if left:
            with pytest.raises(CorruptLogError):
                SharedLog.open("/log", OPTIONS, None, trial)
        else:
            assert known == anew
        place = f"/log/damaged-{identity.boot:010d}-{identity.disk}"
        assert sorted({*left, *segments(trial, place)}) == whole
    assert at > 5
    assert read_identity("/log", trial) == anew
    assert segments(trial, "/log") == []


class Failing:
    """Fails at one call that changes the disk."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.failed = False

    def __call__(self, call: str, path: str) -> None:
        if self.left == 0:
            self.failed = True
            raise OSError(5, "power failed", path)
        self.left -= 1
