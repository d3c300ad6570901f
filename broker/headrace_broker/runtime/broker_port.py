"""What a gateway and the runtime ask of each other: abstract classes, no behaviour.

They are abstract classes and not traits: interpreted code (tests, embedders) may subclass them
also when they are compiled, which mypyc does not allow for traits. Everything here is called on the
event loop's thread. Methods that are not coroutines neither block nor raise for what a peer did.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import i64, mypyc_attr

from headrace_broker.catalog.permission import Permissions
from headrace_broker.flow.account import Account, Ledger
from headrace_broker.flow.effort import EffortTurns
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.gate import Gate
from headrace_broker.flow.intake import Intake
from headrace_broker.model.client_limits import ClientLimits
from headrace_broker.model.definition import Binding, Exchange, Queue
from headrace_broker.model.flow import LIMIT_DISK
from headrace_broker.model.message import DeliveryRun, Publish, Publisher
from headrace_broker.runtime.attachment import Attachment as Attachment
from headrace_broker.runtime.connection_info import ConnectionControl as ConnectionControl
from headrace_broker.runtime.connection_info import ConnectionInfo as ConnectionInfo
from headrace_broker.runtime.loop_watch import LoopWatch
from headrace_broker.runtime.ticket import Ticket as Ticket

if TYPE_CHECKING:
    from headrace_broker.runtime.authenticator import Verdict
    from headrace_broker.runtime.client_counts import ClientCounts
    from headrace_broker.runtime.leasing import LeaseClient
    from headrace_broker.runtime.quotas import Quotas
    from headrace_broker.runtime.router import Route

ACCEPT: Final = 1  # settled for good
RELEASE: Final = 2  # back to the queue at its old position, to be delivered again
REJECT: Final = 3  # refused: dead-lettered or dropped
MODIFY_FAILED: Final = 4  # as RELEASE, counted as a failed delivery
GET_CONSUMER: Final = 0  # the consumer number of `QueueClient.get`


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplyListener:
    """Who waits for direct replies."""

    @abstractmethod
    def on_reply(self, publish: Publish) -> None:
        """Take a message, or drop it where there is no room; nothing may block."""


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueListener:
    """What a channel hears from its queue clients, many times per loop turn; nothing may block."""

    @abstractmethod
    def on_confirmed(self, client: QueueClient, tickets: list[Ticket]) -> None:
        """All publishes that were handed over with these tickets are applied by the queue.

        Each call of `QueueClient.publish` with a ticket is answered once, here, in `on_rejected` or
        in `on_withheld`.
        """

    @abstractmethod
    def on_rejected(self, client: QueueClient, tickets: list[Ticket]) -> None:
        """As `on_confirmed`, but at least one publish of each ticket was refused for good.

        `Ticket.refused` says which.
        """

    def on_withheld(self, client: QueueClient, tickets: list[Ticket]) -> None:
        """As `on_confirmed`, but the queue holds too much: of each ticket some are not complete.

        `Ticket.holds` says which; some others may have been refused. Only for patient tickets.
        """
        raise AssertionError("no ticket is patient")

    def on_completed(self, client: QueueClient, tickets: list[Ticket], over: int) -> None:
        """The queue has completed some publishes of these tickets, that were in `on_withheld`.

        Args:
            client: the queue.
            tickets: `Ticket.freed` says which need not wait for others.
            over: of how many tickets the queue withholds nothing any more.
        """
        raise AssertionError("no ticket is patient")

    def on_unreachable(self, client: QueueClient, text: str) -> None:
        """Publishes wait, and no leader can be reached, as `text` says; by default they wait on."""

    @abstractmethod
    def on_delivery(self, client: QueueClient, run: DeliveryRun) -> None:
        """Messages for consumer `run.consumer`; may come before `QueueClient.attach` returns."""

    @abstractmethod
    def on_cancelled(self, client: QueueClient, consumer: int, reason: str) -> None:
        """A consumer ended unasked: queue deleted or its node lost. Its unsettled are void."""

    @abstractmethod
    def on_timed_out(self, client: QueueClient, consumer: int) -> None:
        """A consumer ended because it held a delivery for too long; its unsettled went back."""

    @abstractmethod
    def on_writable(self, client: QueueClient) -> None:
        """The queue is below its soft limit, which `QueueClient.publish` reported, again.

        The caller is in the middle of something: what is to be published waits for its own turn.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueClient:
    """One channel's conversation with one queue, wherever the queue's leader is.

    Attributes:
        queue: the queue's definition; `queue.group` is its identity.
        gate: where publishes of this node wait for room in the queue.
    """

    queue: Queue
    gate: Gate

    @abstractmethod
    def publish(self, publishes: list[Publish], ticket: Ticket | None) -> bool:
        """Hand over publishes, in order; they gather until `flush`.

        A ticket has a number for each of them.

        Returns:
            False while the queue is above its soft limit for this client: too many calls, or
            octets, are not applied. The publishes are taken all the same; the channel is given no
            credit until `QueueListener.on_writable`.
        """

    @abstractmethod
    def publish_named(
        self,
        publishes: list[Publish],
        ticket: Ticket | None,
        publisher: Publisher,
        sequences: list[int],
    ) -> bool:
        """As `publish`, of what its publisher has numbered: repetitions are dropped and confirmed.

        Args:
            publishes: none of them immediate.
            ticket: as in `publish`.
            publisher: the same one in all calls to this client, which has no other publishes.
            sequences: of each publish, from 1; they ascend, from call to call too, maybe with gaps.
        """

    @abstractmethod
    def publish_whole(self, publishes: list[Publish], ticket: Ticket) -> bool:
        """Send publishes, none of them immediate, in one command: the queue has all or nothing.

        Args:
            publishes: in order, after all that gathered; of at most `tx_octets_max` octets.
            ticket: as in `publish`.

        Returns:
            As `publish`.
        """

    @abstractmethod
    def settle_whole(self, settles: list[tuple[int, int, int, int]]) -> None:
        """Send settles in one command.

        Args:
            settles: arguments of `settle`, in order, after all that gathered; TX_OPERATIONS_MAX at
                most.
        """

    @abstractmethod
    async def applied(self) -> None:
        """Wait until the queue has answered all that was sent, or is gone, or this is closed.

        Raises:
            AmqpError: INTERNAL_ERROR, it did not answer within REQUEST_SECONDS_MAX.
        """

    @abstractmethod
    def flush(self) -> None:
        """Send what gathered; called at the end of each received chunk that touched this client."""

    @abstractmethod
    def settle(self, consumer: int, operation: int, first: int, last: int) -> None:
        """Settle deliveries of a consumer; gathers until `flush`.

        Args:
            consumer: its number within this client.
            first: delivery number of the first one.
            last: of the last one, inclusive.
            operation: ACCEPT, RELEASE, REJECT or MODIFY_FAILED.
        """

    @abstractmethod
    async def attach(self, consumer: int, attachment: Attachment) -> None:
        """Start a consumer.

        Args:
            consumer: its number within this client, 1 or more, never used twice.
            attachment: how it is to be served.

        Raises:
            AmqpError: ACCESS_REFUSED exclusive use conflicts, NOT_FOUND the queue is gone.
        """

    @abstractmethod
    def set_prefetch(self, prefetches: list[tuple[int, int]]) -> bool:
        """Change how many deliveries running consumers may have unsettled, soon.

        What a consumer has beyond a lower number stays with it until it is settled.

        Args:
            prefetches: pairs of a consumer's number and its prefetch, 1 or more; numbers of
                consumers that have ended are passed over.

        Returns:
            False when nothing changes, for a node with a replica is too old to know how.
        """

    @abstractmethod
    async def cancel(self, consumer: int) -> None:
        """End a consumer: no deliveries once this returns; its unsettled ones stay unsettled."""

    @abstractmethod
    async def get(self, message_id: int = 0) -> tuple[DeliveryRun, int] | None:
        """Take one message, as consumer GET_CONSUMER: that with an id, or for 0 the first.

        Returns:
            A run of one delivery and how many ready messages are left, or None when there is none.
        """

    @abstractmethod
    async def purge(self) -> int:
        """Drop all ready messages and return how many there were."""

    @abstractmethod
    async def remove(self, message_ids: list[int]) -> int:
        """Drop waiting messages by their ids and return how many of them there were.

        Settles that were handed over before are applied when this returns.
        """

    @abstractmethod
    def consumed(self, consumer: int, octets: int) -> None:
        """Deliveries of `octets` left for the socket: opens the delivery byte window again.

        Args:
            consumer: its number, GET_CONSUMER for what `get` returned.
            octets: of bodies, counted by `codecs.batch.body_bytes` at both ends, so that the
                window never drifts.
        """

    def abandon(self) -> list[Ticket]:
        """End the session at once; return the tickets of what it has not confirmed."""
        raise AssertionError("only publishes of clients are given up")

    @abstractmethod
    def close(self) -> None:
        """End the session: its consumers end and everything unsettled goes back to the queue.

        Publishes that were handed over are still delivered; nobody hears of them any more. What
        gathered was flushed before.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class Broker:
    """The node as gateways see it.

    Attributes:
        node_name: unique in the cluster.
        cluster_name: for `server-properties`.
        boot: how many times this node was started.
        limits: what clients may ask for.
        permissions: what users may do.
        quotas: how fast they may publish.
        client_counts: how many connections and channels they may have.
        ledger: who owes what on this node.
        flow: the limits of flow control in force on it.
        intake: what it holds for publishers, and takes from them.
        effort_turns, loop_watch: bound and watch what clients do in a turn of its loop.
        republish_account: owes for what its administrators have moved.
        blocked_limit: while publishers are blocked, the LIMIT that does it.
        leases: asks queues for groups that lease their messages.
        blocked_node: and the name of the node that is short of something.
    """

    node_name: str
    cluster_name: str
    boot: int
    limits: ClientLimits
    permissions: Permissions
    quotas: Quotas
    client_counts: ClientCounts
    ledger: Ledger
    flow: FlowLimits
    intake: Intake
    effort_turns: EffortTurns
    loop_watch: LoopWatch
    republish_account: Account
    blocked_limit: i64 = LIMIT_DISK
    leases: LeaseClient
    blocked_node: str = ""

    @abstractmethod
    def clock_us(self) -> i64:
        """Return a time in microseconds that only goes forward, from an unknown beginning."""

    @abstractmethod
    def tell_after_ms(self, user: str, vhost: str) -> i64:
        """Return when a user's clients in a vhost are told that they are held, 0 for never."""

    @abstractmethod
    def queue_by_group(self, group: int) -> Queue | None:
        """Return the definition of the queue that has a group."""

    @abstractmethod
    def tells_channel_flow(self, user: str, vhost: str) -> bool:
        """Return whether alarms are told to a user's clients in a vhost by channel.flow too."""

    @abstractmethod
    def blocked_reason(self) -> str:
        """Return why publishers are blocked on this node, "" when they are not."""

    @abstractmethod
    def watch_blocked(self, callback: Callable[[str], None]) -> None:
        """Call `callback` with the new reason ("" = over) at each change of `blocked_reason`."""

    @abstractmethod
    def unwatch_blocked(self, callback: Callable[[str], None]) -> None:
        """Forget a callback given to `watch_blocked`; one that is not known is ignored."""

    @abstractmethod
    async def authenticate(self, user: str, password: str, host: str) -> Verdict:
        """Return whether the password is right and the user may come from a host."""

    @abstractmethod
    def admits(self, user: str, host: str) -> bool:
        """Return whether a user, proven by other means, is known and may come from a host."""

    @abstractmethod
    def vhost_exists(self, vhost: str) -> bool:
        """Return whether the catalog has this vhost."""

    @abstractmethod
    def route(self, vhost: str, raw_route: bytes) -> Route:
        """Return where messages with this exchange and routing key (`Publish.route`) go; cached."""

    @abstractmethod
    def route_message(self, vhost: str, raw_route: bytes, properties: bytes) -> Route:
        """Return where one message goes: for routes with `needs_message`, and for CC and BCC.

        Raises:
            DistributionError: CC or BCC is of a wrong type.
            AmqpError: SYNTAX_ERROR, headers that matter hold a value that cannot be decoded.
        """

    @abstractmethod
    def allows_immediate(self, vhost: str, queues: tuple[Queue, ...]) -> bool:
        """Return whether policies let the flag `immediate` be used towards these queues."""

    @abstractmethod
    def user_tags(self, user: str) -> tuple[str, ...]:
        """Return a user's tags, none for one who is not there any more."""

    @abstractmethod
    def open_replies(self, listener: ReplyListener) -> str:
        """Give a listener a name under which direct replies reach it, from all nodes."""

    @abstractmethod
    def close_replies(self, name: str) -> None:
        """Forget a listener by the name it was given."""

    @abstractmethod
    def reply(self, name: str, publish: Publish) -> bool:
        """Send a direct reply to whom a name belongs; False when it is known not to arrive."""

    @abstractmethod
    async def replies_open(self, name: str) -> bool:
        """Return whether somebody listens under a name; False where that is not known."""

    @abstractmethod
    def queue(self, vhost: str, name: str) -> Queue | None:
        """Return a queue's definition."""

    @abstractmethod
    def exchange(self, vhost: str, name: str) -> Exchange | None:
        """Return an exchange's definition; None for the default exchange."""

    @abstractmethod
    async def catch_up(self) -> None:
        """Wait until this node's view of the catalog holds all that was decided before this call.

        For what `queue`, `exchange` and `route` did not find: another node may have declared it.

        Raises:
            AmqpError: INTERNAL_ERROR, the catalog has no quorum: what it holds is not known.
        """

    @abstractmethod
    def open_queue(self, queue: Queue, listener: QueueListener, account: Account) -> QueueClient:
        """Start a session with a queue; the account owes for what is published."""

    @abstractmethod
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
        """Create a queue, or return the one that is there when it is equivalent.

        A queue that is `exclusive` belongs to `owner`, the id of the asking connection.

        Raises:
            AmqpError: PRECONDITION_FAILED (inequivalent or invalid argument), RESOURCE_LOCKED
                (another connection's exclusive queue). Nothing changed.
        """

    @abstractmethod
    async def queue_counts(self, queue: Queue) -> tuple[int, int]:
        """Return a queue's ready messages and consumers."""

    @abstractmethod
    async def delete_queue(self, queue: Queue, if_unused: bool, if_empty: bool) -> int:
        """Delete a queue and return how many ready messages it held.

        Raises:
            AmqpError: PRECONDITION_FAILED "in use" or "not empty". Nothing changed.
        """

    @abstractmethod
    async def declare_exchange(
        self,
        vhost: str,
        name: str,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, Any],
    ) -> None:
        """Create an exchange unless an equivalent one exists.

        Raises:
            AmqpError: PRECONDITION_FAILED when the existing one differs. Nothing changed.
        """

    @abstractmethod
    async def delete_exchange(self, vhost: str, name: str, if_unused: bool) -> None:
        """Delete an exchange and its bindings; one that does not exist is no error.

        Raises:
            AmqpError: PRECONDITION_FAILED when it is in use and `if_unused`. Nothing changed.
        """

    @abstractmethod
    async def bind(self, binding: Binding) -> None:
        """Add a binding; one that exists is no error.

        Raises:
            AmqpError: NOT_FOUND when source or destination do not exist. Nothing changed.
        """

    @abstractmethod
    async def unbind(self, binding: Binding) -> None:
        """Remove a binding; one that does not exist is no error."""

    @abstractmethod
    async def drop_owner(self, owner: str) -> None:
        """Delete the exclusive queues of a connection that is gone."""

    @abstractmethod
    def connection_opened(self, info: ConnectionInfo) -> None:
        """List a connection; `info` is updated in place while it lives."""

    @abstractmethod
    def connection_closed(self, info: ConnectionInfo) -> None:
        """Take a connection off the list."""
