"""Directories with lost promises begin anew, and nothing is destroyed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace_raftlog.model.errors import LogLockedError
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.inspection.set_aside import (
    ASIDE_NAME,
    CONDEMNED_NAME,
    condemn,
    finish,
)
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.writing.identity import Identity, read_identity
from headrace_raftlog.storage.writing.mark_file import MARKS_NAME, MarkFile

LOG = LogOptions(segment_bytes=8192)


def make(directory: Path, boots: int = 3) -> Identity:
    """Lay out a directory of node 2 that was started a few times."""
    place = str(directory)
    identity = Identity.open(place, "c", 2)
    identity = identity.form(place, {1: 11, 2: identity.disk})
    for _ in range(boots - 1):
        identity = Identity.open(place, "c", 2) if identity.boot > 1 else identity
        SharedLog.open(place, LOG, identity).close()
        identity = Identity.open(place, "c", 2)
    MarkFile.open(place).close()
    return identity


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def test_directory_that_is_not_condemned_is_left_alone(tmp_path: Path) -> None:
    make(tmp_path)
    before = contents(tmp_path)
    assert not finish(str(tmp_path))
    assert contents(tmp_path) == before


def test_condemned_directory_becomes_a_new_disk_and_keeps_all_aside(tmp_path: Path) -> None:
    was = make(tmp_path)
    before = contents(tmp_path)
    condemn(str(tmp_path), "batch 7 is missing")
    assert finish(str(tmp_path))
    aside = contents(tmp_path / ASIDE_NAME)
    assert aside[CONDEMNED_NAME] == b"batch 7 is missing\n"
    for name in before.keys() - {"lock", "node.json"}:
        assert aside[name] == before[name]
    assert read_identity(str(tmp_path / ASIDE_NAME), Files()) == was
    assert sorted(contents(tmp_path)) == ["lock", "node.json"]
    now = Identity.open(str(tmp_path), "c", 2)
    assert (now.boot, now.formed, now.rejoins) == (was.boot + 1, {}, True)
    assert now.disk != was.disk
    assert now.form(str(tmp_path), {1: 11, 2: was.disk}).rejoins
    assert not finish(str(tmp_path))


def test_earlier_one_makes_room(tmp_path: Path) -> None:
    first = make(tmp_path)
    condemn(str(tmp_path), "first")
    finish(str(tmp_path))
    second = Identity.open(str(tmp_path), "c", 2).form(str(tmp_path), {1: 11, 2: first.disk})
    SharedLog.open(str(tmp_path), LOG, second).close()
    condemn(str(tmp_path), "second")
    assert finish(str(tmp_path))
    aside = contents(tmp_path / ASIDE_NAME)
    assert aside[CONDEMNED_NAME] == b"second\n"
    assert read_identity(str(tmp_path / ASIDE_NAME), Files()) == second
    assert MARKS_NAME not in aside


def test_directory_in_use_is_not_touched(tmp_path: Path) -> None:
    identity = make(tmp_path)
    log = SharedLog.open(str(tmp_path), LOG, identity)
    condemn(str(tmp_path), "old")
    with pytest.raises(LogLockedError):
        finish(str(tmp_path))
    assert (tmp_path / "0000000000000001.log").exists()
    log.close()
    assert finish(str(tmp_path))


def test_log_without_an_identity_is_set_aside_as_well(tmp_path: Path) -> None:
    make(tmp_path)
    condemn(str(tmp_path), "old")
    (tmp_path / "node.json").unlink()
    assert finish(str(tmp_path))
    assert (tmp_path / ASIDE_NAME / "0000000000000001.log").exists()
    assert sorted(contents(tmp_path)) == ["lock"]


class Failing(Files):
    """Fails at the n-th call that changes a disk."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(5, "crash")

    def create(self, path: str) -> int:
        self._count()
        return super().create(path)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._count()
        super().remove(path)

    def sync_directory(self, directory: str) -> None:
        self._count()
        super().sync_directory(directory)


def test_set_aside_that_is_cut_short_anywhere_is_finished_later(tmp_path: Path) -> None:
    done = False
    at = 0
    while not done:
        place = tmp_path / str(at)
        was = make(place)
        log = (place / "0000000000000001.log").read_bytes()
        condemn(str(place), "old")
        try:
            finish(str(place), Failing(at))
            done = True
        except OSError:
            finish(str(place))
        assert (place / ASIDE_NAME / "0000000000000001.log").read_bytes() == log
        assert read_identity(str(place / ASIDE_NAME), Files()) == was
        now = read_identity(str(place), Files())
        assert now is not None
        assert now.disk != was.disk
        assert now.rejoins
        assert not [name for name in os.listdir(place) if name.endswith(".log")]
        at += 1
    assert at > 8
