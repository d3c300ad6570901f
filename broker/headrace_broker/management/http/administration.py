"""Operations of the node for the HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

from aiohttp import web

from headrace_broker.catalog.command import AnyCommand
from headrace_broker.catalog.movement import Step
from headrace_broker.catalog.permission import DEFAULT_EXCHANGE_NAME
from headrace_broker.catalog.permission_watch import PermissionWatches
from headrace_broker.catalog.result import Result
from headrace_broker.catalog.view import CatalogView
from headrace_broker.management.http.access import caller, check_sees
from headrace_broker.management.http.answer import not_found
from headrace_broker.model.archive import ArchiveStatus
from headrace_broker.model.definition import Binding, Exchange, Node, Queue, User
from headrace_broker.model.limits import LISTING_ROWS_MAX
from headrace_broker.model.stats import StatsRow
from headrace_broker.model.status import ClockStatus, LeaseGroupStatus, MemberStatus, NodeLoad
from headrace_broker.runtime.clients.client_list import ClientListing
from headrace_broker.runtime.cluster.operations import RebalanceStatus, StepOutcome
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.explain.flow_report import FlowReport
from headrace_broker.runtime.inspect.browsing import Page
from headrace_broker.runtime.inspect.counts import QueueCounts
from headrace_broker.runtime.inspect.message_service import FetchedMessage, Moved
from headrace_broker.runtime.metrics.metric import Sample
from headrace_broker.runtime.metrics.objects import ObjectTable
from headrace_broker.runtime.metrics.requests import HttpMeter
from headrace_broker.runtime.rpc.inquiry import ANSWER_SECONDS_MAX, Stats
from headrace_broker.runtime.security.page_logins import PageLogins


class TopologyPort(Protocol):
    """See `runtime.cluster.topology.Topology`. Everything raises AmqpError."""

    async def declare_queue(
        self,
        vhost: str,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: dict[str, Any],
        owner: str,
    ) -> Queue:
        """Create a queue, or return the equivalent one."""

    async def delete_queue(self, queue: Queue, if_unused: bool, if_empty: bool) -> int:
        """Delete a queue; returns its ready messages."""

    async def declare_exchange(self, exchange: Exchange) -> None:
        """Create an exchange unless an equivalent one exists."""

    async def delete_exchange(self, vhost: str, name: str, if_unused: bool) -> None:
        """Delete an exchange."""

    async def bind(self, binding: Binding) -> None:
        """Add a binding."""

    async def unbind(self, binding: Binding) -> None:
        """Remove a binding."""


class MessagePort(Protocol):
    """See `runtime.inspect.message_service.MessageService`. Everything raises AmqpError."""

    async def browse(self, queue: Queue, after: int, limit: int, body_octets: int) -> Page:
        """Return messages without taking them."""

    async def fetch(self, queue: Queue, count: int, operation: int) -> list[FetchedMessage]:
        """Take the first messages and settle them."""

    async def remove(self, queue: Queue, message_ids: list[int]) -> int:
        """Remove waiting messages; returns how many there were."""

    async def move(
        self, queue: Queue, message_ids: list[int], route: bytes, user: str = ""
    ) -> Moved:
        """Move waiting messages to where a route leads; the user is named as who caused it."""


class OperationsPort(Protocol):
    """See `runtime.cluster.operations.Operations`. What changes something raises AmqpError."""

    balance: RebalanceStatus

    def up(self) -> frozenset[int]:
        """Return the ids of the nodes that run."""

    def clock(self, node: int) -> ClockStatus | None:
        """Return how a node's clocks stand, None while they were not measured."""

    def placed_on(self, node: int) -> list[Queue]:
        """Return the queues with a replica on a node."""

    async def members(self, queue: Queue) -> list[MemberStatus]:
        """Return what a queue's leader knows of its replicas."""

    async def loads(self) -> dict[int, NodeLoad]:
        """Return what nodes do."""

    async def apply_steps(self, steps: Sequence[Step]) -> list[StepOutcome]:
        """Take steps."""

    async def admit(self, node: Node) -> Node:
        """Let a node join."""

    async def set_maintenance(self, node: Node, on: bool) -> Node:
        """Have a node drained, or let it serve."""

    async def forget(self, node: Node) -> None:
        """Remove a node."""

    async def transfer(self, queue: Queue, node: Node) -> None:
        """Have a queue led by a node."""

    def begin_rebalance(self, wanted: Callable[[Queue], bool]) -> bool:
        """Begin to spread leaders over nodes."""


class PublishPort(Protocol):
    """See `runtime.inspect.publish_service.PublishService`."""

    async def publish(
        self, vhost: str, route: bytes, properties: bytes, body: bytes, user: str
    ) -> bool:
        """Publish a message; False when it leads to no queue."""


class StatsPort(Protocol):
    """See `runtime.metrics.stats.StatsBook`."""

    async def ask(
        self, question: Stats, seconds: float = ANSWER_SECONDS_MAX
    ) -> tuple[list[StatsRow], tuple[str, ...]]:
        """Return the figures of all nodes, and the names of those that did not answer."""

    async def sample_forever(self) -> None:
        """Take samples until cancelled."""


class LeasePort(Protocol):
    """See `runtime.lease.listing.LeaseListing`. Coroutines raise AmqpError."""

    async def everyone(self) -> tuple[list[LeaseGroupStatus], tuple[str, ...]]:
        """Return the groups of all queues, and the names of nodes that did not answer."""

    async def of(self, queue: Queue) -> list[LeaseGroupStatus]:
        """Return the groups of a queue."""

    async def close(self, queue: Queue, name: str) -> int:
        """Close a group; return how many messages went back."""


class ArchivePort(Protocol):
    """See `runtime.archive.service.ArchiveService`. Coroutines raise AmqpError."""

    async def of(self, queue: Queue) -> ArchiveStatus:
        """Return the archive of a queue."""

    async def close_group(self, queue: Queue, name: str) -> None:
        """Have an archive forget a group."""


class MetricsPort(Protocol):
    """See `runtime.metrics.source.NodeMetrics`."""

    http: HttpMeter
    per_object: bool

    def samples(self) -> Iterator[Sample]:
        """Return the node's samples."""

    def objects(
        self, families: Collection[str], vhosts: Collection[str] = ()
    ) -> Iterator[ObjectTable]:
        """Return metrics of single queues and connections."""


class Administration(Protocol):
    """See `runtime.administration`. Coroutines raise AmqpError."""

    @property
    def view(self) -> CatalogView:
        """The catalog."""

    @property
    def clock(self) -> Clock:
        """The time by which queues go."""

    @property
    def topology(self) -> TopologyPort:
        """Queues, exchanges and bindings."""

    @property
    def message_service(self) -> MessagePort:
        """Single messages."""

    @property
    def publisher(self) -> PublishPort:
        """Publishes single messages."""

    @property
    def stats(self) -> StatsPort:
        """Figures over time."""

    @property
    def metrics(self) -> MetricsPort:
        """Return the metrics."""

    @property
    def flow_report(self) -> FlowReport:
        """Return the explanation of slow publishers."""

    @property
    def operations(self) -> OperationsPort:
        """Return the places of replicas and leaders."""

    @property
    def leases(self) -> LeasePort:
        """Groups that lease messages."""

    @property
    def archives(self) -> ArchivePort:
        """Return the archives of queues."""

    @property
    def page_logins(self) -> PageLogins:
        """Return the log-ins of the web page."""

    @property
    def standings(self) -> PermissionWatches:
        """Return the running work of users on this node."""

    async def submit(self, command: AnyCommand) -> Result:
        """Have a command applied."""

    async def catch_up(self) -> None:
        """Wait until everything that was decided is applied here."""

    def snapshot(self) -> bytes:
        """Return the catalog as applied here."""

    def renewed_members(self) -> tuple[int, ...]:
        """Return the ids of nodes whose replicas have other ids than their nodes."""

    async def counts(self, queue: Queue) -> QueueCounts:
        """Return what a queue's leader says."""

    async def purge(self, queue: Queue) -> int:
        """Drop a queue's ready messages."""

    async def clients(
        self, channels: bool = False, rows_max: int = LISTING_ROWS_MAX
    ) -> ClientListing:
        """Return connections, or channels."""

    async def close_connection(self, name: str, reason: str) -> tuple[int, tuple[str, ...]]:
        """Close connections; returns how many, and the nodes that did not answer."""


async def known_node(node: Administration, name: str) -> Node:
    """Return a node of the cluster by its name.

    Raises:
        ApiError: 404, there is none of that name.
    """
    if node.view.node_named(name) is None:
        await node.catch_up()
    found = node.view.node_named(name)
    if found is None:
        raise not_found(f"node '{name}'")
    return found


async def known_vhost(node: Administration, request: web.Request) -> str:
    """Return the vhost that a path names.

    Raises:
        AmqpError: ACCESS_REFUSED to who may not know whether it is there.
        ApiError: 404, there is none of that name.
    """
    vhost, who = request.match_info["vhost"], caller()
    if not who.sees(node.view, vhost) or node.view.vhost(vhost) is None:
        await node.catch_up()  # it may have been created through another node a moment ago
    check_sees(who, node.view, vhost)
    if node.view.vhost(vhost) is None:
        raise not_found(f"vhost '{vhost}'")
    return vhost


async def known_user(node: Administration, request: web.Request) -> User:
    """Return the user that a path names.

    Raises:
        ApiError: 404, there is none of that name.
    """
    name = request.match_info["user"]
    if node.view.user(name) is None:
        await node.catch_up()
    user = node.view.user(name)
    if user is None:
        raise not_found(f"user '{name}'")
    return user


async def known_queue(node: Administration, vhost: str, name: str) -> Queue:
    """Return a queue.

    Raises:
        ApiError: 404, there is none of that name.
    """
    if node.view.queue(vhost, name) is None:
        await node.catch_up()
    queue = node.view.queue(vhost, name)
    if queue is None:
        raise not_found(f"queue '{name}' in vhost '{vhost}'")
    return queue


def exchange_name(name: str) -> str:
    """Return the name of an exchange that a request names; "amq.default" stands for ""."""
    return "" if name == DEFAULT_EXCHANGE_NAME else name


async def known_exchange(node: Administration, vhost: str, name: str) -> Exchange:
    """Return an exchange; "" and "amq.default" are the default one.

    Raises:
        ApiError: 404, there is none of that name.
    """
    name = exchange_name(name)
    if not name:
        return Exchange(vhost, "", "direct")
    if node.view.exchange(vhost, name) is None:
        await node.catch_up()
    exchange = node.view.exchange(vhost, name)
    if exchange is None:
        raise not_found(f"exchange '{name}' in vhost '{vhost}'")
    return exchange
