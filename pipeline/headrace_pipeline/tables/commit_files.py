"""Files of commits of a plain Parquet table: `_commits/VERSION.json`, made whole or not at all.

Every so often a file `VERSION.state` says what all commits up to it come to, so that not all need
be read; those before it stay, for versions of the past, until vacuum takes them.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from headrace_pipeline.error import PipelineError
from headrace_pipeline.limits import COMMITS_PER_STATE
from headrace_pipeline.tables.manifest import Commit, State
from headrace_pipeline.tables.place import sync_local

FOLDER: Final = "_commits"

_Kind = TypeVar("_Kind", Commit, State)


class CommitFiles:
    """Commits of a table.

    Args:
        root: directory of the table.
    """

    def __init__(self, root: str) -> None:
        self._folder = Path(root, FOLDER)

    def state(self, version: int | None = None) -> State | None:
        """Return what commits up to a version, or all, come to; None where there is none.

        Raises:
            PipelineError: there is no such version, or no longer, or a file is damaged.
        """
        commits, states = self._numbers("json"), self._numbers("state")
        if not commits:
            return None
        last = commits[-1] if version is None else version
        if last > commits[-1] or last < 0:
            raise PipelineError(f"{self._folder.parent}: there is no version {version}")
        base = max((each for each in states if each <= last), default=None)
        found = State() if base is None else self._read(base, "state", State)
        for number in range(found.version + 1, last + 1):
            found = found.after(self.commit(number))
        return found

    def commit(self, version: int) -> Commit:
        """Return a commit.

        Raises:
            PipelineError: it is not there, or damaged.
        """
        return self._read(version, "json", Commit)

    def add(self, commit: Commit, after: State) -> bool:
        """Make a commit the next one after a state; return False if another one came first.

        It is on the disk then. Of two that try at once one comes through.

        Raises:
            OSError: the file system says no, or has no hard links.
        """
        version = after.version + 1
        self._folder.mkdir(parents=True, exist_ok=True)
        made = self._write(msgspec.json.encode(commit))
        try:
            os.link(made, self._path(version, "json"))
        except FileExistsError:
            return False
        finally:
            made.unlink()
        sync_local(str(self._folder))
        if version % COMMITS_PER_STATE == 0:
            self._write(msgspec.json.encode(after.after(commit))).replace(
                self._path(version, "state")
            )
        return True

    def staged(self) -> dict[str, int]:
        """Return versions by staging directory, of the newest commits."""
        newest = self._numbers("json")[-2 * COMMITS_PER_STATE :]
        return {self.commit(number).staged: number for number in newest}

    def drop_before(self, at_ms: int) -> list[str]:
        """Remove commits that are older and that no newer version needs; return their paths."""
        states = self._numbers("state")
        if not states:
            return []
        old = [each for each in self._numbers("json") if each < states[-1]]
        kept = next((each for each in old if self.commit(each).at_ms >= at_ms), states[-1])
        base = max((each for each in states if each <= kept), default=0)
        gone = [self._path(each, "json") for each in old if each < base]
        gone += [self._path(each, "state") for each in states if each < base]
        for path in gone:
            path.unlink(missing_ok=True)
        return [str(path) for path in gone]

    def _numbers(self, suffix: str) -> list[int]:
        names = os.listdir(self._folder) if self._folder.is_dir() else []
        return sorted(int(name.split(".")[0]) for name in names if name.endswith(f".{suffix}"))

    def _path(self, version: int, suffix: str) -> Path:
        return self._folder / f"{version:020d}.{suffix}"

    def _read(self, version: int, suffix: str, kind: type[_Kind]) -> _Kind:
        path = self._path(version, suffix)
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            raise PipelineError(f"{self._folder.parent}: there is no version {version}") from None
        except msgspec.DecodeError as error:
            raise PipelineError(f"{path} is damaged: {error}") from None

    def _write(self, octets: bytes) -> Path:
        path = self._folder / f".{uuid.uuid4()}"
        with path.open("wb") as file:
            file.write(octets)
            file.flush()
            os.fsync(file.fileno())
        return path
