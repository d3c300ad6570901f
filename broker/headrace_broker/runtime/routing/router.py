"""Routes of publishes, remembered per exchange and routing key as they stand on the wire."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, final

from mypy_extensions import i64

from headrace_broker.catalog.event import (
    BindingAdded,
    BindingRemoved,
    Event,
    ExchangeAdded,
    ExchangeRemoved,
    PolicyChanged,
    QueueAdded,
    QueueRemoved,
    VhostRemoved,
)
from headrace_broker.catalog.policy import EffectiveArguments, exchange_arguments
from headrace_broker.catalog.view import CatalogView
from headrace_broker.codecs.method import decode_headers
from headrace_broker.core.routing.distribution import DistributionError, distribution_keys
from headrace_broker.core.routing.local_random import Locality
from headrace_broker.core.routing.matcher import Subject
from headrace_broker.core.routing.routing import Alternates, Resolution, RouteStamp, Routing
from headrace_broker.model.definition import Exchange, Queue
from headrace_broker.model.exchange_argument import ALTERNATE_EXCHANGE
from headrace_broker.model.limits import ROUTES_CACHED_MAX, ROUTES_CACHED_OF_EXCHANGE_MAX
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.contract.plain_table import plain_table
from headrace_broker.runtime.contract.traffic import ExchangeTraffic

ALLOW_IMMEDIATE: Final = "allow-immediate"  # a policy's key


@final
class Route:
    """Destinations of messages with one exchange and routing key, or of one message."""

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        resolution: Resolution,
        queues: tuple[Queue, ...],
        traffic: ExchangeTraffic,
    ) -> None:
        self.exchange = exchange  # its name
        self.traffic = traffic  # of its exchange; who publishes counts there
        self.routing_key = routing_key  # bytes that are not UTF-8 are kept as surrogates
        self.known: bool = resolution.known  # whether the exchange exists
        self.internal: bool = resolution.internal  # it exists, and is not for clients
        # where messages go, in order of their names; of what `needs_message`, without it
        self.queues = queues
        self.replies: tuple[str, ...] = resolution.replies  # reply-to consumers they go to
        self.needs_message: bool = resolution.needs_message  # ask `route_message` for each
        self.needs_headers: bool = resolution.needs_headers  # its decoded headers are among them
        self.work: i64 = resolution.work  # steps to find it, each some 30 ns, until paid for
        self.problem: str = resolution.problem  # why their cost is refused, or ""
        self.stamp: RouteStamp | None = resolution.stamp  # holds while it is `stamp_version`
        self.stamp_version: i64 = resolution.stamp.version if resolution.stamp is not None else 0


def split_route(raw_route: bytes) -> tuple[str, str]:
    """Return exchange and routing key of two short strings back to back (`Publish.route`).

    Bytes that are not UTF-8 become surrogates; no name in the catalog has any.
    """
    middle: i64 = 1 + i64(raw_route[0])
    end: i64 = middle + 1 + i64(raw_route[middle])
    exchange = raw_route[1:middle].decode("utf-8", "surrogateescape")
    return exchange, raw_route[middle + 1 : end].decode("utf-8", "surrogateescape")


class Replica(Protocol):
    """A replica of a queue on this node."""

    leading: bool  # whether it leads the queue


@final
class LedQueues(Locality):
    """The queues that this node's processes lead, for exchanges that deliver to no others."""

    def __init__(self, queues: dict[str, dict[str, Queue]], draw: Callable[[int], int]) -> None:
        self.hosts: Mapping[int, Replica] = {}  # replicas in this process by queue group
        # returns whether another process of the node leads a queue group
        self.siblings_lead: Callable[[int], bool] = lambda group: False
        self._queues = queues  # those of the catalog, by vhost and name
        self._draw = draw  # returns a random number below its argument

    def is_local(self, vhost: str, queue: str) -> bool:
        """Return whether this node leads a queue."""
        group = self._queues[vhost][queue].group
        host = self.hosts.get(group)
        return (host is not None and host.leading) or self.siblings_lead(group)

    def draw(self, count: int) -> int:
        """Return a random number from 0 to `count` - 1."""
        return self._draw(count)


@final
class PolicyAlternates(Alternates):
    """The alternate exchanges that policies name."""

    def __init__(self, view: CatalogView | None, exchanges: dict[str, dict[str, Exchange]]) -> None:
        self._view = view  # the catalog, None for no policies
        self._exchanges = exchanges  # those of the catalog, by vhost and name
        self._naming: set[str] = set()  # vhosts of which an exchange may have got one

    def of(self, vhost: str, exchange: str) -> str | None:
        """Return the name of the alternate that a policy gives an exchange, None for none."""
        if self._view is None or not self._names_one(vhost):
            return None
        self._naming.add(vhost)
        told = exchange_arguments(self._view, self._exchanges[vhost][exchange])
        alternate: object = told.get(ALTERNATE_EXCHANGE)
        return alternate if isinstance(alternate, str) else None

    def changed(self, vhost: str) -> bool:
        """Return whether a change of a vhost's policies may have given it other alternates."""
        named = vhost in self._naming
        self._naming.discard(vhost)
        return named or self._names_one(vhost)

    def _names_one(self, vhost: str) -> bool:
        if self._view is not None:
            for operator in (False, True):
                for policy in self._view.policies(vhost, operator):
                    if ALTERNATE_EXCHANGE in policy.definition:
                        return True
        return False


@final
class Router:
    """Follows the catalog's events and answers routes; `draw` gives random numbers."""

    def __init__(
        self, view: CatalogView | None = None, draw: Callable[[int], int] = random.randrange
    ) -> None:
        self._queues: dict[str, dict[str, Queue]] = {}
        self._exchanges: dict[str, dict[str, Exchange]] = {}
        self.led = LedQueues(self._queues, draw)  # tells which queues this node leads
        self._alternates = PolicyAlternates(view, self._exchanges)
        self.routing = Routing(self.led, self._alternates)  # the tables of exchanges and bindings
        self._view = view  # the catalog of these events, for policies; None for none
        self._effective = EffectiveArguments(view) if view is not None else None
        self._traffic: dict[str, dict[str, ExchangeTraffic]] = {}
        self._cache: dict[str, dict[bytes, Route]] = {}
        self._cached_count: i64 = 0

    @property
    def version(self) -> int:
        """Counts up with every change; a route that was given at another version may be wrong."""
        return self.routing.version

    def on_events(self, events: list[Event]) -> None:
        """Follow changes of the catalog."""
        governed: dict[str, None] = {}
        for event in events:
            if isinstance(event, QueueAdded):
                self._queues.setdefault(event.queue.vhost, {})[event.queue.name] = event.queue
                self.routing.add_queue(event.queue.vhost, event.queue.name)
            elif isinstance(event, QueueRemoved):
                self.routing.remove_queue(event.queue.vhost, event.queue.name)
                del self._queues[event.queue.vhost][event.queue.name]
            elif isinstance(event, ExchangeAdded):
                self._add_exchange(event.exchange)
            elif isinstance(event, ExchangeRemoved):
                self.routing.remove_exchange(event.exchange.vhost, event.exchange.name)
                del self._exchanges[event.exchange.vhost][event.exchange.name]
                self._traffic.get(event.exchange.vhost, {}).pop(event.exchange.name, None)
            elif isinstance(event, BindingAdded):
                self.routing.add_binding(event.binding)
            elif isinstance(event, BindingRemoved):
                self.routing.remove_binding(event.binding)
            elif isinstance(event, VhostRemoved):
                self._queues.pop(event.vhost.name, None)
                self._exchanges.pop(event.vhost.name, None)
                self._traffic.pop(event.vhost.name, None)
            elif isinstance(event, PolicyChanged):
                governed[event.vhost] = None
        for vhost in governed:
            if self._alternates.changed(vhost):
                self._forget_alternates(vhost)
        if self._effective is not None:
            self._effective.changed(events)

    def _add_exchange(self, exchange: Exchange) -> None:
        self.routing.add_exchange(exchange)
        self._exchanges.setdefault(exchange.vhost, {})[exchange.name] = exchange

    def _forget_alternates(self, vhost: str) -> None:
        """Ask the policies of a vhost again, for each exchange when it needs an alternate.

        Whoever writes policies could otherwise have all names of the vhost searched in one turn.
        """
        for exchange in self._exchanges.get(vhost, {}).values():
            if not isinstance(exchange.arguments.get(ALTERNATE_EXCHANGE), str):
                self.routing.forget_alternate(vhost, exchange.name)

    def allows_immediate(self, vhost: str, queues: tuple[Queue, ...]) -> bool:
        """Return whether policies let the flag `immediate` be used towards all these queues.

        Towards none of them it may be used where a policy of the vhost allows it to any queue.
        """
        if self._view is None or self._effective is None:
            return False
        for queue in queues:
            if self._effective.of(queue).get(ALLOW_IMMEDIATE) is not True:
                return False
        if queues:
            return True
        for policy in self._view.policies(vhost):
            if policy.definition.get(ALLOW_IMMEDIATE) is True:
                return True
        return False

    def route(self, vhost: str, raw_route: bytes) -> Route:
        """Return where messages with a route go, from memory where possible.

        `raw_route` is exchange and routing key, two well-formed short strings back to back.
        """
        routes = self._cache.get(vhost)
        hit = routes.get(raw_route) if routes is not None else None
        if hit is not None and hit.stamp is not None and hit.stamp.version == hit.stamp_version:
            return hit
        exchange, routing_key = split_route(raw_route)
        route = self._resolve(vhost, exchange, Subject([routing_key]))
        if route.stamp is not None:
            self._remember(vhost, raw_route, route, hit)
        return route

    def _remember(self, vhost: str, raw_route: bytes, route: Route, former: Route | None) -> None:
        """Remember a route in place of an outdated one."""
        stamp = route.stamp
        assert stamp is not None
        if former is not None:
            self._uncount(former)
        if stamp.remembered >= ROUTES_CACHED_OF_EXCHANGE_MAX:
            self._forget(vhost, stamp)
        if self._cached_count >= ROUTES_CACHED_MAX:
            self._forget_most()
        self._cache.setdefault(vhost, {})[raw_route] = route
        stamp.remembered += 1
        self._cached_count += 1

    def _uncount(self, route: Route) -> None:
        assert route.stamp is not None
        route.stamp.remembered -= 1
        self._cached_count -= 1

    def _forget(self, vhost: str, stamp: RouteStamp) -> None:
        """Forget the routes of one exchange, or those through several of a vhost."""
        kept: dict[bytes, Route] = {}
        for raw_route, route in self._cache.get(vhost, {}).items():
            if route.stamp is stamp:
                self._uncount(route)
            else:
                kept[raw_route] = route
        self._cache[vhost] = kept

    def _forget_most(self) -> None:
        """Forget the routes of the vhost that has most."""
        most = ""
        count = -1
        for vhost, routes in self._cache.items():
            if len(routes) > count:
                most = vhost
                count = len(routes)
        for route in self._cache.pop(most).values():
            self._uncount(route)

    def route_message(self, vhost: str, raw_route: bytes, properties: bytes) -> Route:
        """Return where one message goes: its headers, properties, CC and BCC count.

        Raises DistributionError: CC or BCC is wrong; AmqpError SYNTAX_ERROR: a header that matters
        is.
        """
        route = self.route(vhost, raw_route)
        more = distribution_keys(properties)
        if not route.needs_message and not more:
            return route
        headers: dict[str, Any] = {}
        if route.needs_headers or (more and self.routing.needs_headers(vhost, route.exchange)):
            headers = plain_table(decode_headers(properties))
        subject = Subject([route.routing_key, *more], headers, properties)
        return self._resolve(vhost, route.exchange, subject)

    def route_stored(self, vhost: str, raw_route: bytes, properties: bytes) -> Route:
        """As `route_message` for one that a queue has had: what cannot be read counts as absent."""
        try:
            return self.route_message(vhost, raw_route, properties)
        except (DistributionError, AmqpError):
            exchange, routing_key = split_route(raw_route)
            return self._resolve(vhost, exchange, Subject([routing_key], {}, properties))

    def _resolve(self, vhost: str, exchange: str, subject: Subject) -> Route:
        resolution = self.routing.resolve(vhost, exchange, subject)
        routing_key = subject.routing_keys[0]
        traffic = self._traffic_of(vhost, exchange, resolution.known)
        if not resolution.queues:
            return Route(exchange, routing_key, resolution, (), traffic)
        queues = self._queues[vhost]
        found = tuple([queues[name] for name in resolution.queues])
        return Route(exchange, routing_key, resolution, found, traffic)

    def _traffic_of(self, vhost: str, exchange: str, known: bool) -> ExchangeTraffic:
        found = self._traffic.get(vhost, {}).get(exchange)
        if found is None:
            found = ExchangeTraffic()
            if known:
                self._traffic.setdefault(vhost, {})[exchange] = found
        return found

    def traffic(self) -> list[tuple[str, str, ExchangeTraffic]]:
        """Return vhost, name and traffic of the exchanges to which something was published."""
        found: list[tuple[str, str, ExchangeTraffic]] = []
        for vhost, exchanges in self._traffic.items():
            for name, traffic in exchanges.items():
                found.append((vhost, name, traffic))
        return found
