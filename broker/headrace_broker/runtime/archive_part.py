"""What a node has to do with archives, its own and those of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.definition import Queue
from headrace_broker.runtime.archive_listing import ArchiveListing
from headrace_broker.runtime.archive_log import ArchiveLog
from headrace_broker.runtime.archiving import ArchiveClient
from headrace_broker.runtime.group_commands import GroupCommands
from headrace_broker.runtime.inquiry import Inquiries
from headrace_broker.runtime.queue_host import QueueHost


class ArchivePart:
    """The parts that belong together.

    Attributes:
        client: asks single queues.
        listing: asks all.
        log: archives as a log that others read.
    """

    def __init__(
        self,
        node: int,
        hosts: dict[int, QueueHost],
        locate: Callable[[Queue], int],
        send: Callable[[int, bytes], bool],
        exists: Callable[[Queue], bool],
        commands: GroupCommands,
        names: Mapping[int, str],
        inquiries: Inquiries,
        view: CatalogView,
    ) -> None:
        self.client = ArchiveClient(node, hosts, locate, send, exists, commands)
        self.listing = ArchiveListing(node, names, hosts, inquiries, self.client, locate)
        self.log = ArchiveLog(view, self.client, self.listing)

    def handlers(self) -> dict[str, Callable[[int, Any], None]]:
        """Return who takes which kind of payload of another node."""
        return {
            "archive_fetch": self.client.receive_fetch,
            "archive_chunk": self.client.receive_chunk,
            "archive_question": self.client.receive_question,
            "archive_state": self.client.receive_state,
        }
