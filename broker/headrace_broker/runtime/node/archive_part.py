"""Archives of a node: its own, and access to those of others."""

from __future__ import annotations

from collections.abc import Mapping

from headrace_broker.catalog.view import CatalogView
from headrace_broker.runtime.archive.archiving import ArchiveClient
from headrace_broker.runtime.archive.listing import ArchiveListing
from headrace_broker.runtime.archive.log import ArchiveLog
from headrace_broker.runtime.lease.group_commands import GroupCommands
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.leader import Leaders


class ArchivePart:
    """The parts that belong together.

    Args:
        rpc: asks the other nodes.
        leaders: asks those of queues.
        commands: of groups that read a queue.
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
        rpc: Rpc,
        leaders: Leaders,
        commands: GroupCommands,
        names: Mapping[int, str],
        view: CatalogView,
        address: str,  # HOST:PORT of this node's gRPC listener, "" without one
    ) -> None:
        self.client = ArchiveClient(leaders, commands)
        self.listing = ArchiveListing(
            rpc.node, names, leaders.hosts, rpc, self.client, leaders.locate, address
        )
        self.log = ArchiveLog(view, self.client, self.listing)
