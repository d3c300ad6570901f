"""An opened log whose writer a test can wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.errors import LogWriteError
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.writing.identity import Identity
from headrace_simulation.memory_files import MemoryFiles

DIRECTORY = "/log"
WAIT_SECONDS = 30.0


class OpenLog:
    """A log, and everything its writer reported."""

    def __init__(
        self,
        files: Files,
        directory: str = DIRECTORY,
        identity: Identity | None = None,
        segment_bytes: int = 8192,
        cache_bytes: int = 1 << 20,
        seal_seconds: float = 3600.0,
        entry_bytes_max: int = 1 << 25,
    ) -> None:
        options = LogOptions(
            segment_bytes=segment_bytes,
            entry_bytes_max=entry_bytes_max,
            cache_bytes=cache_bytes,
            full_retry_seconds=0.01,
            seal_seconds=seal_seconds,
        )
        self.changed = threading.Condition()
        self.tokens: list[object] = []
        self.full: list[bool] = []
        self.failures: list[LogWriteError] = []
        self.next_token = 1
        self.log = SharedLog.open(directory, options, identity, files)
        self.log.writer.on_durable = self._durable
        self.log.writer.on_full = self._full
        self.log.writer.on_failed = self._failed

    def _durable(self, tokens: list[object]) -> None:
        with self.changed:
            self.tokens.extend(tokens)
            self.changed.notify_all()

    def _full(self, full: bool) -> None:
        with self.changed:
            self.full.append(full)
            self.changed.notify_all()

    def _failed(self, error: LogWriteError) -> None:
        with self.changed:
            self.failures.append(error)
            self.changed.notify_all()

    def wait(self, condition: Callable[[], object]) -> None:
        """Wait until a report makes `condition` true."""
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_SECONDS), "the writer did not answer"

    def append(
        self,
        group: int,
        entries: list[Entry],
        state: HardState | None = None,
        must_sync: bool = True,
    ) -> int:
        """Append without flush; return the token."""
        token = self.next_token
        self.next_token += 1
        self.log.append(group, state, entries, must_sync, token)
        return token

    def commit(self, group: int, entries: list[Entry], state: HardState | None = None) -> bool:
        """Append and wait; return whether it became durable (False: the writer failed)."""
        token = self.append(group, entries, state)
        self.log.flush()
        self.wait(lambda: token in self.tokens or self.failures)
        return token in self.tokens

    def contents(self) -> dict[int, tuple[HardState, list[Entry]]]:
        """Everything the log holds, by group."""
        out = {}
        for group in self.log.groups():
            view = self.log.group(group)
            last = view.last_index()
            entries = view.entries(1, last + 1, 1 << 40) if last else []
            out[group] = (view.hard_state, entries)
        return out


@pytest.fixture
def disk() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def open_log() -> Iterator[Callable[..., OpenLog]]:
    """Open logs that are closed after the test."""
    opened: list[OpenLog] = []

    def open_one(*args: object, **options: object) -> OpenLog:
        opened.append(OpenLog(*args, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for each in opened:
        each.log.close()


@pytest.fixture
def run() -> Callable[..., list[Entry]]:
    """Make consecutive entries from a first index, a term and each one's data."""

    def make(first: int, term: int, *blobs: bytes) -> list[Entry]:
        return [Entry(first + at, term, 0, data) for at, data in enumerate(blobs)]

    return make
