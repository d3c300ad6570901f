"""Declaring and deleting: gateways' calls as catalog commands, its refusals as AMQP errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from headrace_broker.catalog.argument import (
    ArgumentError,
    asked_queue,
    is_compared,
    unknown_queue_arguments,
)
from headrace_broker.catalog.command import (
    AnyCommand,
    Bind,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DropTransient,
    Unbind,
)
from headrace_broker.catalog.exchange_argument import arguments_problem, unknown_exchange_arguments
from headrace_broker.catalog.policy import queue_arguments
from headrace_broker.catalog.result import (
    Exists,
    Inequivalent,
    InUse,
    Locked,
    NotFound,
    Ok,
    Refused,
    Result,
    UpgradePending,
)
from headrace_broker.model.definition import Binding, Exchange, Queue
from headrace_broker.model.reply_code import (
    INTERNAL_ERROR,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    AmqpError,
    UpgradePendingError,
)
from headrace_broker.model.status import QueueCounts
from headrace_broker.runtime.cluster.catalog_service import CatalogService, CatalogUnavailableError
from headrace_broker.runtime.cluster.counts import CountsClient
from headrace_broker.runtime.hosting.hosting import Hosting
from headrace_broker.runtime.routing.unknown_arguments import UNKNOWN_ARGUMENTS
from headrace_broker.runtime.rpc.leader import LeaderUnavailableError, QueueGoneError

LEADER_SECONDS_MAX: Final = 10.0  # a declare waits so long for its queue's first leader


def refusal(answer: object) -> AmqpError:
    """Return the AMQP error for a catalog's refusal."""
    if isinstance(answer, NotFound):
        return AmqpError(NOT_FOUND, answer.text)
    if isinstance(answer, Locked):
        return AmqpError(RESOURCE_LOCKED, answer.text)
    if isinstance(answer, Inequivalent):
        name = answer.field
        field = f"arguments.{name}" if is_compared(name) else name
        return AmqpError(PRECONDITION_FAILED, answer.text, field)
    if isinstance(answer, UpgradePending):
        return UpgradePendingError(answer.text)
    if isinstance(answer, InUse | Refused):
        return AmqpError(PRECONDITION_FAILED, answer.text)
    return AmqpError(INTERNAL_ERROR, f"unexpected answer of the catalog: {answer!r}")


class Topology:
    """Exchanges, queues and bindings of the cluster, as one node's gateways change them."""

    def __init__(
        self,
        node: int,
        catalog: CatalogService,
        hosting: Hosting,
        counts: CountsClient,
        # returns the ids of this node's processes that run; None where it has one
        processes: Callable[[], frozenset[int]] | None = None,
    ) -> None:
        self.declared = 0  # queues, also those that were there
        self._processes = processes or (lambda: frozenset({node}))
        self._node = node
        self._catalog = catalog
        self._hosting = hosting
        self._counts = counts

    async def submit(self, command: AnyCommand) -> Result:
        """Apply a command and return what the catalog answered.

        Raises AmqpError: the catalog has no quorum.
        """
        try:
            return await self._catalog.submit(command)
        except CatalogUnavailableError as error:
            raise AmqpError(INTERNAL_ERROR, str(error)) from error

    async def catch_up(self) -> None:
        """Wait until everything that was decided before this call is applied here.

        Raises AmqpError: the catalog has no quorum.
        """
        try:
            await self._catalog.catch_up()
        except CatalogUnavailableError as error:
            raise AmqpError(INTERNAL_ERROR, str(error)) from error

    async def _change(self, command: AnyCommand) -> object:
        answer = await self.submit(command)
        if isinstance(answer, Ok):
            return answer.value
        if isinstance(answer, Exists):
            return answer.current
        raise refusal(answer)

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
        """Create a queue and wait until it has a leader, or return the equivalent one.

        A queue that is `exclusive` belongs to `owner`, the id of the asking connection.

        Raises AmqpError: PRECONDITION_FAILED for arguments that cannot be, a queue that is there
        with other ones, or one too many for its vhost; RESOURCE_LOCKED for another connection's
        exclusive queue. Nothing was declared then.
        """
        self.declared += 1
        default = self._default_kind(vhost, name)
        try:
            kind, replicas = asked_queue(
                vhost, name, durable, exclusive, auto_delete, arguments, default
            )
        except ArgumentError as error:
            raise AmqpError(PRECONDITION_FAILED, str(error), error.field) from error
        command = DeclareQueue(
            vhost,
            name,
            kind,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            owner=owner if exclusive else "",
            arguments=arguments,
            preferred_node=0,
            replicas=replicas,
            member_ids=self._hosting.renewed_members(),
        )
        command = msgspec.structs.replace(command, preferred_node=self._first_leader(command))
        queue = await self._change(command)
        assert isinstance(queue, Queue), "a declared queue is what the catalog answers"
        unknown = unknown_queue_arguments(queue.arguments)
        UNKNOWN_ARGUMENTS.warn("queue", f"queue '{name}' in vhost '{vhost}'", unknown)
        if not await self._hosting.wait_leader(queue, LEADER_SECONDS_MAX):
            text = f"queue '{name}' in vhost '{vhost}' has no leader: too few nodes are running"
            raise AmqpError(INTERNAL_ERROR, text)
        return queue

    def _default_kind(self, vhost: str, name: str) -> str:
        """Return the kind of a queue that is there, or the default of its vhost, "" for none."""
        view = self._catalog.catalog
        queue = view.queue(vhost, name)
        if queue is not None:
            return queue.kind
        known = view.vhost(vhost)
        return known.default_queue_type if known is not None else ""

    def _first_leader(self, command: DeclareQueue) -> int:
        """Return the id of the process whose replica is to lead a new queue first, 0 for any.

        What lives in memory does so where it was declared. For other queues an argument or a policy
        can ask for this process, or the node with the fewest replicas (queue-leader-locator).
        Without one it is the process of this node that leads the fewest.
        """
        wanted = Queue(
            command.vhost,
            command.name,
            command.kind,
            group=0,
            members=(),
            durable=command.durable,
            exclusive=command.exclusive,
            auto_delete=command.auto_delete,
            arguments=command.arguments,
        )
        if not wanted.logged:
            return self._node
        view = self._catalog.catalog
        settings = queue_arguments(view, wanted)
        locator = settings.get("queue-leader-locator", settings.get("queue-master-locator"))
        if locator is None:
            drained = {node.id for node in view.nodes() if node.maintenance} - {self._node}
            running = sorted(
                self._processes() - drained, key=lambda each: (each != self._node, each)
            )
            return min(running, key=view.first_lead_count)
        return self._node if locator == "client-local" else 0

    async def delete_queue(self, queue: Queue, if_unused: bool, if_empty: bool) -> int:
        """Delete a queue; return its ready messages.

        With `if_empty` it must hold no message that waits or is delayed, and no dead letter that
        has yet to arrive; those that consumers hold go with it, as in RabbitMQ.

        Raises AmqpError: PRECONDITION_FAILED "in use" or "not empty". Nothing changed.
        """
        where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        try:
            counts = await self._counts.ask(queue)
        except LeaderUnavailableError as error:
            if if_unused or if_empty:
                raise AmqpError(INTERNAL_ERROR, str(error)) from error
            counts = QueueCounts(0, 0, 0)
        except QueueGoneError:
            return 0
        if if_unused and (counts.consumers or counts.leased):
            raise AmqpError(PRECONDITION_FAILED, f"{where} in use")
        if if_empty and not counts.is_empty:
            raise AmqpError(PRECONDITION_FAILED, f"{where} not empty")
        answer = await self.submit(DeleteQueue(queue.vhost, queue.name, queue.group))
        if not isinstance(answer, Ok | NotFound):
            raise refusal(answer)
        return counts.ready

    async def declare_exchange(self, exchange: Exchange) -> None:
        """Create an exchange unless an equivalent one exists.

        Raises AmqpError: PRECONDITION_FAILED when the existing one differs. Nothing changed.
        """
        problem = arguments_problem(exchange)
        if problem:
            raise AmqpError(PRECONDITION_FAILED, problem)
        await self._change(DeclareExchange(exchange))
        unknown = unknown_exchange_arguments(exchange.arguments)
        where = f"exchange '{exchange.name}' in vhost '{exchange.vhost}'"
        UNKNOWN_ARGUMENTS.warn("exchange", where, unknown)

    async def delete_exchange(self, vhost: str, name: str, if_unused: bool) -> None:
        """Delete an exchange and its bindings; one that is not there is no error.

        Raises AmqpError: PRECONDITION_FAILED when it is in use and `if_unused`. Nothing changed.
        """
        answer = await self.submit(DeleteExchange(vhost, name, if_unused))
        if not isinstance(answer, Ok | NotFound):
            raise refusal(answer)

    async def bind(self, binding: Binding) -> None:
        """Add a binding; one that is there is no error.

        Raises AmqpError: NOT_FOUND when source or destination do not exist. Nothing changed.
        """
        await self._change(Bind(binding))

    async def unbind(self, binding: Binding) -> None:
        """Remove a binding; one that is not there is no error."""
        answer = await self.submit(Unbind(binding))
        if not isinstance(answer, Ok | NotFound):
            raise refusal(answer)

    async def drop_owner(self, owner: str) -> None:
        """Delete the exclusive queues of a connection that is gone."""
        await self.submit(DropTransient(owner=owner))

    async def drop_unused(self, queue: Queue) -> None:
        """Delete an auto-delete queue whose last consumer has gone."""
        await self.submit(DeleteQueue(queue.vhost, queue.name, queue.group))

    async def drop_node_memory(self) -> None:
        """Delete the queues that lived in this node's memory before it was started anew."""
        await self.submit(DropTransient(node=self._node))
