"""Archives of a node: its own, and access to those of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace_broker.catalog.view import CatalogView
from headrace_broker.runtime.archive.archiving import ArchiveClient
from headrace_broker.runtime.archive.listing import ArchiveListing
from headrace_broker.runtime.archive.log import ArchiveLog
from headrace_broker.runtime.lease.group_commands import GroupCommands
from headrace_broker.runtime.rpc.inquiry import Inquiries
from headrace_broker.runtime.rpc.leader_client import Reach


class ArchivePart:
    """The parts that belong together.

    Args:
        reach: asks the leaders of queues.
        commands: of groups that read a queue.
        inquiries: asks the other nodes.
        names: of all nodes by id; they may change.
        view: the catalog.
        address: HOST:PORT of this node's gRPC listener, "" without one.

    Attributes:
        client: asks single queues.
        listing: asks all.
        log: archives as a log that others read.
    """

    def __init__(
        self,
        reach: Reach,
        commands: GroupCommands,
        inquiries: Inquiries,
        names: Mapping[int, str],
        view: CatalogView,
        address: str,
    ) -> None:
        self.client = ArchiveClient(*reach, commands)
        self.listing = ArchiveListing(
            reach.node, names, reach.hosts, inquiries, self.client, reach.locate, address
        )
        self.log = ArchiveLog(view, self.client, self.listing)

    def handlers(self) -> dict[str, Callable[[int, Any], None]]:
        """Return who takes which kind of payload of another node."""
        return {
            "archive_fetch": self.client.receive_fetch,
            "archive_chunk": self.client.receive_chunk,
            "archive_question": self.client.receive_question,
            "archive_state": self.client.receive_state,
        }
