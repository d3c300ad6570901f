from __future__ import annotations

from pathlib import Path

import pytest

from headrace_raftlog.storage.files import Files


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
