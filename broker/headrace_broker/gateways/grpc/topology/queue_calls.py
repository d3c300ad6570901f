"""Calls about queues."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

from headrace_broker.catalog.access import (
    QUEUE,
    RESERVED_PREFIX,
    Caller,
    check_allowed,
    check_any,
    check_declares,
    check_manages,
    check_new_name,
    check_not_exclusive,
)
from headrace_broker.catalog.argument import SERVER_NAME_PREFIX, ArgumentError, asked_queue
from headrace_broker.catalog.permission import CONFIGURE, READ
from headrace_broker.gateways.grpc.server.errors import bad_field
from headrace_broker.gateways.grpc.server.lookup import LookupService, check_name, missing
from headrace_broker.gateways.grpc.server.page import Pager
from headrace_broker.gateways.grpc.values.argument_table import read_table, written_table
from headrace_broker.model import status as model_status
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow_status import QueueFlow
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.model.status import QueueStatus
from headrace_protos.broker.v1.topology_pb2 import (
    DeclareQueueRequest,
    DeclareQueueResponse,
    DeleteQueueRequest,
    DeleteQueueResponse,
    DescribeQueueRequest,
    ListQueuesRequest,
    ListQueuesResponse,
    PurgeQueueRequest,
    PurgeQueueResponse,
    QueueCounts,
    QueueDescription,
    QueueFlowState,
)

NAME_BYTES: Final = 16  # random bytes of a name that the broker makes up
COUNTS_SECONDS_MAX: Final = 2.0  # for what leaders say; the rest is without


class QueueCalls:
    """Declares, deletes, purges and describes queues."""

    def __init__(self, lookup: LookupService) -> None:
        self._lookup = lookup
        self._pager: Pager[Queue] = Pager("queues", lambda queue: (queue.vhost, queue.name))

    async def declare(self, who: Caller, request: DeclareQueueRequest) -> DeclareQueueResponse:
        """Create a queue unless an equivalent one is there."""
        lookup = self._lookup
        vhost = await lookup.enter(who, request.vhost)
        check_name("name", request.name, low=0)
        if request.passive:
            return await self._declare_passive(who, vhost, request.name)
        name = request.name or SERVER_NAME_PREFIX + secrets.token_urlsafe(NAME_BYTES)
        arguments = read_table(request.arguments, "arguments")
        known = lookup.view.queue(vhost, name) is not None
        check_declares(lookup.rights, who.name, vhost, QUEUE, name, arguments, known)
        if not known and request.name.startswith(RESERVED_PREFIX):
            known = await lookup.find_queue(vhost, name) is not None
            if not known:
                check_new_name(QUEUE, name)
        durable = not request.HasField("durable") or request.durable
        self._check_arguments(vhost, name, durable, request.auto_delete, arguments)
        queue = await lookup.node.topology.declare_queue(
            vhost, name, durable, False, request.auto_delete, arguments, ""
        )
        return await self._declared(queue, created=not known)

    def _check_arguments(
        self, vhost: str, name: str, durable: bool, auto_delete: bool, arguments: dict[str, Any]
    ) -> None:
        known = self._lookup.view.vhost(vhost)
        kind = known.default_queue_type if known is not None else ""
        current = self._lookup.view.queue(vhost, name)
        if current is not None:
            kind = current.kind
        try:
            asked_queue(vhost, name, durable, False, auto_delete, arguments, kind)
        except ArgumentError as error:
            raise bad_field(error.field, str(error)) from None

    async def _declare_passive(self, who: Caller, vhost: str, name: str) -> DeclareQueueResponse:
        check_any(self._lookup.rights, who.name, vhost, QUEUE, name)
        return await self._declared(await self._lookup.known_queue(vhost, name), created=False)

    async def _declared(self, queue: Queue, created: bool) -> DeclareQueueResponse:
        counts = await self._counts(queue)
        return DeclareQueueResponse(
            name=queue.name,
            created=created,
            type=queue.kind,
            counts=_render_counts(counts) if counts is not None else None,
        )

    async def delete(self, who: Caller, request: DeleteQueueRequest) -> DeleteQueueResponse:
        """Delete a queue; one that is not there is no error."""
        lookup = self._lookup
        vhost, name = await lookup.enter(who, request.vhost), request.name
        check_name("name", name)
        check_allowed(lookup.rights, who.name, vhost, CONFIGURE, QUEUE, name)
        queue = await lookup.find_queue(vhost, name)
        if queue is None:
            return DeleteQueueResponse(deleted=False)
        check_not_exclusive(queue)
        count = await lookup.node.topology.delete_queue(queue, request.if_unused, request.if_empty)
        return DeleteQueueResponse(deleted=True, messages=count)

    async def purge(self, who: Caller, request: PurgeQueueRequest) -> PurgeQueueResponse:
        """Drop the messages that wait in a queue."""
        lookup = self._lookup
        vhost, name = await lookup.enter(who, request.vhost), request.name
        check_name("name", name)
        check_allowed(lookup.rights, who.name, vhost, READ, QUEUE, name)
        queue = await lookup.known_queue(vhost, name)
        check_not_exclusive(queue)
        return PurgeQueueResponse(messages=await lookup.node.purge(queue))

    async def describe(self, who: Caller, request: DescribeQueueRequest) -> QueueDescription:
        """Return everything about a queue."""
        lookup = self._lookup
        vhost, name = await lookup.known_vhost(who, request.vhost), request.name
        check_name("name", name)
        if not (who.manages and who.sees(lookup.view, vhost)):
            await lookup.enter(who, vhost)
            check_any(lookup.rights, who.name, vhost, QUEUE, name)
        queue = await lookup.known_queue(vhost, name)
        status = lookup.status.queue(vhost, name)
        if status is None:
            raise missing(f"queue '{name}' in vhost '{vhost}'", "name")
        described = _render(status)
        counts, flow = await asyncio.gather(self._counts(queue), self._flow(queue))
        if counts is not None:
            described.counts.CopyFrom(_render_counts(counts))
        if flow is not None:
            described.flow.CopyFrom(_render_flow(flow))
        return described

    async def list(self, who: Caller, request: ListQueuesRequest) -> ListQueuesResponse:
        """List queues, with what this node knows at once."""
        check_manages(who)
        check_name("name_prefix", request.name_prefix, low=0)
        vhosts = frozenset(await self._lookup.seen_vhosts(who, request.vhost))
        prefix = request.name_prefix
        rows = [
            queue
            for queue in self._lookup.view.queues()
            if queue.vhost in vhosts and queue.name.startswith(prefix)
        ]
        queues, token = await self._pager.page(request.page, rows, self._row)
        return ListQueuesResponse(queues=queues, next_token=token)

    def _row(self, queue: Queue) -> QueueDescription:
        status = self._lookup.status.queue(queue.vhost, queue.name)
        if status is not None:
            return _render(status)
        return QueueDescription(vhost=queue.vhost, name=queue.name, type=queue.kind)  # just gone

    async def _counts(self, queue: Queue) -> model_status.QueueCounts | None:
        """Return what the leader counts, None when it does not answer."""
        try:
            async with asyncio.timeout(COUNTS_SECONDS_MAX):
                return await self._lookup.node.counts(queue)
        except (AmqpError, TimeoutError):
            return None

    async def _flow(self, queue: Queue) -> QueueFlow | None:
        try:
            async with asyncio.timeout(COUNTS_SECONDS_MAX):
                return await self._lookup.node.flow_report.queue(queue)
        except TimeoutError:
            return None


def _render(status: QueueStatus) -> QueueDescription:
    described = QueueDescription(
        vhost=status.vhost,
        name=status.name,
        type=status.kind,
        durable=status.durable,
        exclusive=status.exclusive,
        auto_delete=status.auto_delete,
        arguments=written_table(status.arguments),
        policy=status.policy,
        operator_policy=status.operator_policy,
        effective_definition=written_table(status.definition),
        leader=status.leader,
        members=status.members,
    )
    if status.counts is not None:
        described.counts.CopyFrom(_render_counts(status.counts))
    return described


def _render_counts(counts: model_status.QueueCounts) -> QueueCounts:
    return QueueCounts(
        messages_ready=counts.ready,
        messages_unacknowledged=counts.unsettled,
        consumers=counts.consumers,
        oldest_ms=counts.oldest_ms,
        messages_delayed=counts.delayed,
        messages_dlx=counts.dead,
    )


def _render_flow(flow: QueueFlow) -> QueueFlowState:
    return QueueFlowState(
        saturated=flow.saturated,
        messages_withheld=flow.deferred,
        octets_ready=flow.ready_bytes,
        octets_unacknowledged=flow.unsettled_bytes,
        arrived=flow.arrived[1],
        delivered=flow.delivered[1],
        settled=flow.settled[1],
        consumers_busy=flow.busy,
        high_watermark=flow.high_messages,
        low_watermark=flow.low_messages,
        high_watermark_octets=flow.high_bytes,
        low_watermark_octets=flow.low_bytes,
    )
