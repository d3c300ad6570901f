"""A clone without a release's commit says so; only a shallow one is excused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from e2e.harness import release
from e2e.harness.release import HistoryMissingError, Release, check_history

AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b")


def git(folder: Path, *arguments: str) -> str:
    command = ["git", *AUTHOR, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository of two commits."""
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "-q")
    for number in (1, 2):
        git(folder, "commit", "-q", "--allow-empty", "-m", f"commit {number}")
    return folder


def use(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(release, "GIT", ("git", "-C", str(folder)))


def test_shallow_clone_misses_a_release(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Release("1.0.0", git(origin, "rev-parse", "HEAD~1"))
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin}", str(clone))
    use(monkeypatch, clone)
    with pytest.raises(HistoryMissingError, match="is not in this clone, which is shallow"):
        check_history(first)
    git(clone, "fetch", "-q", "--unshallow")
    check_history(first)


def test_full_clone_without_the_commit_is_an_error(
    origin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, origin)
    check_history(Release("1.0.0", git(origin, "rev-parse", "HEAD")))
    with pytest.raises(RuntimeError, match="though it is a full one"):
        check_history(Release("1.0.0", "1" * 40))
