"""Operations of administrators on a node, besides those of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace_broker.catalog.command import AnyCommand
from headrace_broker.catalog.permission_watch import PermissionWatches
from headrace_broker.catalog.result import Result
from headrace_broker.catalog.view import CatalogView
from headrace_broker.config.shards import process_ids
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import LISTING_ROWS_MAX
from headrace_broker.model.status import QueueCounts
from headrace_broker.runtime.administration.log_level import LogLevels
from headrace_broker.runtime.archive.service import ArchiveService
from headrace_broker.runtime.clients.client_list import ClientListing
from headrace_broker.runtime.cluster.operations import Operations
from headrace_broker.runtime.cluster.topology import Topology
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.port import QueueListener
from headrace_broker.runtime.explain.flow_report import FlowReport
from headrace_broker.runtime.inspect.message_service import MessageService
from headrace_broker.runtime.inspect.publish_service import PublishService
from headrace_broker.runtime.lease.group_commands import amqp_errors
from headrace_broker.runtime.lease.listing import LeaseListing
from headrace_broker.runtime.metrics.source import NodeMetrics
from headrace_broker.runtime.metrics.stats import StatsBook
from headrace_broker.runtime.security import audit
from headrace_broker.runtime.security.page_logins import PageLogins

if TYPE_CHECKING:
    from headrace_broker.runtime.node.node import BrokerNode


class NodeAdministration:
    """Passes calls on to the parts of a node."""

    def __init__(self, node: BrokerNode) -> None:
        self.view: CatalogView = node.catalog.catalog  # the catalog as applied here
        self.clock: Clock = node.clock  # the time by which queues go
        self.topology: Topology = node.topology  # queues, exchanges and bindings
        # looks at, removes and moves single messages
        self.message_service = MessageService(node.broker, node.browsing)
        self.flow_report: FlowReport = node.flow_report
        self.operations: Operations = node.operations
        self.page_logins = PageLogins(node.config.node.id, self.view, node.rpc)
        self.log_levels = LogLevels(node.rpc, node.names, process_ids(node.config))
        self.standings: PermissionWatches = node.broker.standings
        self.stats = StatsBook(node)
        self.metrics = NodeMetrics(node, self.stats)
        self.publisher = PublishService(node.broker)
        hosting = node.hosting
        self.leases = LeaseListing(node.names, hosting.hosts, node.rpc, node.leases, hosting.locate)
        self.archives = ArchiveService(node.archives.listing, node.archives.client)
        self._node = node

    async def submit(self, command: AnyCommand) -> Result:
        """Apply a command, return the answer; AmqpError INTERNAL_ERROR without a quorum."""
        return await self.topology.submit(command)

    def snapshot(self) -> bytes:
        """Return the catalog as applied here."""
        return self._node.catalog.catalog.snapshot()

    def renewed_members(self) -> tuple[int, ...]:
        """Return the ids of replicas of nodes that have lost their data once."""
        return self._node.hosting.renewed_members()

    async def catch_up(self) -> None:
        """Wait until all that was decided is applied here; INTERNAL_ERROR without a quorum."""
        await self.topology.catch_up()

    async def counts(self, queue: Queue) -> QueueCounts:
        """Return the leader's counts; AmqpError INTERNAL_ERROR leaderless, or NOT_FOUND."""
        with amqp_errors():
            return await self._node.counts.ask(queue)

    async def led_counts(self, queue: Queue) -> tuple[QueueCounts, str]:
        """Return the leader's counts and the name of its node; errors are those of `counts`."""
        with amqp_errors():
            counts, leader = await self._node.counts.ask_whom(queue)
        return counts, self._node.names.get(leader, "")

    async def purge(self, queue: Queue) -> int:
        """Drop a queue's ready messages, return how many; AmqpError NOT_FOUND or INTERNAL_ERROR."""
        broker = self._node.broker
        client = broker.open_queue(queue, QueueListener(), broker.republish_account)
        try:
            count = await client.purge()
        finally:
            client.close()
        audit.record("purge_queue", queue.name, vhost=queue.vhost, messages=count)
        return count

    async def clients(
        self, channels: bool = False, rows_max: int = LISTING_ROWS_MAX
    ) -> ClientListing:
        """Return the client connections of the cluster, or their channels and consumers."""
        return await self._node.clients.everyone(channels, rows_max)

    async def close_connection(self, name: str, reason: str) -> tuple[int, tuple[str, ...]]:
        """Close the connections with a name or id; see `ClientList.close`."""
        closed = await self._node.clients.close(name, reason)
        audit.record("close_connection", name, reason=reason, closed=closed[0])
        return closed
