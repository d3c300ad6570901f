"""A channel's publishes on their way to queues, at once or with a transaction's commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from typing_extensions import override

from headrace_broker.catalog.access import EXCHANGE
from headrace_broker.catalog.permission import WRITE
from headrace_broker.codecs.delivery_encoder import encode_return
from headrace_broker.core.property_reader import HEADERS
from headrace_broker.gateways.amqp.messages.channel_confirms import ChannelConfirms
from headrace_broker.gateways.amqp.messages.connection_output import ConnectionOutput
from headrace_broker.gateways.amqp.messages.transaction import Transaction
from headrace_broker.gateways.publishing.authorization import check, check_topic
from headrace_broker.gateways.publishing.links import Links
from headrace_broker.gateways.publishing.publisher import Publisher, without_blind_copies
from headrace_broker.gateways.publishing.screening import remarks
from headrace_broker.model.definition import Queue
from headrace_broker.model.message import Publish

if TYPE_CHECKING:
    from headrace_broker.runtime.routing.router import Route


@final
class ChannelPublisher(Publisher):
    """Publishes for a channel; while that is transactional, publishes wait for the commit."""

    def __init__(
        self,
        output: ConnectionOutput,
        links: Links,
        confirms: ChannelConfirms,
        transaction: Transaction,
    ) -> None:
        super().__init__(output, links, confirms)
        self._connection_output = output
        self._transaction = transaction

    @property
    @override
    def collects(self) -> bool:
        return self._transaction.selected

    @override
    def collect(self, publishes: list[Publish], route: Route) -> None:
        self._transaction.hold(publishes, route)

    @override
    def return_publish(self, publish: Publish, code: int, text: bytes) -> None:
        output = self._connection_output
        output.admission.intake.returned += 1
        output.wrote_message(encode_return(output.out, publish, code, text, output.frame_max))

    def check_held(self) -> None:
        """Refuse a commit of publishes that the user may not publish any more.

        Raises:
            AmqpError: ACCESS_REFUSED; nothing was published.
        """
        output = self._output
        permissions = output.broker.permissions
        for publishes, route in self._transaction.held():
            check(output, WRITE, EXCHANGE, route.exchange)
            if not permissions.narrows(output.user, output.vhost, route.exchange):
                continue
            check_topic(output, route.exchange, route.routing_key)
            for publish in publishes:
                if remarks(publish.properties) & HEADERS:
                    self.check_copies(route, publish)

    def distribute_held(self) -> list[tuple[Queue, list[Publish]]]:
        """Take what the transaction holds: send back what finds no queue, the rest by queue."""
        batches: dict[int, tuple[Queue, list[Publish]]] = {}
        for held, route in self._transaction.take_publishes():
            publishes = [without_blind_copies(publish) for publish in held]
            self.count(publishes, route)
            if route.replies:
                self.reply(publishes, route)
            elif not route.queues:
                self.return_unroutable(publishes)
            for queue in route.queues:
                batches.setdefault(queue.group, (queue, []))[1].extend(publishes)
        return list(batches.values())
