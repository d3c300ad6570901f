"""The node as its gateways see it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import final

from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.catalog.permission import Permissions
from headrace_broker.catalog.permission_watch import PermissionWatches
from headrace_broker.catalog.view import CatalogView
from headrace_broker.flow.account import Account
from headrace_broker.flow.blocked import BlockedState
from headrace_broker.logs.log_event import (
    CONNECTION,
    CONNECTION_CLOSED,
    CONNECTION_OPENED,
    Event,
    log_event,
)
from headrace_broker.model.client_limits import ClientLimits
from headrace_broker.model.definition import Exchange, Queue
from headrace_broker.model.flow import REPUBLISH, Cause
from headrace_broker.model.reply_code import INTERNAL_ERROR, AmqpError
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.calls.gate import CallGate
from headrace_broker.runtime.clients.churn import Churn
from headrace_broker.runtime.clients.client_counts import ClientCounts
from headrace_broker.runtime.clients.client_rates import ClientRates
from headrace_broker.runtime.clients.replies import Replies
from headrace_broker.runtime.cluster.counts import CountsClient
from headrace_broker.runtime.cluster.reaper import Reaper
from headrace_broker.runtime.cluster.topology import Topology
from headrace_broker.runtime.contract.port import ConnectionInfo, QueueClient, QueueListener
from headrace_broker.runtime.hosting.hosting import Hosting
from headrace_broker.runtime.intake.client_flow import ClientFlow
from headrace_broker.runtime.intake.loop_watch import LoopWatch
from headrace_broker.runtime.intake.quotas import Quotas
from headrace_broker.runtime.lease.group_commands import amqp_errors
from headrace_broker.runtime.lease.leasing import LeaseClient
from headrace_broker.runtime.routing.router import Router
from headrace_broker.runtime.security.authenticator import Authenticator


def _soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


def _now_us() -> int:
    return time.monotonic_ns() // 1000


@final
class NodeBroker(Broker):
    """Parts of a node, for gateways."""

    def __init__(
        self,
        names: tuple[str, str],
        limits: ClientLimits,
        view: CatalogView,
        router: Router,
        hosting: Hosting,
        topology: Topology,
        counts: CountsClient,
        reaper: Reaper,
        replies: Replies,
        leases: LeaseClient,
        blocked: BlockedState,
    ) -> None:
        self.node_name, self.cluster_name = names
        self.limits = limits
        self.boot = 0
        self.permissions = Permissions(view)
        self.standings = PermissionWatches(view, _soon, _now_us)
        self.quotas = Quotas()
        self.connections: dict[str, ConnectionInfo] = {}  # open client connections by id
        self.churn = Churn()  # how many came and went
        self.rates = ClientRates(self.connections, router, view)
        self.client_counts = ClientCounts(view, self.connections)
        self.client_flow = ClientFlow(view, hosting.ledger)  # what clients are told, and weigh
        self.ledger = hosting.ledger
        self.flow = hosting.ledger.limits
        self.intake = hosting.intake
        self.effort_turns = hosting.effort_turns
        self.loop_watch = LoopWatch()
        self.calls = CallGate(self.effort_turns, self.loop_watch)  # turns of HTTP and gRPC calls
        self.queue_gates = hosting.queue_gates  # what is under way to each queue from here
        cause = Cause(f"{self.node_name}/{REPUBLISH}", REPUBLISH, REPUBLISH, self.node_name)
        self.republish_account = self.ledger.open(cause)
        self.blocked = blocked
        self.leases = leases
        self._view = view
        self.router = router
        self.replies = replies
        self.topology = topology
        self._hosting = hosting
        self._counts = counts
        self._reaper = reaper
        self.authenticator = Authenticator(view.user, epoch=view.session_epoch)

    @override
    def clock_us(self) -> i64:
        return time.monotonic_ns() // 1000

    def limits_changed(self) -> None:
        """Make all waiting work check the changed limits of flow control."""
        self._hosting.limits_changed()
        for info in list(self.connections.values()):
            if info.control is not None:
                info.control.limits_changed()

    @property
    def login_counts(self) -> dict[tuple[str, str], int]:
        """Log-ins by protocol and result."""
        return self.authenticator.counts

    @override
    def vhost_exists(self, vhost: str) -> bool:
        return self._view.vhost(vhost) is not None

    @override
    def allows_immediate(self, vhost: str, queues: tuple[Queue, ...]) -> bool:
        return self.router.allows_immediate(vhost, queues)

    @override
    def user_tags(self, user: str) -> tuple[str, ...]:
        found = self._view.user(user)
        return found.tags if found is not None else ()

    @override
    def queue(self, vhost: str, name: str) -> Queue | None:
        return self._view.queue(vhost, name)

    @override
    def queue_by_group(self, group: int) -> Queue | None:
        return self._view.queue_by_group(group)

    @override
    def exchange(self, vhost: str, name: str) -> Exchange | None:
        return self._view.exchange(vhost, name)

    @override
    async def queue_counts(self, queue: Queue) -> tuple[int, int]:
        with amqp_errors():
            counts = await self._counts.ask(queue, using=True)
        return counts.ready, counts.consumers

    @override
    async def catch_up(self) -> None:
        await self.topology.catch_up()

    @override
    def open_queue(self, queue: Queue, listener: QueueListener, account: Account) -> QueueClient:
        if self.boot == 0:
            raise AmqpError(INTERNAL_ERROR, f"node '{self.node_name}' has yet to join the cluster")
        return self._hosting.open_session(queue, listener, account)

    @override
    async def drop_owner(self, owner: str) -> None:
        await self._reaper.drop_owner(owner)

    @override
    def connection_opened(self, info: ConnectionInfo) -> None:
        self.connections[info.id] = info
        self.churn.opened(info)
        _log_client(CONNECTION_OPENED, info)
        if info.account is not None:
            info.account.weight = self.client_flow.weight(info.user)

    @override
    def connection_closed(self, info: ConnectionInfo) -> None:
        if self.connections.pop(info.id, None) is not None:
            self.rates.closed(info)
        self.churn.closed(info)
        _log_client(CONNECTION_CLOSED, info)


def _log_client(event: Event, info: ConnectionInfo) -> None:
    if CONNECTION.isEnabledFor(event.level):
        where = {"vhost": info.vhost, "protocol": info.protocol}
        log_event(CONNECTION, event, connection=info.name, user=info.user, **where)
