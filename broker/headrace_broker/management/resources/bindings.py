"""/api/bindings, and the bindings of a queue or an exchange."""

from __future__ import annotations

import hashlib
from typing import Any, Final
from urllib.parse import quote

import msgspec
from aiohttp import web
from typing_extensions import TypedDict

from headrace_broker.catalog.view import DESTINATION_EXCHANGE, DESTINATION_QUEUE, CatalogView
from headrace_broker.management.http.access import (
    caller,
    check_binding,
    check_ends,
    check_enters,
    check_not_exclusive,
)
from headrace_broker.management.http.answer import bad_request, done, json_answer, not_found
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.endpoints import Endpoints, exchange_name
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import deleted, got, listed, posted
from headrace_broker.model.binding_key import table_key
from headrace_broker.model.definition import Binding

HASH_DIGITS: Final = 22  # of a binding's arguments in its key
_KINDS: Final = {"q": DESTINATION_QUEUE, "e": DESTINATION_EXCHANGE}


class BindingBody(msgspec.Struct):
    """Body of POST /api/bindings/V/e/X/q/Q."""

    routing_key: str = ""
    arguments: dict[str, Any] = {}


class BindingView(TypedDict):
    """A binding."""

    source: str
    vhost: str
    destination: str
    destination_type: str
    routing_key: str
    arguments: dict[str, Any]
    properties_key: str


class BindingEndpoints(Endpoints):
    """Answers requests about bindings."""

    @listed("/api/bindings", "Bindings that the user sees.", BindingView)
    @listed("/api/bindings/{vhost}", "Bindings that the user sees.", BindingView)
    async def _list(self, request: web.Request) -> web.Response:
        view = self._node.view
        vhosts = await self._asked_vhosts(request)
        found = [b for vhost in vhosts for b in (*_implicit(view, vhost), *view.bindings(vhost))]
        return await listing(request, found, _render, name=properties_key)

    @listed("/api/queues/{vhost}/{queue}/bindings", "Bindings that lead to a queue.", BindingView)
    async def _of_queue(self, request: web.Request) -> web.Response:
        vhost = await self._known_vhost(request)
        queue = await self._known_queue(vhost, request.match_info["queue"])
        found = [
            _implicit_binding(vhost, queue.name),
            *self._node.view.bindings_of_queue(vhost, queue.name),
        ]
        return await listing(request, found, _render, name=properties_key)

    @listed(
        "/api/exchanges/{vhost}/{exchange}/bindings/source",
        "Bindings that leave an exchange.",
        BindingView,
    )
    async def _of_source(self, request: web.Request) -> web.Response:
        vhost = await self._known_vhost(request)
        exchange = await self._known_exchange(vhost, request.match_info["exchange"])
        view = self._node.view
        found = view.bindings_of_source(vhost, exchange.name)
        every = found if exchange.name else _implicit(view, vhost)
        return await listing(request, every, _render, name=properties_key)

    @listed(
        "/api/exchanges/{vhost}/{exchange}/bindings/destination",
        "Bindings that lead to an exchange.",
        BindingView,
    )
    async def _of_destination(self, request: web.Request) -> web.Response:
        vhost = await self._known_vhost(request)
        exchange = await self._known_exchange(vhost, request.match_info["exchange"])
        found = self._node.view.bindings_of_exchange(vhost, exchange.name)
        return await listing(request, found, _render, name=properties_key)

    async def _named_ends(self, request: web.Request) -> tuple[str, str, str, str]:
        """Return vhost, source, kind of destination and destination of a path, there or not."""
        vhost = await self._known_vhost(request)
        source = exchange_name(request.match_info["source"])
        kind, name = _KINDS[request.match_info["kind"]], request.match_info["destination"]
        if kind == DESTINATION_EXCHANGE:
            name = exchange_name(name)
        return vhost, source, kind, name

    async def _changed_ends(self, request: web.Request) -> tuple[str, str, str, str]:
        """Return the ends of a path that the caller may bind; otherwise neither is disclosed."""
        ends = await self._named_ends(request)
        check_ends(caller(), self._node.view, *ends)
        return await self._ends(request)

    async def _ends(self, request: web.Request) -> tuple[str, str, str, str]:
        """Return vhost, source, kind of destination and destination of a path; both must exist."""
        vhost, named, kind, name = await self._named_ends(request)
        source = await self._known_exchange(vhost, named)
        if kind == DESTINATION_QUEUE:
            await self._known_queue(vhost, name)
        else:
            await self._known_exchange(vhost, name)
        return vhost, source.name, kind, name

    def _found(self, vhost: str, source: str, kind: str, destination: str) -> list[Binding]:
        view = self._node.view
        if kind == DESTINATION_QUEUE:
            found = [
                _implicit_binding(vhost, destination),
                *view.bindings_of_queue(vhost, destination),
            ]
        else:
            found = view.bindings_of_exchange(vhost, destination)
        return [binding for binding in found if binding.source == source]

    @listed(
        "/api/bindings/{vhost}/e/{source}/{kind:[qe]}/{destination}",
        "Bindings between an exchange and a queue (q) or another exchange (e).",
        BindingView,
    )
    async def _between(self, request: web.Request) -> web.Response:
        found = self._found(*await self._ends(request))
        return await listing(request, found, _render, name=properties_key)

    async def _one(self, request: web.Request) -> Binding:
        """Return the binding that the path names; ApiError 404 without."""
        return self._named(request, *await self._ends(request))

    def _named(
        self, request: web.Request, vhost: str, source: str, kind: str, destination: str
    ) -> Binding:
        key = request.match_info["key"]
        for binding in self._found(vhost, source, kind, destination):
            if properties_key(binding) == key:
                return binding
        raise not_found(
            f"binding '{key}' from exchange '{source}' to {kind} '{destination}' in vhost '{vhost}'"
        )

    @got(
        "/api/bindings/{vhost}/e/{source}/{kind:[qe]}/{destination}/{key}",
        "A binding.",
        BindingView,
    )
    async def _get(self, request: web.Request) -> web.Response:
        return json_answer(_render(await self._one(request)))

    @posted(
        "/api/bindings/{vhost}/e/{source}/{kind:[qe]}/{destination}",
        "Bind; the answer says where the binding is.",
        BindingBody,
        codes=(201,),
    )
    async def _post(self, request: web.Request) -> web.Response:
        vhost, source, kind, destination = await self._changed_ends(request)
        body = await decode(request, BindingBody)
        binding = Binding(vhost, source, kind, destination, body.routing_key, body.arguments)
        self._check_changeable(request, binding)
        await self._node.topology.bind(binding)
        response = done(created=True)
        response.headers["Location"] = (
            f"{request.rel_url.raw_path}/{quote(properties_key(binding), safe='')}"
        )
        return response

    @deleted("/api/bindings/{vhost}/e/{source}/{kind:[qe]}/{destination}/{key}", "Unbind.")
    async def _delete(self, request: web.Request) -> web.Response:
        ends = await self._changed_ends(request)
        binding = self._named(request, *ends)
        self._check_changeable(request, binding)
        await self._node.topology.unbind(binding)
        return done()

    def _check_changeable(self, request: web.Request, binding: Binding) -> None:
        who, view, vhost = caller(), self._node.view, binding.vhost
        check_enters(who, view, vhost)
        check_binding(who, view, binding)
        if not binding.source:
            raise bad_request("source: the default exchange has fixed bindings")
        if binding.destination_type == DESTINATION_QUEUE:
            queue = view.queue(vhost, binding.destination)
            if queue is not None:
                check_not_exclusive(queue)


def properties_key(binding: Binding) -> str:
    """Return what names a binding among those with the same ends, in the form RabbitMQ gives it."""
    if not binding.routing_key and not binding.arguments:
        return "~"
    key = quote(binding.routing_key, safe="")
    if not binding.arguments:
        return key
    digest = hashlib.sha256(table_key(binding.arguments)).hexdigest()
    return f"{key}~{digest[:HASH_DIGITS]}"


def _implicit_binding(vhost: str, queue: str) -> Binding:
    """Return the binding that the default exchange has to every queue."""
    return Binding(vhost, "", DESTINATION_QUEUE, queue, queue)


def _implicit(view: CatalogView, vhost: str) -> list[Binding]:
    return [_implicit_binding(vhost, queue.name) for queue in view.queues(vhost)]


def _render(binding: Binding) -> BindingView:
    return {
        "source": binding.source,
        "vhost": binding.vhost,
        "destination": binding.destination,
        "destination_type": binding.destination_type,
        "routing_key": binding.routing_key,
        "arguments": binding.arguments,
        "properties_key": properties_key(binding),
    }
