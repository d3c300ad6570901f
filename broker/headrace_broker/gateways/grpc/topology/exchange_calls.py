"""Calls about exchanges and bindings."""

from __future__ import annotations

import hashlib

from headrace_broker.catalog.access import (
    EXCHANGE,
    QUEUE,
    Caller,
    check_allowed,
    check_any,
    check_binding,
    check_declares,
    check_exchange_type,
    check_manages,
    check_new_name,
    check_not_default,
    check_not_exclusive,
    check_not_system,
)
from headrace_broker.catalog.exchange_argument import arguments_problem, binding_problem, inner_type
from headrace_broker.catalog.permission import CONFIGURE
from headrace_broker.catalog.policy import policy_of
from headrace_broker.gateways.grpc.server.errors import bad_field
from headrace_broker.gateways.grpc.server.lookup import (
    DEFAULT_EXCHANGE_ALIAS,
    LookupService,
    check_name,
)
from headrace_broker.gateways.grpc.server.page import Key, Pager
from headrace_broker.gateways.grpc.values.argument_table import read_table, written_table
from headrace_broker.model.binding_key import binding_key, table_key
from headrace_broker.model.definition import (
    EXCHANGE_CONSISTENT_HASH,
    EXCHANGE_LOCAL_RANDOM,
    Binding,
    Exchange,
)
from headrace_protos.broker.v1 import topology_pb2 as messages


class ExchangeCalls:
    """Declares, deletes and describes exchanges."""

    def __init__(self, lookup: LookupService) -> None:
        self._lookup = lookup
        self._pager: Pager[Exchange] = Pager("exchanges", lambda each: (each.vhost, each.name))

    async def declare(
        self, who: Caller, request: messages.DeclareExchangeRequest
    ) -> messages.DeclareExchangeResponse:
        """Create an exchange unless an equivalent one is there."""
        lookup = self._lookup
        vhost, name = await lookup.enter(who, request.vhost), request.name
        check_name("name", name, low=0)
        check_not_default(name)
        if request.passive:
            check_any(lookup.rights, who.name, vhost, EXCHANGE, name)
            await lookup.known_exchange(vhost, name)
            return messages.DeclareExchangeResponse(created=False)
        arguments = read_table(request.arguments, "arguments")
        known = lookup.view.exchange(vhost, name) is not None
        check_declares(lookup.rights, who.name, vhost, EXCHANGE, name, arguments, known)
        _check_type(request.type)
        if not known:
            check_new_name(EXCHANGE, name)
        durable = not request.HasField("durable") or request.durable
        flags = (durable, request.auto_delete, request.internal)
        exchange = Exchange(vhost, name, request.type, *flags, arguments)
        problem = arguments_problem(exchange)
        if problem:
            raise bad_field("arguments", problem)
        await lookup.node.topology.declare_exchange(exchange)
        return messages.DeclareExchangeResponse(created=not known)

    async def delete(
        self, who: Caller, request: messages.DeleteExchangeRequest
    ) -> messages.DeleteResponse:
        """Delete an exchange; one that is not there is no error."""
        lookup = self._lookup
        vhost, name = await lookup.enter(who, request.vhost), request.name
        check_name("name", name, low=0)
        check_not_default(name)
        check_not_system(vhost, name)
        check_allowed(lookup.rights, who.name, vhost, CONFIGURE, EXCHANGE, name)
        known = await lookup.find_exchange(vhost, name) is not None
        await lookup.node.topology.delete_exchange(vhost, name, request.if_unused)
        return messages.DeleteResponse(deleted=known)

    async def describe(
        self, who: Caller, request: messages.DescribeExchangeRequest
    ) -> messages.ExchangeDescription:
        """Return everything about an exchange."""
        lookup = self._lookup
        vhost, name = await lookup.known_vhost(who, request.vhost), request.name
        check_name("name", name, low=0)
        if not (who.manages and who.sees(lookup.view, vhost)):
            await lookup.enter(who, vhost)
            check_any(lookup.rights, who.name, vhost, EXCHANGE, name)
        return self._render(await lookup.known_exchange(vhost, name))

    async def list(
        self, who: Caller, request: messages.ListExchangesRequest
    ) -> messages.ListExchangesResponse:
        """List exchanges; the default one has the name ""."""
        check_manages(who)
        check_name("name_prefix", request.name_prefix, low=0)
        vhosts = frozenset(await self._lookup.seen_vhosts(who, request.vhost))
        prefix = request.name_prefix
        rows = [
            exchange
            for exchange in self._lookup.view.exchanges()
            if exchange.vhost in vhosts and exchange.name.startswith(prefix)
        ]
        if not prefix:
            rows += [Exchange(vhost, "", "direct") for vhost in vhosts]
        exchanges, token = await self._pager.page(request.page, rows, self._render)
        return messages.ListExchangesResponse(exchanges=exchanges, next_token=token)

    def _render(self, exchange: Exchange) -> messages.ExchangeDescription:
        policy = policy_of(self._lookup.view, exchange) if exchange.name else None
        return messages.ExchangeDescription(
            vhost=exchange.vhost,
            name=exchange.name,
            type=exchange.type,
            durable=exchange.durable,
            auto_delete=exchange.auto_delete,
            internal=exchange.internal,
            arguments=written_table(exchange.arguments),
            policy=policy.name if policy is not None else "",
        )


class BindingCalls:
    """Adds, removes and lists bindings."""

    def __init__(self, lookup: LookupService) -> None:
        self._lookup = lookup
        self._pager: Pager[Binding] = Pager("bindings", _binding_order)

    async def bind(self, who: Caller, request: messages.BindRequest) -> messages.BindResponse:
        """Add a binding."""
        lookup = self._lookup
        binding = await self._changeable(who, request.binding)
        source = await lookup.known_exchange(binding.vhost, binding.source, "binding.source")
        if binding.destination_type == EXCHANGE:
            name = binding.destination
            await lookup.known_exchange(binding.vhost, name, "binding.exchange")
        problem = binding_problem(source, binding)
        if problem:
            raise bad_field(_wrong_field(inner_type(source), binding), problem)
        known = lookup.view.binding_exists(binding_key(binding))
        await lookup.node.topology.bind(binding)
        return messages.BindResponse(created=not known)

    async def unbind(self, who: Caller, request: messages.UnbindRequest) -> messages.DeleteResponse:
        """Remove a binding; one that is not there is no error."""
        binding = await self._changeable(who, request.binding, may_be_gone=True)
        if not self._lookup.view.binding_exists(binding_key(binding)):
            await self._lookup.node.catch_up()
        known = self._lookup.view.binding_exists(binding_key(binding))
        if known:
            await self._lookup.node.topology.unbind(binding)
        return messages.DeleteResponse(deleted=known)

    async def _changeable(
        self, who: Caller, message: messages.Binding, may_be_gone: bool = False
    ) -> Binding:
        """Return the binding that a request names, if the caller may change it."""
        lookup = self._lookup
        vhost = await lookup.enter(who, message.vhost, "binding.vhost")
        kind = message.WhichOneof("destination")
        if kind is None:
            raise bad_field("binding.destination", "must be a queue or an exchange")
        destination = message.queue if kind == QUEUE else message.exchange
        check_name("binding.source", message.source, low=0)
        check_name(f"binding.{kind}", destination, low=0)
        check_name("binding.routing_key", message.routing_key, low=0)
        check_not_default(message.source)
        if kind == EXCHANGE:
            check_not_default(destination)
        arguments = read_table(message.arguments, "binding.arguments")
        ends = (message.source, kind, destination)
        binding = Binding(vhost, *ends, message.routing_key, arguments)
        check_binding(lookup.rights, who.name, binding)
        if kind == QUEUE:
            queue = await lookup.find_queue(vhost, destination)
            if queue is not None:
                check_not_exclusive(queue)
            elif not may_be_gone:
                await lookup.known_queue(vhost, destination, "binding.queue")
        return binding

    async def list(
        self, who: Caller, request: messages.ListBindingsRequest
    ) -> messages.ListBindingsResponse:
        """List bindings; to every queue there is one of the default exchange."""
        check_manages(who)
        view = self._lookup.view
        vhosts = await self._lookup.seen_vhosts(who, request.vhost)
        kind = request.WhichOneof("destination")
        destination = {QUEUE: request.queue, EXCHANGE: request.exchange, None: ""}[kind]
        rows: list[Binding] = []
        for vhost in vhosts:
            if kind == QUEUE:
                rows += view.bindings_of_queue(vhost, destination)
                if view.queue(vhost, destination) is not None:
                    rows.append(_implicit(vhost, destination))
            elif kind == EXCHANGE:
                rows += view.bindings_of_exchange(vhost, destination)
            else:
                rows += view.bindings(vhost)
                rows += [_implicit(vhost, queue.name) for queue in view.queues(vhost)]
        if request.HasField("source"):
            source = "" if request.source == DEFAULT_EXCHANGE_ALIAS else request.source
            rows = [binding for binding in rows if binding.source == source]
        bindings, token = await self._pager.page(request.page, rows, _render_binding)
        return messages.ListBindingsResponse(bindings=bindings, next_token=token)


def _check_type(kind: str) -> None:
    if not kind:
        raise bad_field("type", "must not be empty")
    check_exchange_type(kind)


def _implicit(vhost: str, queue: str) -> Binding:
    """Return the binding that the default exchange has to every queue."""
    return Binding(vhost, "", QUEUE, queue, queue)


def _binding_order(binding: Binding) -> Key:
    """Return what bindings are sorted by; of the arguments a digest, so that it is short."""
    arguments = table_key(binding.arguments)
    digest = hashlib.sha256(arguments).hexdigest() if arguments else ""
    ends = (binding.source, binding.destination_type, binding.destination)
    return (binding.vhost, *ends, binding.routing_key, digest)


def _render_binding(binding: Binding) -> messages.Binding:
    rendered = messages.Binding(
        vhost=binding.vhost,
        source=binding.source,
        routing_key=binding.routing_key,
        arguments=written_table(binding.arguments),
    )
    if binding.destination_type == QUEUE:
        rendered.queue = binding.destination
    else:
        rendered.exchange = binding.destination
    return rendered


def _wrong_field(kind: str, binding: Binding) -> str:
    """Return the field of a binding that an exchange of this type does not take."""
    if kind == EXCHANGE_LOCAL_RANDOM and not binding.routing_key:
        return "binding.destination"
    by_key = kind in (EXCHANGE_CONSISTENT_HASH, EXCHANGE_LOCAL_RANDOM)
    return "binding.routing_key" if by_key else "binding.arguments"
