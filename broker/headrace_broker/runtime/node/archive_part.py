"""What a node has to do with archives, its own and those of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace_broker.config_telemetry import advertised_address
from headrace_broker.runtime.archive_listing import ArchiveListing
from headrace_broker.runtime.archive_log import ArchiveLog
from headrace_broker.runtime.archiving import ArchiveClient

if TYPE_CHECKING:
    from headrace_broker.runtime.node import BrokerNode


class ArchivePart:
    """The parts that belong together.

    Attributes:
        client: asks single queues.
        listing: asks all.
        log: archives as a log that others read.
    """

    def __init__(self, node: BrokerNode) -> None:
        hosting, number = node.hosting, node.config.node.id
        self.client = ArchiveClient(
            number,
            hosting.hosts,
            hosting.locate,
            node.raft.send,
            node.queue_exists,
            node.leases.commands,
        )
        inquiries = node.clients.inquiries
        address = advertised_address(node.config.listeners, node.config.address)
        self.listing = ArchiveListing(
            number, node.names, hosting.hosts, inquiries, self.client, hosting.locate, address
        )
        self.log = ArchiveLog(node.catalog.catalog, self.client, self.listing)

    def handlers(self) -> dict[str, Callable[[int, Any], None]]:
        """Return who takes which kind of payload of another node."""
        return {
            "archive_fetch": self.client.receive_fetch,
            "archive_chunk": self.client.receive_chunk,
            "archive_question": self.client.receive_question,
            "archive_state": self.client.receive_state,
        }
