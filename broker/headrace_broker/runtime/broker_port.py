"""Interface of a node to its gateways: parts of it, and abstract calls.

It is an abstract class and not a trait, as in `contract.port`: interpreted code may subclass it.
Everything here is called on the event loop's thread. Methods that are not coroutines neither block
nor raise for what a peer did.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from mypy_extensions import i64, mypyc_attr

from headrace_broker.catalog.permission import Permissions
from headrace_broker.catalog.permission_watch import PermissionWatches
from headrace_broker.flow.account import Account, Ledger
from headrace_broker.flow.blocked import BlockedState
from headrace_broker.flow.effort import EffortTurns
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.intake import Intake
from headrace_broker.model.client_limits import ClientLimits
from headrace_broker.model.definition import Exchange, Queue
from headrace_broker.runtime.contract.connection_info import ConnectionInfo
from headrace_broker.runtime.contract.port import QueueClient, QueueListener
from headrace_broker.runtime.intake.loop_watch import LoopWatch

if TYPE_CHECKING:
    from headrace_broker.runtime.clients.client_counts import ClientCounts
    from headrace_broker.runtime.clients.replies import Replies
    from headrace_broker.runtime.cluster.topology import Topology
    from headrace_broker.runtime.intake.client_flow import ClientFlow
    from headrace_broker.runtime.intake.quotas import Quotas
    from headrace_broker.runtime.lease.leasing import LeaseClient
    from headrace_broker.runtime.routing.router import Router
    from headrace_broker.runtime.security.authenticator import Authenticator


@mypyc_attr(allow_interpreted_subclasses=True)
class Broker:
    """The node as gateways see it."""

    node_name: str  # unique in the cluster
    cluster_name: str  # for `server-properties`
    boot: int  # how many times this node was started
    limits: ClientLimits  # what clients may ask for
    authenticator: Authenticator  # who is who they say
    permissions: Permissions  # what users may do
    standings: PermissionWatches  # what runs by that
    quotas: Quotas  # how fast they may publish
    client_flow: ClientFlow  # what they are told of flow control
    client_counts: ClientCounts  # how many connections and channels they may have
    ledger: Ledger  # who owes what on this node
    flow: FlowLimits  # the limits of flow control in force on it
    intake: Intake  # what it holds for publishers, and takes from them
    effort_turns: EffortTurns  # bounds what clients do in a turn of its loop
    loop_watch: LoopWatch  # watches that
    republish_account: Account  # owes for what its administrators have moved
    blocked: BlockedState  # whether an alarm blocks publishers
    leases: LeaseClient  # asks queues for groups that lease their messages
    router: Router  # where messages go
    replies: Replies  # direct replies
    topology: Topology  # changes queues, exchanges and bindings

    @abstractmethod
    def clock_us(self) -> i64:
        """Return a time in microseconds that only goes forward, from an unknown beginning."""

    @abstractmethod
    def queue_by_group(self, group: int) -> Queue | None:
        """Return the definition of the queue that has a group."""

    @abstractmethod
    def vhost_exists(self, vhost: str) -> bool:
        """Return whether the catalog has this vhost."""

    @abstractmethod
    def allows_immediate(self, vhost: str, queues: tuple[Queue, ...]) -> bool:
        """Return whether policies let the flag `immediate` be used towards these queues."""

    @abstractmethod
    def user_tags(self, user: str) -> tuple[str, ...]:
        """Return a user's tags, none for one who is not there any more."""

    @abstractmethod
    def queue(self, vhost: str, name: str) -> Queue | None:
        """Return a queue's definition."""

    @abstractmethod
    def exchange(self, vhost: str, name: str) -> Exchange | None:
        """Return an exchange's definition; None for the default exchange."""

    @abstractmethod
    async def catch_up(self) -> None:
        """Wait until this node's view of the catalog holds all that was decided before this call.

        For what `queue`, `exchange` and `router` did not find: another node may have declared it.

        Raises AmqpError: INTERNAL_ERROR, the catalog has no quorum: what it holds is not known.
        """

    @abstractmethod
    def open_queue(self, queue: Queue, listener: QueueListener, account: Account) -> QueueClient:
        """Start a session with a queue; the account owes for what is published."""

    @abstractmethod
    async def queue_counts(self, queue: Queue) -> tuple[int, int]:
        """Return a queue's ready messages and consumers."""

    @abstractmethod
    async def drop_owner(self, owner: str) -> None:
        """Delete the exclusive queues of a connection that is gone."""

    @abstractmethod
    def connection_opened(self, info: ConnectionInfo) -> None:
        """List a connection; `info` is updated in place while it lives."""

    @abstractmethod
    def connection_closed(self, info: ConnectionInfo) -> None:
        """Take a connection off the list."""
