"""Interface of queues' archives for gateways, wherever the queues are led."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from headrace_broker.core.queue.command.archive_command import (
    encode_close_archive,
    encode_commit_archive,
    encode_open_archive,
)
from headrace_broker.core.queue.state.archive_effect import ArchiveAnswer, ArchiveInfo
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import ARCHIVE_BLOCK_BYTES, ARCHIVE_BLOCK_ROWS
from headrace_broker.runtime.archive.chunk import Rows, cut_rows
from headrace_broker.runtime.lease.group_commands import ArchiveCommand, GroupCommands
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_broker.runtime.rpc.leader import LeaderQuestion, Leaders
from headrace_broker.runtime.rpc.protocol import READS


class Fetch(LeaderQuestion[Rows], frozen=True, tag="archive_fetch"):
    """Rows of the archive from an index on, at most so many."""

    pool: ClassVar[str] = READS
    start: int
    rows: int


class Describe(LeaderQuestion[ArchiveInfo], frozen=True, tag="archive_describe"):
    """Request the content of an archive and its groups."""


def _fetch(host: QueueHost, entries: Entries, asked: Fetch) -> Rows:
    most = max(1, min(asked.rows, ARCHIVE_BLOCK_ROWS))
    return cut_rows(host, entries, asked.start, most, ARCHIVE_BLOCK_BYTES)


class ArchiveClient:
    """Asks leaders, here or on other nodes."""

    def __init__(self, leaders: Leaders, commands: GroupCommands) -> None:
        self._leaders = leaders  # asks them
        self._commands = commands  # has commands of groups applied
        leaders.serve_reading(Fetch, _fetch)
        leaders.serve(Describe, lambda host, _: host.machine.archive())

    # Commands; all raise what `GroupCommands.ask` does

    async def open_group(self, queue: Queue, name: bytes, opener: bytes) -> ArchiveAnswer:
        """Open a group for an owner called `opener`; see `OpenArchive`."""
        return await self._ask(queue, lambda n: encode_open_archive(n, name, opener))

    async def commit(self, queue: Queue, name: bytes, epoch: int, up_to: int) -> ArchiveAnswer:
        """Note that a group is done with all rows before index `up_to`."""
        return await self._ask(queue, lambda n: encode_commit_archive(n, name, epoch, up_to))

    async def close_group(self, queue: Queue, name: bytes, epoch: int) -> ArchiveAnswer:
        """Forget a group, whose epoch is `epoch` or any for 0."""
        return await self._ask(queue, lambda n: encode_close_archive(n, name, epoch))

    async def _ask(self, queue: Queue, encode: Callable[[int], bytes]) -> ArchiveAnswer:
        return await self._commands.ask(queue, ArchiveCommand, encode)

    # Reading; raises LeaderUnavailableError and QueueGoneError

    async def describe(self, queue: Queue) -> ArchiveInfo:
        """Return the content of an archive, and its readers."""
        return await self._leaders.ask(queue, Describe(queue.group))

    async def fetch(self, queue: Queue, start: int, rows: int) -> Rows:
        """Return rows from index `start` on, at most `rows`, within the bounds of a block."""
        return await self._leaders.ask(queue, Fetch(queue.group, start, rows))
