"""The disk in memory: data that survives a power failure, and data in doubt."""

from __future__ import annotations

import threading
import time

import pytest

from headrace_simulation.memory_files import SECTOR_BYTES, MemoryFile, MemoryFiles

SECTOR = SECTOR_BYTES


@pytest.fixture
def disk() -> MemoryFiles:
    return MemoryFiles()


def survivors(disk: MemoryFiles) -> dict[str, bytes]:
    """Every file after a power failure that takes as much as it may."""
    lost = disk.after_power_loss(lambda *_: False, names_synced=True)
    return {path: bytes(file.synced) for path, file in lost.synced_names.items()}


def test_name_survives_once_its_directory_is_synced(disk: MemoryFiles) -> None:
    fd = disk.create("/a/new")
    disk.write_through(fd, [b"x"], 0)
    disk.sync_directory("/b")
    assert survivors(disk) == {}
    disk.sync_directory("/a")
    assert survivors(disk) == {"/a/new": b"x"}
    disk.rename("/a/new", "/a/name")
    assert survivors(disk) == {"/a/new": b"x"}
    disk.sync_directory("/a")
    assert survivors(disk) == {"/a/name": b"x"}
    disk.remove("/a/name")
    assert survivors(disk) == {"/a/name": b"x"}
    disk.sync_directory("/a")
    assert survivors(disk) == {}


def test_renaming_that_survives_alone_needs_no_creation(disk: MemoryFiles) -> None:
    disk.create("/a/new")
    disk.rename("/a/new", "/a/name")
    _, renaming = disk.name_changes
    names: dict[str, MemoryFile] = {}
    renaming.apply(names)
    assert names == {"/a/name": disk.file("/a/name")}


def test_removal_spares_another_file_of_that_name(disk: MemoryFiles) -> None:
    disk.create("/a/name")
    disk.sync_directory("/a")
    disk.remove("/a/name")
    disk.create("/a/name")
    removal, _ = disk.name_changes
    names = {"/a/name": disk.file("/a/name")}
    removal.apply(names)
    assert names == {"/a/name": disk.file("/a/name")}


def test_write_through_syncs_its_own_range_only(disk: MemoryFiles) -> None:
    fd = disk.create("/a")
    disk.write(fd, b"a" * SECTOR, 0)
    disk.write_through(fd, [b"b" * SECTOR], SECTOR)
    assert disk.file("/a").synced == bytes(SECTOR) + b"b" * SECTOR
    disk.sync(fd)
    assert disk.file("/a").synced == b"a" * SECTOR + b"b" * SECTOR
    assert disk.file("/a").unsynced == []


@pytest.fixture
def doubtful() -> MemoryFile:
    """A file whose second sector was written with a sync that failed."""
    file = MemoryFile(bytes(2 * SECTOR))
    file.write(b"x" * SECTOR, SECTOR)
    file.doubt()
    return file


def test_what_is_in_doubt_is_not_saved_by_a_later_sync(doubtful: MemoryFile) -> None:
    doubtful.write(b"y", 0)
    doubtful.sync()
    assert doubtful.written[SECTOR:] == b"x" * SECTOR
    assert doubtful.synced[SECTOR:] == bytes(SECTOR)
    assert doubtful.pending() == [(SECTOR, b"x" * SECTOR)]


def test_what_is_in_doubt_is_saved_by_writing_and_syncing_it_again(doubtful: MemoryFile) -> None:
    doubtful.write(b"x" * SECTOR, SECTOR)
    assert len(doubtful.pending()) == 2
    doubtful.sync()
    assert doubtful.synced == doubtful.written
    assert doubtful.pending() == []


def test_what_is_in_doubt_may_survive_a_power_failure(doubtful: MemoryFile) -> None:
    disk = MemoryFiles()
    disk.place({"/a": doubtful}, [])
    for kept, expected in ((True, b"x"), (False, b"\0")):
        lost = disk.after_power_loss(lambda *_, kept=kept: kept, names_synced=True)
        assert lost.file("/a").synced[-1:] == expected


def test_picture_of_the_disk_is_whole_while_another_thread_changes_it(disk: MemoryFiles) -> None:
    for number in range(4):
        disk.write(disk.create(f"/a/{number}"), b"x" * SECTOR, 0)
    asked, made = threading.Event(), threading.Event()
    disk.fault = lambda call, path: asked.set()

    def make() -> None:
        disk.create("/a/new")
        made.set()

    maker = threading.Thread(target=make)

    def survives(path: str, number: int, offset: int) -> bool:
        if not maker.is_alive() and not made.is_set():
            maker.start()
            assert asked.wait(60)
            for _ in range(1000):  # turns in which a disk without a lock would change
                time.sleep(0)
        return True

    picture = disk.after_power_loss(survives, names_synced=False)
    maker.join()
    assert picture.names("/a") == ["0", "1", "2", "3"]
    assert disk.names("/a") == ["0", "1", "2", "3", "new"]
