"""A channel's publishes on their way to queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from headrace_broker.catalog.permission import WRITE
from headrace_broker.codecs.delivery_encoder import encode_return
from headrace_broker.codecs.method import decode_headers
from headrace_broker.gateways.amqp.authorization import EXCHANGE, check
from headrace_broker.gateways.amqp.confirming import Confirms
from headrace_broker.gateways.amqp.links import Links
from headrace_broker.gateways.amqp.outlet import Outlet
from headrace_broker.gateways.amqp.transaction import Transaction
from headrace_broker.model.definition import Queue
from headrace_broker.model.message import Publish
from headrace_broker.model.reply_code import (
    ACCESS_REFUSED,
    NO_ROUTE,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    AmqpError,
)

if TYPE_CHECKING:
    from headrace_broker.runtime.router import Route


@final
class Publisher:
    """Routes publishes and hands them to the sessions of their queues."""

    def __init__(
        self, outlet: Outlet, links: Links, confirms: Confirms, transaction: Transaction
    ) -> None:
        self._outlet = outlet
        self._links = links
        self._confirms = confirms
        # The exchange that the user may write to, as of this version of the permissions.
        self._permitted: str | None = None
        self._permitted_version = 0
        self._transaction = transaction

    def publish(self, publishes: list[Publish], current: bool) -> list[Publish]:
        """Publish messages with one route and the same flags.

        Args:
            publishes: at least one.
            current: this node's view of the catalog is up to date. If it need not be, what finds
                no exchange or no queue is left, and so is all behind it.

        Returns:
            What is left, to be published once the view is up to date.

        Raises:
            AmqpError: NOT_IMPLEMENTED (immediate), NOT_FOUND (exchange), ACCESS_REFUSED (internal
                exchange, no permission): none was published. SYNTAX_ERROR (headers): those before
                it were.
        """
        head = publishes[0]
        if head.immediate:
            raise AmqpError(NOT_IMPLEMENTED, "immediate=true")
        outlet = self._outlet
        outlet.published()
        route = outlet.broker.route(outlet.vhost, head.route)
        version = outlet.broker.permissions.version
        if route.exchange != self._permitted or version != self._permitted_version:
            check(outlet, WRITE, EXCHANGE, route.exchange)
            self._permitted = route.exchange
            self._permitted_version = version
        if not current and not route.queues and not route.needs_headers and not route.internal:
            return publishes
        if not route.known or route.internal:
            self._refuse(route)
        if not route.needs_headers:
            self._distribute(publishes, route)
            return []
        for done, publish in enumerate(publishes):
            headers = decode_headers(publish.properties)
            found = outlet.broker.route_with_headers(outlet.vhost, publish.route, headers)
            if not current and not found.queues:
                return publishes[done:]
            self._distribute([publish], found)
        return []

    def distribute_held(self) -> list[tuple[Queue, list[Publish]]]:
        """Take what the transaction holds: send back what finds no queue, the rest by queue."""
        batches: dict[int, tuple[Queue, list[Publish]]] = {}
        for publishes, route in self._transaction.take_publishes():
            if not route.queues:
                self._return(publishes)
            for queue in route.queues:
                batches.setdefault(queue.group, (queue, []))[1].extend(publishes)
        return list(batches.values())

    def _refuse(self, route: Route) -> None:
        vhost = self._outlet.vhost
        if not route.known:
            raise AmqpError(NOT_FOUND, f"no exchange '{route.exchange}' in vhost '{vhost}'")
        text = f"cannot publish to internal exchange '{route.exchange}' in vhost '{vhost}'"
        raise AmqpError(ACCESS_REFUSED, text)

    def _distribute(self, publishes: list[Publish], route: Route) -> None:
        if self._transaction.selected:
            self._transaction.hold(publishes, route)
            return
        outlet = self._outlet
        confirms = self._confirms
        queues = route.queues
        ticket = confirms.issue(len(publishes), len(queues)) if confirms.enabled else None
        if not queues:
            self._return(publishes)
            if ticket is not None:
                outlet.confirm(confirms)
        for queue in queues:
            link = self._links.open(queue)
            if ticket is not None:
                link.tickets += 1
            if not link.client.publish(publishes, ticket):
                outlet.congest(link)
            outlet.touch(link)

    def _return(self, publishes: list[Publish]) -> None:
        """Return mandatory publishes that no queue takes."""
        outlet = self._outlet
        if publishes[0].mandatory:
            for publish in publishes:
                encode_return(outlet.out, publish, NO_ROUTE, b"NO_ROUTE", outlet.frame_max)
                outlet.written()
