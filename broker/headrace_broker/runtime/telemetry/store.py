"""The telemetry logs of this node, and the thread that works on them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from headrace_broker.codecs.column_block import ColumnBlock, Schema
from headrace_broker.model.limits import EXPORT_CHUNK_BYTES
from headrace_broker.runtime.export.log import (
    Group,
    Shard,
    ShardUnavailableError,
    UnknownShardError,
)
from headrace_broker.runtime.telemetry.book import GroupEntry
from headrace_broker.runtime.telemetry.question import (
    AskClose,
    AskCommit,
    AskGroups,
    AskOpen,
    AskRows,
    AskShard,
    LogQuestion,
    Result,
)
from headrace_broker.runtime.telemetry.shard_log import Bounds, ShardLog
from headrace_raftlog.storage.disk.files import Files

T = TypeVar("T")

log = logging.getLogger("headrace.node")


def unix_ms() -> int:
    """Return Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


class Place(NamedTuple):
    """Location of this node's shards."""

    node: str  # its name
    address: str  # HOST:PORT of its gRPC listener, "" without one


class TelemetryStore:
    """Keeps logs below a directory; a disk that fails makes them unavailable and nothing else."""

    def __init__(
        self,
        place: Place,
        directory: str,  # theirs alone
        schemas: Mapping[str, Schema],  # of the rows of each log, by its name
        bounds: Mapping[str, Bounds],  # of each log
        files: Files | None = None,
        clock_ms: Callable[[], int] = unix_ms,  # Unix time
    ) -> None:
        self._place = place  # where this is
        system = Files() if files is None else files
        self._logs = {
            name: ShardLog(system, os.path.join(directory, name), schema, bounds[name], clock_ms)
            for name, schema in schemas.items()
        }
        self._failures: dict[str, str] = {}
        self._thread = ThreadPoolExecutor(1, "telemetry")

    async def start(self) -> None:
        """Find existing shards."""
        await self._run(self._open)

    async def stop(self) -> None:
        """Close open files."""
        await self._run(self._close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> None:
        for name, each in self._logs.items():
            try:
                each.open()
            except OSError as error:
                self._fail(name, error)

    def _close(self) -> None:
        for each in self._logs.values():
            each.close()

    def _fail(self, name: str, error: OSError) -> None:
        text = str(error)
        if self._failures.get(name) != text:
            log.error("log of %s cannot be written: %s", name, text)
        self._failures[name] = text

    async def note(self, at_ms: int, make: Callable[[], Mapping[str, list[ColumnBlock]]]) -> None:
        """Append rows made in the thread, and drop others; what the disk refuses is lost."""
        await self._run(lambda: self._note(at_ms, make()))

    def _note(self, at_ms: int, blocks: Mapping[str, list[ColumnBlock]]) -> None:
        for name, each in self._logs.items():
            try:
                try:
                    if blocks.get(name):
                        each.append(at_ms, blocks[name])
                finally:
                    each.trim()  # a disk that is full above all
            except OSError as error:
                self._fail(name, error)
            else:
                if self._failures.pop(name, ""):
                    log.warning("log of %s can be written again", name)

    # Questions

    async def answer(self, question: LogQuestion) -> Result:
        """Answer a question about this node's logs.

        Raises ExportError: as the question's kind says in `ExportLog`.
        """
        return await self._run(lambda: self._answer(question))

    def _answer(self, question: LogQuestion) -> Result:
        found = self._logs.get(question.log)
        if found is None:
            raise UnknownShardError(f"node {self._place.node} has no such log")
        if not found.summary.incarnation:
            raise ShardUnavailableError(self._failures.get(question.log, "it is not open yet"))
        try:
            return self._answer_of(found, question)
        except OSError as error:
            raise ShardUnavailableError(f"its disk fails: {error}") from error

    def _answer_of(self, found: ShardLog, question: LogQuestion) -> Result:
        if isinstance(question, AskShard):
            return self._shard(found)
        if isinstance(question, AskRows):
            return found.read(
                question.incarnation, question.start, question.end, EXPORT_CHUNK_BYTES
            )
        if isinstance(question, AskOpen):
            entry = found.open_group(question.group, question.opener)
            return self._group(found, question.group, entry)
        if isinstance(question, AskCommit):
            entry = found.commit(
                question.group, question.epoch, question.incarnation, question.up_to
            )
            return self._group(found, question.group, entry)
        if isinstance(question, AskGroups):
            return [
                self._group(found, name, entry)
                for name, entry in sorted(found.groups().items())
                if question.group in ("", name)
            ]
        assert isinstance(question, AskClose)
        found.close_group(question.group, question.epoch)
        return None

    def _shard(self, found: ShardLog) -> Shard:
        return Shard(self._place.node, *found.summary, self._place.node, self._place.address)

    def _group(self, found: ShardLog, name: str, entry: GroupEntry) -> Group:
        return Group(self._shard(found), name, entry.epoch, entry.committed, entry.committed_ms)
