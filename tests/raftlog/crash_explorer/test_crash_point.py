"""Disks that a power failure can leave at one moment."""

from __future__ import annotations

import pytest

from headrace_raftlog.crash_explorer.crash_point import (
    EXHAUSTIVE_CHOICES_MAX,
    KILL,
    CrashPoint,
    Disk,
)
from headrace_raftlog.crash_explorer.history import History
from headrace_raftlog.crash_explorer.observed_files import ObservedFiles
from headrace_raftlog.storage.disk.memory_files import SECTOR_BYTES

SECTOR = SECTOR_BYTES


@pytest.fixture
def files() -> ObservedFiles:
    return ObservedFiles()


def point_of(files: ObservedFiles) -> CrashPoint:
    return CrashPoint(1, "call", files, History({}).legal())


def disks(files: ObservedFiles) -> list[Disk]:
    point = point_of(files)
    return [point.disk(mask)[0] for mask in point.masks(0, 0) if mask != KILL]


def synced_file(files: ObservedFiles, path: str, data: bytes) -> int:
    fd = files.create(path)
    files.write_through(fd, [data], 0)
    files.sync_directory("/")
    return fd


def test_synced_disk_has_one_outcome(files: ObservedFiles) -> None:
    synced_file(files, "/a", b"x")
    assert disks(files) == [{"/a": b"x"}]


def test_each_unsynced_sector_is_there_or_not(files: ObservedFiles) -> None:
    fd = synced_file(files, "/a", bytes(3 * SECTOR))
    files.write(fd, b"x" * (SECTOR + 1), SECTOR - 1)
    old, first, second = b"\0", b"x", b"x" * SECTOR
    head, tail = bytes(SECTOR - 1), bytes(SECTOR)
    assert disks(files) == [
        {"/a": head + old + bytes(SECTOR) + tail},
        {"/a": head + first + bytes(SECTOR) + tail},
        {"/a": head + old + second + tail},
        {"/a": head + first + second + tail},
    ]


def test_sector_written_twice_may_have_either_content(files: ObservedFiles) -> None:
    fd = synced_file(files, "/a", b"0")
    files.write(fd, b"1", 0)
    files.write(fd, b"0", 0)
    assert {disk["/a"] for disk in disks(files)} == {b"0", b"1"}


def test_length_may_survive_without_the_bytes(files: ObservedFiles) -> None:
    fd = synced_file(files, "/a", b"")
    files.write(fd, b"xyz", 0)
    assert {disk["/a"] for disk in disks(files)} == {b"", bytes(3), b"xyz"}


def test_zeros_that_were_zeros_are_no_choice(files: ObservedFiles) -> None:
    fd = synced_file(files, "/a", bytes(4 * SECTOR))
    files.write(fd, bytes(3 * SECTOR), SECTOR)
    assert disks(files) == [{"/a": bytes(4 * SECTOR)}]


def test_each_change_of_a_name_survives_or_not(files: ObservedFiles) -> None:
    synced_file(files, "/old", b"x")
    files.create("/new")
    files.remove("/old")
    assert sorted(map(sorted, disks(files))) == [[], ["/new"], ["/new", "/old"], ["/old"]]


def test_renaming_is_atomic(files: ObservedFiles) -> None:
    synced_file(files, "/a", b"x")
    synced_file(files, "/b", b"y")
    files.rename("/a", "/b")
    assert disks(files) == [{"/a": b"x", "/b": b"y"}, {"/b": b"x"}]


def test_names_in_a_synced_directory_are_certain(files: ObservedFiles) -> None:
    files.create("/a/x")
    files.create("/b/x")
    files.sync_directory("/a")
    assert [sorted(disk) for disk in disks(files)] == [["/a/x"], ["/a/x", "/b/x"]]


def test_where_not_all_can_be_tried_extremes_and_samples_are(files: ObservedFiles) -> None:
    count = EXHAUSTIVE_CHOICES_MAX + 4
    fd = synced_file(files, "/a", bytes(count * SECTOR))
    files.write(fd, b"x" * count * SECTOR, 0)
    point = point_of(files)
    masks = list(point.masks(50, 7))
    everything = (1 << count) - 1
    assert len(set(masks)) == len(masks)
    assert {KILL, 0, everything} <= set(masks)
    for number in range(count):
        assert {1 << number, everything ^ (1 << number), (1 << number) - 1} <= set(masks)
    extremes = len(list(point.masks(0, 7)))
    assert extremes + 45 <= len(masks) <= extremes + 50
    assert masks == list(point_of(files).masks(50, 7))
    assert masks != list(point.masks(50, 8))


def test_digest_tells_disks_apart(files: ObservedFiles) -> None:
    fd = synced_file(files, "/a", bytes(SECTOR * 2))
    files.write(fd, b"x" * SECTOR * 2, 0)
    files.rename("/a", "/b")
    point = point_of(files)
    assert len({point.disk(mask)[1] for mask in range(8)}) == 8
    assert point.disk(3)[1] == point_of(files).disk(3)[1]


def test_killed_process_leaves_everything_as_unsynced_as_it_was(files: ObservedFiles) -> None:
    fd = synced_file(files, "/a", bytes(SECTOR))
    files.write(fd, b"x", 0)
    files.rename("/a", "/b")
    files.write(files.create("/c"), b"y", 0)
    files.file("/c").doubt()
    copy = ObservedFiles()
    point_of(files).copy_to(copy)
    assert copy.names("/") == ["b", "c"]
    assert copy.file("/b").written == b"x" + bytes(SECTOR - 1)
    assert disks(copy) == disks(files)
    copy.sync(copy.open("/b"))
    copy.sync(copy.open("/c"))
    copy.sync_directory("/")
    assert {disk["/c"] for disk in disks(copy)} == {b"", b"y", b"\0"}, "a sync that failed is final"
    assert {disk["/b"][:1] for disk in disks(copy)} == {b"x"}
    assert files.file("/b").synced == bytes(SECTOR), "the original is untouched"
