"""Pending operations of a transactional channel until tx.commit or tx.rollback.

Source: AMQP 0-9-1 specification, sections 1.9 (tx) and 2.1.2.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from headrace_broker.flow.share import Share
from headrace_broker.gateways.amqp.messages.unsettled import TagRange
from headrace_broker.model.limits import COMMAND_BYTES_MAX, TX_EXTRA_BYTES, TX_OPERATIONS_MAX
from headrace_broker.model.message import Publish
from headrace_broker.model.reply_code import NOT_IMPLEMENTED, PRECONDITION_FAILED, AmqpError
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.session.lane import message_cost

if TYPE_CHECKING:
    from headrace_broker.runtime.routing.router import Route


def tx_bytes_max(message_bytes_max: i64) -> i64:
    """Return the bytes that a transaction may hold: any one message that it may, in one entry."""
    return max(message_bytes_max, COMMAND_BYTES_MAX) + TX_EXTRA_BYTES


@final
class Settlement:
    """Outcome of consecutive deliveries."""

    def __init__(self, held: TagRange, operation: i64) -> None:
        self.range = held
        self.operation = operation  # ACCEPT, RELEASE, REJECT or MODIFY_FAILED


@final
class Transaction:
    """A channel's transaction; the next one begins where one ends."""

    def __init__(self, broker: Broker, share: Share) -> None:
        self.selected = False  # the channel is transactional
        self.deferred: i64 = 0  # deliveries that are settled here, and at their queues not yet
        self._intake = broker.intake
        self._share = share
        self._bytes_max = tx_bytes_max(broker.limits.whole_bytes_max)
        self._byte_count: i64 = 0
        self._operations: i64 = 0
        self._publishes: list[tuple[list[Publish], Route]] = []
        self._settlements: list[Settlement] = []

    @property
    def has_publishes(self) -> bool:
        """True if it has publishes."""
        return len(self._publishes) > 0

    def hold(self, publishes: list[Publish], route: Route) -> None:
        """Keep publishes that go the same way.

        Raises:
            AmqpError: NOT_IMPLEMENTED for immediate ones; PRECONDITION_FAILED when it is too much,
                for a transaction or for the node.
        """
        if publishes[0].immediate:
            raise AmqpError(NOT_IMPLEMENTED, "immediate=true on a transactional channel")
        byte_count: i64 = 0
        for publish in publishes:
            byte_count += message_cost(publish)
        if not self._intake.has_room(byte_count):
            text = "the node holds as much for its publishers as it may"
            raise AmqpError(PRECONDITION_FAILED, text)
        self._byte_count += byte_count
        self._share.hold_quietly(byte_count)
        if self._byte_count > self._bytes_max:
            text = f"the transaction holds more than {int(self._bytes_max)} bytes"
            raise AmqpError(PRECONDITION_FAILED, text)
        self._count(len(publishes))
        self._publishes.append((publishes, route))

    def settle(self, ranges: list[TagRange], operation: i64) -> None:
        """Keep settlements. Raises as `hold`."""
        for held in ranges:
            self._settlements.append(Settlement(held, operation))
            self.deferred += held.count
        self._count(len(ranges))

    def held(self) -> list[tuple[list[Publish], Route]]:
        """Return the publishes, in order, each list with its way."""
        return self._publishes

    def take_publishes(self) -> list[tuple[list[Publish], Route]]:
        """Hand out the publishes, in order, each list with its way."""
        publishes = self._publishes
        self._publishes = []
        self._share.release_quietly(self._byte_count)
        self._byte_count = 0
        self._operations = len(self._settlements)
        return publishes

    def take_settlements(self) -> list[Settlement]:
        """Hand out the settlements, in order."""
        settlements = self._settlements
        self._settlements = []
        self._operations = 0
        self.deferred = 0
        return settlements

    def discard(self) -> None:
        """Forget everything: the channel closes."""
        self.take_publishes()
        self.take_settlements()

    def _count(self, operations: i64) -> None:
        self._operations += operations
        if self._operations > TX_OPERATIONS_MAX:
            text = f"the transaction holds more than {TX_OPERATIONS_MAX} operations"
            raise AmqpError(PRECONDITION_FAILED, text)
