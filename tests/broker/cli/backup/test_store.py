"""Stores of backups: an object with its final name is complete."""

from __future__ import annotations

import importlib
import stat
from pathlib import Path

import pytest

from headrace_broker.cli.backup.store import DirectoryStore, ObjectStore, StoreError, open_store


@pytest.fixture(params=["directory", "file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path / "made" / "here")
    pytest.importorskip("fsspec")
    if request.param == "file":
        return f"file://{tmp_path}/made/here"
    return f"memory://{tmp_path.name}/here"


def test_files_are_written_read_measured_and_removed(place) -> None:
    store = open_store(place)
    assert store.place == place
    assert store.size("a/b/one.txt") == -1
    store.write("a/b/one.txt", b"one")
    store.write("two.txt", b"")
    store.write("two.txt", b"second")
    assert (store.size("a/b/one.txt"), store.size("two.txt")) == (3, 6)
    with store.open("a/b/one.txt") as source:
        assert (source.read(2), source.read()) == (b"on", b"e")
    assert open_store(place).read("two.txt") == b"second"
    with pytest.raises(FileNotFoundError):
        store.read("three.txt")
    store.remove_folder("a")
    store.remove_folder("a")
    assert store.size("a/b/one.txt") == -1


def test_file_that_is_not_finished_has_no_name(place) -> None:
    if place.startswith("memory:"):
        pytest.skip("fsspec's memory has no files that are not finished")
    store = open_store(place)
    store.write("kept", b"old")

    def cut_off(name: str) -> None:
        with store.create(name) as out:
            out.write(b"half")
            raise KeyboardInterrupt

    for name in ("kept", "new"):
        with pytest.raises(KeyboardInterrupt):
            cut_off(name)
    assert store.size("new") == -1
    assert store.read("kept") == b"old"


def test_files_of_a_directory_are_their_owners_only(tmp_path) -> None:
    store = DirectoryStore(tmp_path / "backup")
    store.write("queues/1/data", b"x")
    for path in (tmp_path / "backup").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_url_of_no_store_that_is_known(monkeypatch) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(StoreError, match="nowhere://x"):
        ObjectStore("nowhere://x")


def test_without_the_library_the_extra_is_named(monkeypatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(StoreError, match=r"pip install 'headrace\[objectstore\]'"):
        open_store("s3://bucket/path")
