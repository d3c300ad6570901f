"""Files that are taken from under a running log, and what only looks like that."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.limits import DIRECTORY_LOOKS
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.recovery.directory_watch import DirectoryWatch
from headrace_raftlog.storage.recovery.opening import LOCK_NAME
from headrace_raftlog.storage.segment.segment import segment_name

SEGMENT = segment_name(1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def watch(data: Path) -> Iterator[DirectoryWatch]:
    log = SharedLog.open(str(data), LogOptions(segment_bytes=1 << 20, stepped=True))
    found = DirectoryWatch(Files(), str(data), log.lock, log.position)
    yield found
    found.close()
    log.close()


def looks(watch: DirectoryWatch) -> str:
    """Look as often as it takes."""
    assert [watch.poll() for _ in range(DIRECTORY_LOOKS - 1)] == [""] * (DIRECTORY_LOOKS - 1)
    return watch.poll()


def wipe(data: Path) -> None:
    for each in data.iterdir():
        each.unlink()


def remove_directory(data: Path) -> None:
    shutil.rmtree(data)


def put_copy_in_place(data: Path) -> None:
    shutil.copy(data / SEGMENT, data / "copy")
    (data / "copy").replace(data / SEGMENT)


def remove_with_link_left(data: Path) -> None:
    (data.parent / "backup").hardlink_to(data / SEGMENT)
    (data / SEGMENT).unlink()


@pytest.mark.parametrize("act", [wipe, remove_directory, put_copy_in_place, remove_with_link_left])
def test_log_file_that_is_gone_or_replaced_is_told(
    watch: DirectoryWatch, data: Path, act: Callable[[Path], None]
) -> None:
    assert looks(watch) == ""
    act(data)
    assert looks(watch).startswith(f"its log file {SEGMENT} was removed or replaced")


def test_lock_that_is_gone_is_told(watch: DirectoryWatch, data: Path) -> None:
    (data / LOCK_NAME).unlink()
    assert "a second process could use the directory" in looks(watch)


def touch(data: Path) -> None:
    for each in data.iterdir():
        os.utime(each)
        each.chmod(0o600)


def link(data: Path) -> None:
    (data.parent / "backup").mkdir()
    for each in data.iterdir():
        (data.parent / "backup" / each.name).hardlink_to(each)


def copy(data: Path) -> None:
    shutil.copytree(data, data.parent / "copy")


def remove_others(data: Path) -> None:
    (data / "marks").write_bytes(b"")
    (data / "marks").unlink()


@pytest.mark.parametrize("act", [touch, link, copy, remove_others])
def test_what_leaves_the_files_in_place_is_no_alarm(
    watch: DirectoryWatch, data: Path, act: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    act(data)
    assert looks(watch) == ""
    assert looks(watch) == ""
    assert not caplog.messages


def test_file_that_is_gone_for_one_look_is_no_alarm(watch: DirectoryWatch, data: Path) -> None:
    for _ in range(3):
        (data / SEGMENT).rename(data / "away")
        assert watch.poll() == ""
        (data / "away").rename(data / SEGMENT)
        assert watch.poll() == ""


def test_log_that_goes_on_in_its_next_file_is_no_alarm(data: Path) -> None:
    log = SharedLog.open(str(data), LogOptions(segment_bytes=1 << 20, stepped=True))
    watch = DirectoryWatch(Files(), str(data), log.lock, log.position)
    assert looks(watch) == ""
    for index in range(1, 8):
        entry = Entry(index, 1, ENTRY_NORMAL, bytes(300_000))
        log.append(7, HardState(1, 1, 0), [entry], True, None)
        log.flush()
        log.step()
        assert watch.poll() == ""
    assert log.position.header.sequence > 1
    assert looks(watch) == ""
    (data / SEGMENT).unlink()  # closed: it is missed when it is read
    assert looks(watch) == ""
    (data / segment_name(log.position.header.sequence)).unlink()
    assert looks(watch).startswith("its log file")
    watch.close()
    log.close()


def test_directory_that_is_moved_has_lost_nothing_and_is_told_once(
    watch: DirectoryWatch, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data.rename(data.parent / "elsewhere")
    data.mkdir()
    assert looks(watch) == ""
    assert looks(watch) == ""
    [told] = caplog.messages
    assert told.startswith(f"the data directory is not at {data} any more")
    data.rmdir()
    (data.parent / "elsewhere").rename(data)
    assert looks(watch) == ""
    assert len(caplog.messages) == 1


def test_disk_that_does_not_answer_is_not_taken_for_one_that_is_gone(data: Path) -> None:
    class Broken(Files):
        def leads_to(self, path: str, fd: int, directory: int | None = None) -> bool:
            raise OSError(5, path)

    log = SharedLog.open(str(data), LogOptions(segment_bytes=1 << 20, stepped=True))
    watch = DirectoryWatch(Broken(), str(data), log.lock, log.position)
    assert [watch.poll() for _ in range(5)] == [""] * 5
    watch.close()
    log.close()
