from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headrace_raftlog.storage.disk.files import Files


class RecordingFiles(Files):
    """Notes which directories were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def sync_directory(self, directory: str) -> None:
        super().sync_directory(directory)
        self.synced.append(directory)


def test_new_directories_are_durable_from_the_top(tmp_path: Path) -> None:
    files = RecordingFiles()
    files.make_directory(str(tmp_path / "a" / "b" / "c"))
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert files.synced == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    files.make_directory(str(tmp_path / "a" / "b" / "c"))
    assert len(files.synced) == 3


def test_file_in_the_place_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(NotADirectoryError):
        Files().make_directory(str(tmp_path / "a"))
    with pytest.raises(NotADirectoryError):
        Files().make_directory(str(tmp_path / "a" / "b"))


def test_bytes_that_are_reserved_are_zeros_and_take_space(tmp_path: Path) -> None:
    files = Files()
    fd = files.create(str(tmp_path / "segment"))
    files.write(fd, b"x" * 512, 0)
    assert files.reserve(fd, 512, (1 << 20) - 512)
    assert files.size(fd) == 1 << 20
    assert os.fstat(fd).st_blocks * 512 >= 1 << 20
    assert files.read(fd, 1 << 20, 0) == b"x" * 512 + bytes((1 << 20) - 512)
    files.close(fd)


def test_file_system_that_cannot_reserve_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, offset: int, count: int) -> None:
        del fd, offset, count
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    files = Files()
    fd = files.create(str(tmp_path / "segment"))
    assert not files.reserve(fd, 0, 4096)
    assert files.size(fd) == 0
    files.close(fd)
