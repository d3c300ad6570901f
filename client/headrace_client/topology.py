"""Declaring, deleting and looking at what a cluster defines: queues, exchanges and bindings.

All calls may be repeated, and are repeated at another node where one does not answer. To declare
what is there already, and equal, and to delete what is not there, are no errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from headrace_client.definition import Binding, DeclaredQueue, DeletedQueue, Exchange, Queue
from headrace_client.definition_reader import (
    binding_message,
    read_binding,
    read_counts,
    read_exchange,
    read_queue,
)
from headrace_client.governance import Governance
from headrace_client.value import encode_table
from headrace_protos.broker.v1 import topology_pb2 as pb


class Topology(Governance):
    """Definitions of a cluster; `Client.topology`. `vhost` is the client's unless one is given.

    Everything raises HeadraceError: NotFoundError, AccessRefusedError, InvalidArgumentError and
    PreconditionError name the field that is wrong.
    """

    # Queues

    async def declare_queue(
        self,
        name: str = "",
        *,
        durable: bool = True,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        passive: bool = False,
        vhost: str | None = None,
    ) -> DeclaredQueue:
        """Create a queue unless an equivalent one is there.

        Args:
            name: "" for one that the broker makes up.
            durable: it outlives its nodes.
            auto_delete: it goes after its last consumer.
            arguments: `x-queue-type`, `x-max-length` and so on.
            passive: declare nothing: NotFoundError where it is not there.
            vhost: None for the client's.
        """
        request = pb.DeclareQueueRequest(
            vhost=self._where(vhost),
            name=name,
            durable=durable,
            auto_delete=auto_delete,
            arguments=encode_table(arguments or {}, "arguments"),
            passive=passive,
        )
        answer = await self._call(lambda stub: stub.DeclareQueue, request)
        counts = read_counts(answer.counts) if answer.HasField("counts") else None
        return DeclaredQueue(answer.name, answer.created, answer.type, counts)

    async def delete_queue(
        self,
        name: str,
        *,
        if_unused: bool = False,
        if_empty: bool = False,
        vhost: str | None = None,
    ) -> DeletedQueue:
        """Delete a queue; PreconditionError when it is in use, or not empty, and shall be."""
        request = pb.DeleteQueueRequest(
            vhost=self._where(vhost), name=name, if_unused=if_unused, if_empty=if_empty
        )
        answer = await self._call(lambda stub: stub.DeleteQueue, request)
        return DeletedQueue(answer.deleted, answer.messages)

    async def purge_queue(self, name: str, *, vhost: str | None = None) -> int:
        """Drop the messages that wait in a queue, and return how many."""
        request = pb.PurgeQueueRequest(vhost=self._where(vhost), name=name)
        return int((await self._call(lambda stub: stub.PurgeQueue, request)).messages)

    async def queue(self, name: str, *, vhost: str | None = None) -> Queue:
        """Return everything about a queue."""
        request = pb.DescribeQueueRequest(vhost=self._where(vhost), name=name)
        return read_queue(await self._call(lambda stub: stub.DescribeQueue, request))

    def queues(self, *, vhost: str = "", name_prefix: str = "") -> AsyncIterator[Queue]:
        """Return queues in the order of names; of all vhosts unless one is given."""

        async def page(page: pb.PageRequest) -> pb.ListQueuesResponse:
            request = pb.ListQueuesRequest(vhost=vhost, name_prefix=name_prefix, page=page)
            found: pb.ListQueuesResponse = await self._call(lambda stub: stub.ListQueues, request)
            return found

        return self._listed(page, lambda answer: map(read_queue, answer.queues))

    # Exchanges

    async def declare_exchange(
        self,
        name: str,
        kind: str = "direct",
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
        passive: bool = False,
        vhost: str | None = None,
    ) -> bool:
        """Create an exchange unless an equivalent one is there; return whether it was created."""
        request = pb.DeclareExchangeRequest(
            vhost=self._where(vhost),
            name=name,
            type=kind,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=encode_table(arguments or {}, "arguments"),
            passive=passive,
        )
        return bool((await self._call(lambda stub: stub.DeclareExchange, request)).created)

    async def delete_exchange(
        self, name: str, *, if_unused: bool = False, vhost: str | None = None
    ) -> bool:
        """Delete an exchange; return whether it was there."""
        where = self._where(vhost)
        request = pb.DeleteExchangeRequest(vhost=where, name=name, if_unused=if_unused)
        return bool((await self._call(lambda stub: stub.DeleteExchange, request)).deleted)

    async def exchange(self, name: str, *, vhost: str | None = None) -> Exchange:
        """Return everything about an exchange."""
        request = pb.DescribeExchangeRequest(vhost=self._where(vhost), name=name)
        return read_exchange(await self._call(lambda stub: stub.DescribeExchange, request))

    def exchanges(self, *, vhost: str = "", name_prefix: str = "") -> AsyncIterator[Exchange]:
        """Return exchanges in the order of names; of all vhosts unless one is given."""

        async def page(page: pb.PageRequest) -> pb.ListExchangesResponse:
            request = pb.ListExchangesRequest(vhost=vhost, name_prefix=name_prefix, page=page)
            found: pb.ListExchangesResponse = await self._call(
                lambda stub: stub.ListExchanges, request
            )
            return found

        return self._listed(page, lambda answer: map(read_exchange, answer.exchanges))

    # Bindings

    async def bind(
        self,
        source: str,
        *,
        queue: str = "",
        exchange: str = "",
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
        vhost: str | None = None,
    ) -> bool:
        """Bind a queue or an exchange to an exchange; return whether that is new."""
        binding = Binding(self._where(vhost), source, queue, exchange, routing_key, arguments or {})
        request = pb.BindRequest(binding=binding_message(binding))
        return bool((await self._call(lambda stub: stub.Bind, request)).created)

    async def unbind(
        self,
        source: str,
        *,
        queue: str = "",
        exchange: str = "",
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
        vhost: str | None = None,
    ) -> bool:
        """Remove a binding; return whether it was there."""
        binding = Binding(self._where(vhost), source, queue, exchange, routing_key, arguments or {})
        request = pb.UnbindRequest(binding=binding_message(binding))
        return bool((await self._call(lambda stub: stub.Unbind, request)).deleted)

    def bindings(
        self, *, vhost: str = "", source: str | None = None, queue: str = "", exchange: str = ""
    ) -> AsyncIterator[Binding]:
        """Return bindings that match all arguments, those of the default exchange as well."""
        base = pb.ListBindingsRequest(vhost=vhost, source=source)
        if queue:
            base.queue = queue
        elif exchange:
            base.exchange = exchange

        async def page(page: pb.PageRequest) -> pb.ListBindingsResponse:
            base.page.CopyFrom(page)
            found: pb.ListBindingsResponse = await self._call(lambda stub: stub.ListBindings, base)
            return found

        return self._listed(page, lambda answer: map(read_binding, answer.bindings))
