"""Routes of publishes, remembered per exchange and routing key as they stand on the wire."""

from __future__ import annotations

from typing import Any, final

from mypy_extensions import i64

from headrace_broker.catalog.event import (
    BindingAdded,
    BindingRemoved,
    Event,
    ExchangeAdded,
    ExchangeRemoved,
    QueueAdded,
    QueueRemoved,
    VhostRemoved,
)
from headrace_broker.core.routing import Resolution, Routing
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import ROUTES_CACHED_MAX
from headrace_broker.runtime.plain_table import plain_table


@final
class Route:
    """Where messages with one exchange and routing key go.

    Attributes:
        exchange: its name.
        routing_key: octets that are not UTF-8 are kept as surrogates.
        known: whether the exchange exists.
        internal: whether it exists and clients may not publish to it.
        queues: where messages go, in order of their names; without headers when `needs_headers`.
        needs_headers: the message's headers decide: ask `route_with_headers` for each.
    """

    def __init__(
        self, exchange: str, routing_key: str, resolution: Resolution, queues: tuple[Queue, ...]
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.known: bool = resolution.known
        self.internal: bool = resolution.internal
        self.queues = queues
        self.needs_headers: bool = resolution.needs_headers


def split_route(raw_route: bytes) -> tuple[str, str]:
    """Return exchange and routing key of two short strings back to back (`Publish.route`).

    Octets that are not UTF-8 become surrogates; no name in the catalog has any.
    """
    middle: i64 = 1 + i64(raw_route[0])
    end: i64 = middle + 1 + i64(raw_route[middle])
    exchange = raw_route[1:middle].decode("utf-8", "surrogateescape")
    return exchange, raw_route[middle + 1 : end].decode("utf-8", "surrogateescape")


@final
class Router:
    """Follows the catalog's events and answers routes.

    Attributes:
        routing: the tables of exchanges and bindings.
    """

    def __init__(self) -> None:
        self.routing = Routing()
        self._queues: dict[str, dict[str, Queue]] = {}
        self._cache: dict[str, dict[bytes, Route]] = {}
        self._cached_count: i64 = 0
        self._cached_version: i64 = 0

    @property
    def version(self) -> int:
        """Counts up with every change; a route that was given at another version may be wrong."""
        return self.routing.version

    @property
    def cached_count(self) -> int:
        """Number of routes remembered, up to ROUTES_CACHED_MAX."""
        return self._cached_count

    def on_events(self, events: list[Event]) -> None:
        """Follow changes of the catalog."""
        for event in events:
            if isinstance(event, QueueAdded):
                self._queues.setdefault(event.queue.vhost, {})[event.queue.name] = event.queue
                self.routing.add_queue(event.queue.vhost, event.queue.name)
            elif isinstance(event, QueueRemoved):
                self.routing.remove_queue(event.queue.vhost, event.queue.name)
                del self._queues[event.queue.vhost][event.queue.name]
            elif isinstance(event, ExchangeAdded):
                self.routing.add_exchange(event.exchange)
            elif isinstance(event, ExchangeRemoved):
                self.routing.remove_exchange(event.exchange.vhost, event.exchange.name)
            elif isinstance(event, BindingAdded):
                self.routing.add_binding(event.binding)
            elif isinstance(event, BindingRemoved):
                self.routing.remove_binding(event.binding)
            elif isinstance(event, VhostRemoved):
                self._queues.pop(event.vhost.name, None)

    def route(self, vhost: str, raw_route: bytes) -> Route:
        """Return where messages with a route go, from memory where possible.

        `raw_route` is exchange and routing key, two well-formed short strings back to back.
        """
        if self._cached_version != self.routing.version:
            self._forget()
        routes = self._cache.get(vhost)
        if routes is not None:
            hit = routes.get(raw_route)
            if hit is not None:
                return hit
        route = self._resolve(vhost, raw_route, None)
        if self._cached_count >= ROUTES_CACHED_MAX:
            self._forget()
        self._cache.setdefault(vhost, {})[raw_route] = route
        self._cached_count += 1
        return route

    def route_with_headers(self, vhost: str, raw_route: bytes, headers: dict[str, Any]) -> Route:
        """Return where a message with these headers goes."""
        return self._resolve(vhost, raw_route, plain_table(headers))

    def _resolve(self, vhost: str, raw_route: bytes, headers: dict[str, Any] | None) -> Route:
        exchange, routing_key = split_route(raw_route)
        resolution = self.routing.resolve(vhost, exchange, routing_key, headers)
        if not resolution.queues:
            return Route(exchange, routing_key, resolution, ())
        queues = self._queues[vhost]
        return Route(
            exchange, routing_key, resolution, tuple([queues[name] for name in resolution.queues])
        )

    def _forget(self) -> None:
        self._cache = {}
        self._cached_count = 0
        self._cached_version = self.routing.version
