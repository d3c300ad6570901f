"""Archives, for people: their content, and closing of others' groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace_broker.model.archive import ArchiveStatus
from headrace_broker.model.definition import Queue
from headrace_broker.model.reply_code import INTERNAL_ERROR, NOT_FOUND, AmqpError
from headrace_broker.runtime.archive.archiving import ArchiveClient
from headrace_broker.runtime.archive.listing import ArchiveListing
from headrace_broker.runtime.lease.group_commands import TooEarlyError
from headrace_broker.runtime.rpc.leader_client import LeaderUnavailableError, QueueGoneError
from headrace_broker.runtime.security import audit


class ArchiveService:
    """Answers administrators."""

    def __init__(self, listing: ArchiveListing, archives: ArchiveClient) -> None:
        self._listing = listing
        self._archives = archives

    async def of(self, queue: Queue) -> ArchiveStatus:
        """Return the archive of a queue.

        Raises:
            AmqpError: NOT_FOUND it never had one, or the queue is gone, INTERNAL_ERROR it has no
                leader.
        """
        with _errors():
            status = await self._listing.of(queue)
        if status.since_ms == 0:
            text = f"queue '{queue.name}' in vhost '{queue.vhost}' never had an archive"
            raise AmqpError(NOT_FOUND, text)
        return status

    async def close_group(self, queue: Queue, name: str) -> None:
        """Close a group of an archive: nothing is kept for it any more.

        Raises:
            AmqpError: NOT_FOUND there is no such group or queue, INTERNAL_ERROR there is no leader.
        """
        if name not in [group.name for group in (await self.of(queue)).groups]:
            text = f"no group '{name}' reads queue '{queue.name}' in vhost '{queue.vhost}'"
            raise AmqpError(NOT_FOUND, text)
        with _errors():
            await self._archives.close_group(queue, name.encode(), 0)
        audit.record("close_archive_group", name, vhost=queue.vhost, queue=queue.name)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (LeaderUnavailableError, TooEarlyError) as error:
        raise AmqpError(INTERNAL_ERROR, str(error)) from error
    except QueueGoneError as error:
        raise AmqpError(NOT_FOUND, str(error)) from error
