"""The archives of all queues as a log that others read: a shard for each queue that has one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from headrace_broker.catalog.access import QUEUE, Caller, check_allowed, check_enters, knows_queue
from headrace_broker.catalog.permission import READ, Rights
from headrace_broker.catalog.view import CatalogView
from headrace_broker.codecs.column_block import encode_columns
from headrace_broker.core.queue.state.archive_effect import (
    ARCHIVE_FENCED,
    ARCHIVE_GROUPS_FULL,
    ARCHIVE_NOT_YET,
    ARCHIVE_OFF,
    ARCHIVE_UNKNOWN_GROUP,
    ArchiveAnswer,
)
from headrace_broker.model.archive import ArchiveGroupStatus, ArchiveStatus
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import ARCHIVE_GROUPS_MAX
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.archive.archiving import ArchiveClient
from headrace_broker.runtime.archive.chunk import Rows
from headrace_broker.runtime.archive.columns import SCHEMA, ArchiveColumns
from headrace_broker.runtime.archive.listing import ArchiveListing
from headrace_broker.runtime.export.log import (
    Block,
    DataGoneError,
    FencedError,
    Group,
    GroupListing,
    NotYetError,
    OtherIncarnationError,
    Shard,
    ShardListing,
    ShardUnavailableError,
    TooManyGroupsError,
    UnknownGroupError,
    UnknownShardError,
)
from headrace_broker.runtime.lease.group_commands import TooEarlyError
from headrace_broker.runtime.rpc.leader import LeaderUnavailableError, QueueGoneError


class ArchiveLog:
    """Archives as `ExportLog`: a shard's name is the group of its queue."""

    def __init__(self, view: CatalogView, archives: ArchiveClient, listing: ArchiveListing) -> None:
        self._view = view  # the catalog as applied here
        self._archives = archives  # asks single queues
        self._listing = listing  # asks all

    def check(self, caller: Caller, shard: str) -> None:
        """Refuse a user who may not read a queue; a request for all shards is filtered instead.

        Shards are numbers, which can be guessed: a queue that the caller may not know of is
        answered like a number that no queue has.
        """
        if not shard:
            return
        queue = self._queue(shard)
        if not knows_queue(caller, self._view, queue):
            raise _unknown(shard)
        check_enters(self._view, caller.name, queue.vhost)
        check_allowed(Rights(self._view), caller.name, queue.vhost, READ, QUEUE, queue.name)

    async def shards(self, caller: Caller, vhost: str = "", queue: str = "") -> ShardListing:
        """Return the archives of queues that the caller may read."""
        found, missing = await self._visible(caller)
        shards = [
            self._shard(status)
            for status in found
            if vhost in ("", status.vhost) and queue in ("", status.queue)
        ]
        return ShardListing(sorted(shards, key=lambda shard: shard.name), missing)

    async def read(
        self, shard: str, incarnation: int, start: int, end: int
    ) -> AsyncGenerator[Block, None]:
        """Return the blocks that hold rows `start` to `end` - 1, in order."""
        queue = self._queue(shard)
        columns = ArchiveColumns()
        while True:
            with _errors(queue):
                rows = await self._archives.fetch(queue, start, end - start)
            _check_rows(rows, incarnation, start, end)
            if start == end:
                return
            block = encode_columns(SCHEMA, columns.of(queue, start, rows))
            yield Block(start, SCHEMA, block, len(block.body))
            start = min(start + rows.row_count, end)

    async def open_group(self, shard: str, group: str, opener: bytes) -> Group:
        """Open a group at a queue's archive."""
        queue = self._queue(shard)
        with _errors(queue):
            answer = await self._archives.open_group(queue, group.encode(), opener)
        return await self._group(queue, group, answer)

    async def commit(
        self, shard: str, group: str, epoch: int, incarnation: int, up_to: int
    ) -> Group:
        """Note that a group is done with all rows before `up_to`."""
        queue = self._queue(shard)
        with _errors(queue):
            status = await self._listing.of(queue)
        _check_incarnation(status.since_ms, incarnation)
        with _errors(queue):
            answer = await self._archives.commit(queue, group.encode(), epoch, up_to)
        return await self._group(queue, group, answer)

    async def groups(self, caller: Caller, shard: str = "", group: str = "") -> GroupListing:
        """Return groups at queues that the caller may read."""
        missing: tuple[str, ...] = ()
        if shard:
            queue = self._queue(shard)
            with _errors(queue):
                found = [await self._listing.of(queue)]
        else:
            found, missing = await self._visible(caller)
        groups = [
            _group_of(self._shard(status), each)
            for status in found
            for each in status.groups
            if group in ("", each.name)
        ]
        return GroupListing(sorted(groups, key=lambda each: (each.shard.name, each.name)), missing)

    async def close_group(self, shard: str, group: str, epoch: int) -> None:
        """Forget a group."""
        queue = self._queue(shard)
        with _errors(queue):
            answer = await self._archives.close_group(queue, group.encode(), epoch)
        _check_answer(answer)

    # Inner

    def _queue(self, shard: str) -> Queue:
        queue = self._view.queue_by_group(int(shard)) if shard.isdecimal() else None
        if queue is None:
            raise _unknown(shard)
        return queue

    async def _visible(self, caller: Caller) -> tuple[list[ArchiveStatus], tuple[str, ...]]:
        found, missing = await self._listing.everywhere()
        return [status for status in found if self._may_read(caller, status)], missing

    def _may_read(self, caller: Caller, status: ArchiveStatus) -> bool:
        try:
            self.check(caller, str(status.group))
        except (AmqpError, UnknownShardError):
            return False
        return True

    def _shard(self, status: ArchiveStatus) -> Shard:
        return Shard(
            str(status.group),
            status.since_ms,
            status.first_index,
            status.next_index,
            status.byte_count,
            status.first_ms,
            status.last_ms,
            status.node,
            status.address,
            status.vhost,
            status.queue,
        )

    async def _group(self, queue: Queue, name: str, answer: ArchiveAnswer) -> Group:
        """Return the group that a command was about; ExportError where it was refused."""
        _check_answer(answer)
        with _errors(queue):
            status = await self._listing.of(queue)
        group = answer.group
        assert group is not None, "it was opened, or has committed"
        epoch, committed = int(group.epoch), int(group.committed)
        return Group(self._shard(status), name, epoch, committed, int(group.committed_ms))


def _unknown(shard: str) -> UnknownShardError:
    return UnknownShardError(f"there is no archive '{shard}'")


def _group_of(shard: Shard, group: ArchiveGroupStatus) -> Group:
    return Group(shard, group.name, group.epoch, group.committed, group.committed_ms)


@contextmanager
def _errors(queue: Queue) -> Iterator[None]:
    """Translate errors on the way to a queue's leader into those of `ExportLog`."""
    try:
        yield
    except QueueGoneError as error:
        raise UnknownShardError(str(error)) from error
    except (LeaderUnavailableError, TooEarlyError) as error:
        raise ShardUnavailableError(str(error)) from error


def _check_incarnation(since_ms: int, incarnation: int) -> None:
    if since_ms == 0:
        raise UnknownShardError("the queue never had an archive")
    if since_ms != incarnation:
        raise OtherIncarnationError(f"the archive's incarnation is {since_ms}", since_ms)


def _check_rows(rows: Rows, incarnation: int, start: int, end: int) -> None:
    _check_incarnation(rows.since_ms, incarnation)
    if start < rows.first:
        text = f"rows {start} to {rows.first - 1} were dropped"
        raise DataGoneError(text, rows.first)
    if end > rows.following:
        raise NotYetError(f"the next row will be {rows.following}", rows.following)


def _check_answer(answer: ArchiveAnswer) -> None:
    """Raise the ExportError that a queue's refusal means."""
    status = answer.status
    if status == ARCHIVE_OFF:
        raise UnknownShardError("the queue never had an archive")
    if status == ARCHIVE_UNKNOWN_GROUP:
        raise UnknownGroupError("the archive has no such group")
    if status == ARCHIVE_GROUPS_FULL:
        text = f"the archive has {ARCHIVE_GROUPS_MAX} groups, which is the maximum: close one"
        raise TooManyGroupsError(text)
    if status == ARCHIVE_NOT_YET:
        following = int(answer.following)
        raise NotYetError(f"the next row will be {following}", following)
    if status == ARCHIVE_FENCED:
        assert answer.group is not None, "somebody else has opened it"
        epoch = int(answer.group.epoch)
        raise FencedError(f"the group is open under epoch {epoch}", epoch)
