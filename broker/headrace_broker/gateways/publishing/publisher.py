"""Publishes on their way to queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from headrace_broker.catalog.access import EXCHANGE
from headrace_broker.catalog.permission import WRITE
from headrace_broker.core.property_edit import without_header
from headrace_broker.core.property_reader import HEADERS
from headrace_broker.core.routing.distribution import (
    BCC,
    DistributionError,
    distribution_keys,
)
from headrace_broker.flow.gate import Gate
from headrace_broker.gateways.publishing.authorization import check, check_topic
from headrace_broker.gateways.publishing.confirming import Confirms
from headrace_broker.gateways.publishing.links import Links
from headrace_broker.gateways.publishing.output_buffer import OutputBuffer
from headrace_broker.gateways.publishing.screening import (
    Screen,
    remarks,
    with_properties,
    worth_a_look,
)
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import ROUTING_STEPS_OF_MESSAGE
from headrace_broker.model.message import Publish
from headrace_broker.model.reply_code import (
    ACCESS_REFUSED,
    NO_CONSUMERS,
    NO_ROUTE,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    AmqpError,
)
from headrace_broker.runtime.contract.port import PendingConfirm, QueueClient
from headrace_broker.runtime.contract.trace_port import TRACING

if TYPE_CHECKING:
    from headrace_broker.runtime.routing.router import Route


class Publisher:
    """Routes publishes and hands them to the sessions of their queues.

    Attributes:
        screen: what is checked of their properties.
        closed: the gate that stopped `publish`, None where something else did.
        failed_at: when `publish` raises: which message is at fault, -1 for all of them.
    """

    def __init__(self, output: OutputBuffer, links: Links, confirms: Confirms) -> None:
        self.screen = Screen(output)
        self._output = output
        self._links = links
        self._confirms = confirms
        # The exchange that the user may write to, as of this version of the permissions.
        self._permitted: str | None = None
        self._permitted_version = 0
        self._narrowed = False  # a topic permission of the user says which routing keys there
        self._allowed: Route | None = None  # then, the route that was asked about last
        self.closed: Gate | None = None
        self.failed_at: i64 = -1
        self._served = False
        self._force = False

    def publish(
        self, publishes: list[Publish], current: bool, served: bool = False, force: bool = False
    ) -> list[Publish]:
        """Publish messages with one route and the same flags.

        Args:
            publishes: at least one.
            current: this node's view of the catalog is up to date. If it need not be, what finds
                no exchange or no queue is left, and so is all behind it.
            served: they stood at a gate, and it has called.
            force: they cannot wait; only gates that are overdrawn stop them.

        Returns:
            What is left, to be published once the view is up to date, or if `closed` says so, once
            that gate calls.

        Raises:
            AmqpError: NOT_IMPLEMENTED (immediate), NOT_FOUND (exchange), ACCESS_REFUSED (internal
                exchange, no permission): none was published. PRECONDITION_FAILED (a property, or
                a route that costs too much), SYNTAX_ERROR (headers), NOT_IMPLEMENTED where headers
                decide: those before it were.
        """
        head = publishes[0]
        output = self._output
        self.closed = None
        self.failed_at = -1
        self._served = served
        self._force = force
        route = output.broker.route(output.vhost, head.route)
        if route.work > 0:
            self._charge(route)
        version = output.broker.permissions.version
        if route.exchange != self._permitted or version != self._permitted_version:
            check(output, WRITE, EXCHANGE, route.exchange)
            self._permitted = route.exchange
            self._permitted_version = version
            permissions = output.broker.permissions
            self._narrowed = permissions.narrows(output.user, output.vhost, route.exchange)
            self._allowed = None
        if self._narrowed and route is not self._allowed:
            check_topic(output, route.exchange, route.routing_key)
            self._allowed = route
        lost = not (route.queues or route.needs_message or route.replies or route.problem)
        if lost and not current and not route.internal:
            return publishes
        if not route.known or route.internal:
            self._refuse(route)
        if route.needs_message or worth_a_look(publishes):
            return self._publish_singly(publishes, route, current)
        _check_cost(route)
        if self._is_closed(route):
            return publishes
        self._pass_on(publishes, route)
        return []

    def publish_to(
        self, publishes: list[Publish], route: Route, served: bool, force: bool
    ) -> list[Publish]:
        """Publish messages to the queues of a route, whatever they and the catalog say of it.

        Returns:
            What is left, to be published once the gate `closed` calls.
        """
        self.closed = None
        self.failed_at = -1
        self._served = served
        self._force = force
        if self._is_closed(route):
            return publishes
        self._pass_on(publishes, route)
        return []

    def _charge(self, route: Route) -> None:
        """Charge the turn's budget for finding a route."""
        self._output.admission.intake.charge(route.work // ROUTING_STEPS_OF_MESSAGE)
        route.work = 0

    def _is_closed(self, route: Route) -> bool:
        """Return whether a queue of the route is closed, and note its gate."""
        if route.queues and not self.collects:
            self.closed = self._links.closed_gate(route.queues, self._served, self._force)
        return self.closed is not None

    def _publish_singly(
        self, publishes: list[Publish], route: Route, current: bool
    ) -> list[Publish]:
        """Examine each message; those with the common route stay together."""
        together: list[Publish] = []
        try:
            for done, publish in enumerate(publishes):
                if done > 0 and self._spent():
                    return publishes[done:]
                self.failed_at = done
                marks = remarks(publish.properties)
                checked = self.screen.check(publish, marks)
                if not route.needs_message and marks & HEADERS == 0:
                    _check_cost(route)
                    if not together and self._is_closed(route):
                        return publishes[done:]
                    together.append(checked)
                    continue
                if self._narrowed:
                    self.check_copies(route, checked)
                found = self._route_message(checked)
                if not (current or found.queues or found.replies or found.problem):
                    return publishes[done:]  # charged when it is tried again
                self._charge(found)
                _check_cost(found)
                if self._is_closed(found):
                    return publishes[done:]
                if together:
                    self._pass_on(together, route)
                    together = []
                if not self.collects:  # whose commit looks at blind copies again
                    checked = without_blind_copies(checked)
                self._pass_on([checked], found)
        finally:
            if together:
                self._pass_on(together, route)
        return []

    def _spent(self) -> bool:
        """Return whether the turn's budget is spent, and note the node's gate.

        Each message may have been compared with thousands of bindings.
        """
        gate = self._output.admission.intake.gate
        if gate.room or self._force or self.collects:
            return False
        self.closed = gate
        return True

    def check_copies(self, route: Route, publish: Publish) -> None:
        """Refuse what the headers CC and BCC name; a table that cannot be read is refused later."""
        try:
            keys = distribution_keys(publish.properties)
        except DistributionError:
            return
        for key in keys:
            check_topic(self._output, route.exchange, key)

    def _route_message(self, publish: Publish) -> Route:
        output = self._output
        try:
            route = output.broker.route_message(output.vhost, publish.route, publish.properties)
        except DistributionError as error:
            raise AmqpError(PRECONDITION_FAILED, f"invalid message: {error}") from error
        return route

    def _refuse(self, route: Route) -> None:
        vhost = self._output.vhost
        if not route.known:
            raise AmqpError(NOT_FOUND, f"no exchange '{route.exchange}' in vhost '{vhost}'")
        text = f"cannot publish to internal exchange '{route.exchange}' in vhost '{vhost}'"
        raise AmqpError(ACCESS_REFUSED, text)

    def _pass_on(self, publishes: list[Publish], route: Route) -> None:
        """Hand out messages that all go where `route` says, and that nothing is wrong with."""
        tracer = TRACING.tracer
        if tracer is None:
            self._hand_out(publishes, route)
            return
        began_ns = tracer.now_ns()
        self._hand_out(publishes, route)
        tracer.routed(publishes, self._output.vhost, route.queues, began_ns)

    def _hand_out(self, publishes: list[Publish], route: Route) -> None:
        self._output.admission.published(publishes)
        if self.collects:
            self.collect(publishes, route)
            return
        self.count(publishes, route)
        credit = self._links.credit
        credit.spend(len(publishes))
        admission = self._output.admission
        owed = admission.account.octets
        if publishes[0].immediate:
            self._publish_immediate(publishes, route)
        else:
            self._distribute(publishes, route)
        admission.intake.take(len(publishes), admission.account.octets - owed)
        credit.passed_on(len(publishes))

    def count(self, publishes: list[Publish], route: Route) -> None:
        """Count publishes that go to their queues."""
        count: i64 = len(publishes)
        self._links.traffic.publish += count
        route.traffic.routed(count, len(route.queues))

    def _distribute(self, publishes: list[Publish], route: Route) -> None:
        output = self._output
        confirms = self._confirms
        queues = route.queues
        account = output.admission.account
        ticket = confirms.issue(len(publishes), len(queues)) if confirms.enabled else None
        if route.replies:
            self.reply(publishes, route)
        elif not queues:
            self.return_unroutable(publishes)
        if ticket is not None and not queues:
            output.confirm(confirms)
        for queue in queues:
            self._hand_over(publishes, queue, ticket)
            account.tab(queue.group).came_through(route.exchange, len(publishes))

    def _hand_over(
        self, publishes: list[Publish], queue: Queue, ticket: PendingConfirm | None
    ) -> None:
        output = self._output
        link = self._links.open(queue)
        if ticket is not None:
            link.tickets += 1
        if not self.send(link.client, publishes, ticket):
            self._links.congest(link)
        output.touch(link)

    def send(
        self, client: QueueClient, publishes: list[Publish], ticket: PendingConfirm | None
    ) -> bool:
        """Give publishes to a queue; see `QueueClient.publish`."""
        return client.publish(publishes, ticket)

    def _publish_immediate(self, publishes: list[Publish], route: Route) -> None:
        """Hand out messages that come back where no queue has a consumer that can take them."""
        output = self._output
        account = output.admission.account
        queues = route.queues
        if not output.broker.allows_immediate(output.vhost, queues):
            raise AmqpError(NOT_IMPLEMENTED, "immediate=true")
        for publish in publishes:
            ticket = self._confirms.issue_immediate(publish, len(queues))
            if route.replies:
                self.reply([publish], route)
            elif not queues and publish.mandatory:
                self.return_unroutable([publish])
            elif not queues:
                self.return_publish(publish, NO_CONSUMERS, b"NO_CONSUMERS")
            if not queues:
                output.confirm(self._confirms)
            for queue in queues:
                self._hand_over([publish], queue, ticket)
                account.tab(queue.group).came_through(route.exchange, 1)

    def reply(self, publishes: list[Publish], route: Route) -> None:
        """Send direct replies; unreachable ones without a queue are not routed."""
        broker = self._output.broker
        for publish in publishes:
            reached = bool(route.queues)
            for name in route.replies:
                if broker.reply(name, publish):
                    reached = True
            if not reached:
                self.return_unroutable([publish])

    def return_unroutable(self, publishes: list[Publish]) -> None:
        """Send back mandatory publishes that reach no queue, and drop others."""
        self._output.admission.intake.unroutable += len(publishes)
        if not publishes[0].mandatory:
            self._links.traffic.drop_unroutable += len(publishes)
        else:
            self._links.traffic.return_unroutable += len(publishes)
            for publish in publishes:
                self.return_publish(publish, NO_ROUTE, b"NO_ROUTE")

    @property
    def collects(self) -> bool:
        """True while publishes are kept for a transaction and handed to no queue."""
        return False

    def collect(self, publishes: list[Publish], route: Route) -> None:
        """Keep publishes for a transaction; called while it `collects`."""
        raise AssertionError("abstract")

    def return_publish(self, publish: Publish, code: int, text: bytes) -> None:
        """Send a message back to its publisher."""
        raise AssertionError("abstract")


def _check_cost(route: Route) -> None:
    if route.problem:
        raise AmqpError(PRECONDITION_FAILED, f"invalid message: {route.problem}")


def without_blind_copies(publish: Publish) -> Publish:
    """Return a message without its header BCC, which consumers do not get."""
    if BCC not in publish.properties:
        return publish
    return with_properties(publish, without_header(publish.properties, BCC))
