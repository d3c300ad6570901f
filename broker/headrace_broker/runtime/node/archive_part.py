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
        address: HOST:PORT of this node's gRPC listener, "" without one.
    """

    def __init__(
        self,
        rpc: Rpc,  # asks the other nodes
        leaders: Leaders,  # asks those of queues
        commands: GroupCommands,  # of groups that read a queue
        names: Mapping[int, str],  # of all nodes by id; they may change
        view: CatalogView,
        address: str,  # HOST:PORT of this node's gRPC listener, "" without one
    ) -> None:
        self.client = ArchiveClient(leaders, commands)  # asks single queues
        # asks all
        self.listing = ArchiveListing(
            rpc.node, names, leaders.hosts, rpc, self.client, leaders.locate, address
        )
        self.log = ArchiveLog(view, self.client, self.listing)  # archives as a log that others read
