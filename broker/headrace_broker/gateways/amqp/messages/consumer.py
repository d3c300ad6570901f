"""A channel's ends at a queue: its session there and its consumers."""

from __future__ import annotations

from collections import deque
from typing import Any, final

from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.catalog.permission_watch import PermissionWatch, PermissionWatches
from headrace_broker.gateways.amqp.model.states import (
    CONSUMER_ATTACHING,
    CONSUMER_TABLE,
    NO_STATE,
    advance,
)
from headrace_broker.gateways.publishing.link import Link
from headrace_broker.model.message import DeliveryRun
from headrace_broker.runtime.contract.port import GET_CONSUMER, Attachment, QueueClient


@final
class Consumer:
    """A subscription, or (number GET_CONSUMER) the gets of a channel from one queue."""

    def __init__(self, link: ConsumerLink, number: i64, tag: str, no_ack: bool) -> None:
        self.link = link  # the queue
        self.number = number  # its number within the queue client
        self.tag = tag  # consumer tag as the client knows it
        self.tag_bytes = tag.encode()  # the same on the wire
        self.no_ack = no_ack  # deliveries are settled by being sent
        # most unsettled deliveries that its client asked for, 0 for no limit
        self.prefetch: i64 = 0
        # how the queue serves it, None before it was asked to
        self.attachment: Attachment | None = None
        self.arguments: dict[str, Any] = {}  # as the client gave them, for listings
        # has it judged again when a permission changes; None for gets
        self.standing: PermissionWatch | None = None
        self.state: i64 = CONSUMER_ATTACHING  # a CONSUMER_* state
        # runs that wait for the socket, the channel's limit or its flow, oldest first
        self.held: deque[DeliveryRun] = deque()
        self.held_start: i64 = 0  # index into the first of them where the next delivery stands
        self.queued = False  # whether it stands in the channel's rotation of those that hold
        self.lost = False  # the queue gave it up, and with it what it had not settled
        self.spent: i64 = 0  # bytes of bodies sent that the queue client has not been told of

    def enter(self, event: int) -> None:
        """Move the state by a CONSUMER_INPUT_*; a row that is missing is a bug of the channel."""
        state = advance(CONSUMER_TABLE, self.state, event)
        assert state != NO_STATE, (self.state, event)
        self.state = state

    def stand_down(self, standings: PermissionWatches) -> None:
        """End the permission check, and drop its reference to the channel."""
        if self.standing is not None:
            standings.leave(self.standing)
            self.standing = None


@final
class ConsumerLink(Link):
    """A channel's session with one queue."""

    def __init__(self, client: QueueClient) -> None:
        super().__init__(client)
        # by number; an ended one stays away, its unsettled deliveries point to it
        self.consumers: dict[int, Consumer] = {}
        self.next_number: i64 = 1  # of the next consumer
        self.unsettled: i64 = 0  # deliveries that wait for their settlement
        self._getter: Consumer | None = None

    @property
    def getter(self) -> Consumer:
        """Stands for basic.get in the channel's unsettled deliveries."""
        getter = self._getter
        if getter is None:
            getter = self._getter = Consumer(self, GET_CONSUMER, "", False)
        return getter

    @property
    @override
    def has_consumers(self) -> bool:
        return bool(self.consumers)

    @property
    @override
    def idle(self) -> bool:
        return not (self.consumers or self.pending_confirms or self.unsettled or self.congested)

    @override
    def end(self) -> None:
        super().end()
        self.consumers.clear()  # they refer to it
        self._getter = None
