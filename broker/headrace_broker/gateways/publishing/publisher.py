"""Publishes on their way to queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from headrace_broker.catalog.access import EXCHANGE
from headrace_broker.catalog.permission import WRITE
from headrace_broker.core.property_edit import without_header
from headrace_broker.core.property_reader import HEADERS
from headrace_broker.core.routing.distribution import BCC, DistributionError, distribution_keys
from headrace_broker.gateways.publishing.authorization import check, check_topic
from headrace_broker.gateways.publishing.confirming import Confirms
from headrace_broker.gateways.publishing.link import Link
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


NOTHING: Final[list[Publish]] = []


@final
class Run:
    """Publishes of a batch that go the same way. A publisher has one, and prepares it anew."""

    route: Route  # where they go

    def __init__(self) -> None:
        self.ready = NOTHING  # the publishes, as they are to be handed out
        self.stop: i64 = 0  # index in the batch of the first behind them
        # they find no exchange or no queue in a view of the catalog that may be old
        self.lost = False
        self.error: AmqpError | None = None  # why they are refused, None where they are not

    def begin(self, route: Route, ready: list[Publish], stop: i64) -> None:
        """Let it be these publishes, of which nothing else is known."""
        self.route = route
        self.ready = ready
        self.stop = stop
        self.lost = False
        self.error = None

    def forget(self) -> None:
        """Keep no publishes, which may be large, and no error."""
        self.ready = NOTHING
        self.error = None


class Publisher:
    """Finds out where publishes go, and hands them to the sessions of their queues."""

    def __init__(self, output: OutputBuffer, links: Links, confirms: Confirms) -> None:
        self.screen = Screen(output)  # what is checked of their properties
        self.links = links  # the sessions
        self.full: list[Link] = []  # those whose queues asked for a pause, until this is emptied
        self._output = output
        self.confirms = confirms  # answers to them
        # The exchange that the user may write to, as of this version of the permissions.
        self._permitted: str | None = None
        self._permitted_version = 0
        self._narrowed = False  # a topic permission of the user says which routing keys there
        self._allowed: Route | None = None  # then, the route that was asked about last
        self._batch_route: Route | None = None  # of the batch that is prepared
        self.run = Run()  # the one that was prepared last

    # Where they go

    def prepare(self, publishes: list[Publish], at: i64, current: bool) -> None:
        """Set `run` to the next one of a batch with one route and the same flags.

        Args:
            publishes: the batch.
            at: index of the next one; where it is not 0, that follows the run before.
            current: this node's view of the catalog is up to date.
        """
        if at > 0:
            assert self._batch_route is not None, "set by the run before"
            self._look(publishes, at, self._batch_route, current)
            return
        output = self._output
        route = output.broker.router.route(output.vhost, publishes[0].route)
        self._batch_route = route
        if route.work > 0:
            self._charge(route)
        run = self.run
        run.begin(route, publishes, len(publishes))
        try:
            version = output.broker.permissions.version
            if route.exchange != self._permitted or version != self._permitted_version:
                self._check_exchange(route, version)
            if self._narrowed and route is not self._allowed:
                check_topic(output, route.exchange, route.routing_key)
                self._allowed = route
            lost = not (route.queues or route.needs_message or route.replies or route.problem)
            if lost and not current and not route.internal:
                run.lost = True
                return
            if not route.known or route.internal:
                self._refuse_route(route)
            if route.needs_message or worth_a_look(publishes):
                self._look(publishes, 0, route, current)
                return
            _check_cost(route)
        except AmqpError as error:
            run.error = error

    def _check_exchange(self, route: Route, version: int) -> None:
        output = self._output
        permissions = output.broker.permissions
        check(output, WRITE, EXCHANGE, route.exchange)
        self._permitted = route.exchange
        self._permitted_version = version
        self._narrowed = permissions.narrows(output.user, output.vhost, route.exchange)
        self._allowed = None

    def _charge(self, route: Route) -> None:
        """Charge the turn's budget for finding a route."""
        self._output.admission.intake.charge(route.work // ROUTING_STEPS_OF_MESSAGE)
        route.work = 0

    def _look(self, publishes: list[Publish], at: i64, route: Route, current: bool) -> None:
        """Examine each message; consecutive ones with the common route are one run."""
        together: list[Publish] = []
        done = at
        count: i64 = len(publishes)
        try:
            while done < count:
                publish = publishes[done]
                marks = remarks(publish.properties)
                own_way = route.needs_message or marks & HEADERS != 0
                if own_way and together:
                    break
                checked = self.screen.check(publish, marks)
                if own_way:
                    self._prepare_one(checked, route, done + 1, current)
                    return
                _check_cost(route)
                together.append(checked)
                done += 1
        except AmqpError as error:
            if not together:
                self.run.begin(route, [publishes[done]], done + 1)
                self.run.error = error
                return
        self.run.begin(route, together, done)

    def _prepare_one(self, publish: Publish, route: Route, stop: i64, current: bool) -> None:
        """Set `run` to a message whose headers decide where it goes.

        Raises:
            AmqpError: it is refused.
        """
        if self._narrowed:
            self.check_copies(route, publish)
        found = self._route_message(publish)
        run = self.run
        run.begin(found, [publish], stop)
        if not (current or found.queues or found.replies or found.problem):
            run.lost = True
            return  # charged when it is tried again
        self._charge(found)
        _check_cost(found)
        if not self.collects:  # whose commit looks at blind copies again
            run.ready = [without_blind_copies(publish)]

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
            route = output.broker.router.route_message(
                output.vhost, publish.route, publish.properties
            )
        except DistributionError as error:
            raise AmqpError(PRECONDITION_FAILED, f"invalid message: {error}") from error
        return route

    def _refuse_route(self, route: Route) -> None:
        vhost = self._output.vhost
        if not route.known:
            raise AmqpError(NOT_FOUND, f"no exchange '{route.exchange}' in vhost '{vhost}'")
        text = f"cannot publish to internal exchange '{route.exchange}' in vhost '{vhost}'"
        raise AmqpError(ACCESS_REFUSED, text)

    def refuse(self, run: Run) -> None:
        """Refuse a run that has an error.

        Raises:
            AmqpError: NOT_FOUND (exchange), ACCESS_REFUSED (internal exchange, no permission),
                PRECONDITION_FAILED (a property, or a route that costs too much), SYNTAX_ERROR or
                NOT_IMPLEMENTED (headers).
        """
        assert run.error is not None, "something is wrong with it"
        raise run.error

    # On their way

    def hand_out(self, run: Run) -> None:
        """Hand out a run that nothing is wrong with.

        Raises:
            AmqpError: NOT_IMPLEMENTED (immediate), PRECONDITION_FAILED (too much for a
                transaction).
        """
        tracer = TRACING.tracer
        if tracer is None:
            self._hand_out(run.ready, run.route)
            return
        began_ns = tracer.now_ns()
        self._hand_out(run.ready, run.route)
        tracer.routed(run.ready, self._output.vhost, run.route.queues, began_ns)

    def _hand_out(self, publishes: list[Publish], route: Route) -> None:
        if self.collects:
            self.collect(publishes, route)
            return
        self.count(publishes, route)
        if publishes[0].immediate:
            self._publish_immediate(publishes, route)
        else:
            self._distribute(publishes, route)

    def count(self, publishes: list[Publish], route: Route) -> None:
        """Count publishes that go to their queues."""
        count: i64 = len(publishes)
        self.links.traffic.publish += count
        route.traffic.routed(count, len(route.queues))

    def _distribute(self, publishes: list[Publish], route: Route) -> None:
        output = self._output
        confirms = self.confirms
        queues = route.queues
        account = output.admission.account
        pending_confirm = confirms.issue(len(publishes), len(queues)) if confirms.enabled else None
        if route.replies:
            self.reply(publishes, route)
        elif not queues:
            self.return_unroutable(publishes)
        if pending_confirm is not None and not queues:
            output.confirm(confirms)
        for queue in queues:
            self._hand_over(publishes, queue, pending_confirm)
            account.balance(queue.group).came_through(route.exchange, len(publishes))

    def _hand_over(
        self, publishes: list[Publish], queue: Queue, pending_confirm: PendingConfirm | None
    ) -> None:
        output = self._output
        link = self.links.open(queue)
        if pending_confirm is not None:
            link.pending_confirms += 1
        if not self.send(link.client, publishes, pending_confirm):
            link.congested = True  # at once: it may not be closed as idle
            self.full.append(link)
        output.touch(link)

    def send(
        self, client: QueueClient, publishes: list[Publish], pending_confirm: PendingConfirm | None
    ) -> bool:
        """Give publishes to a queue; see `QueueClient.publish`."""
        return client.publish(publishes, pending_confirm)

    def _publish_immediate(self, publishes: list[Publish], route: Route) -> None:
        """Hand out messages that come back where no queue has a consumer that can take them."""
        output = self._output
        account = output.admission.account
        queues = route.queues
        if not output.broker.allows_immediate(output.vhost, queues):
            raise AmqpError(NOT_IMPLEMENTED, "immediate=true")
        for publish in publishes:
            pending_confirm = self.confirms.issue_immediate(publish, len(queues))
            if route.replies:
                self.reply([publish], route)
            elif not queues and publish.mandatory:
                self.return_unroutable([publish])
            elif not queues:
                self.return_publish(publish, NO_CONSUMERS, b"NO_CONSUMERS")
            if not queues:
                output.confirm(self.confirms)
            for queue in queues:
                self._hand_over([publish], queue, pending_confirm)
                account.balance(queue.group).came_through(route.exchange, 1)

    def reply(self, publishes: list[Publish], route: Route) -> None:
        """Send direct replies; unreachable ones without a queue are not routed."""
        replies = self._output.broker.replies
        for publish in publishes:
            reached = bool(route.queues)
            for name in route.replies:
                if replies.send(name, publish):
                    reached = True
            if not reached:
                self.return_unroutable([publish])

    def return_unroutable(self, publishes: list[Publish]) -> None:
        """Send back mandatory publishes that reach no queue, and drop others."""
        self._output.admission.intake.unroutable += len(publishes)
        if not publishes[0].mandatory:
            self.links.traffic.drop_unroutable += len(publishes)
        else:
            self.links.traffic.return_unroutable += len(publishes)
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
