"""Archives, for people: their content, and closing of others' groups."""

from __future__ import annotations

from headrace_broker.model.archive import ArchiveStatus
from headrace_broker.model.definition import Queue
from headrace_broker.model.reply_code import NOT_FOUND, AmqpError
from headrace_broker.runtime.archive.archiving import ArchiveClient
from headrace_broker.runtime.archive.listing import ArchiveListing
from headrace_broker.runtime.lease.group_commands import amqp_errors
from headrace_broker.runtime.security import audit


class ArchiveService:
    """Answers administrators."""

    def __init__(self, listing: ArchiveListing, archives: ArchiveClient) -> None:
        self._listing = listing
        self._archives = archives

    async def of(self, queue: Queue) -> ArchiveStatus:
        """Return the archive of a queue.

        Raises AmqpError: NOT_FOUND without archive or queue, INTERNAL_ERROR without leader.
        """
        with amqp_errors():
            status = await self._listing.of(queue)
        if status.since_ms == 0:
            text = f"queue '{queue.name}' in vhost '{queue.vhost}' never had an archive"
            raise AmqpError(NOT_FOUND, text)
        return status

    async def close_group(self, queue: Queue, name: str) -> None:
        """Close a group of an archive, for which nothing is kept any more.

        Raises AmqpError: NOT_FOUND without group or queue, INTERNAL_ERROR without leader.
        """
        if name not in [group.name for group in (await self.of(queue)).groups]:
            text = f"no group '{name}' reads queue '{queue.name}' in vhost '{queue.vhost}'"
            raise AmqpError(NOT_FOUND, text)
        with amqp_errors():
            await self._archives.close_group(queue, name.encode(), 0)
        audit.record("close_archive_group", name, vhost=queue.vhost, queue=queue.name)
