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
    """A subscription, or (number GET_CONSUMER) the gets of a channel from one queue.

    Attributes:
        link: the queue.
        number: its number within the queue client.
        tag: consumer tag as the client knows it.
        tag_bytes: the same on the wire.
        no_ack: deliveries are settled by being sent.
        prefetch: most unsettled deliveries that its client asked for, 0 for no limit.
        attachment: how the queue serves it, None before it was asked to.
        arguments: as the client gave them, for listings.
        standing: has it judged again when a permission changes; None for gets.
        state: a CONSUMER_* state.
        held: runs that wait for the socket, the channel's limit or its flow, oldest first.
        held_start: index into the first of them where the next delivery stands.
        queued: whether it stands in the channel's rotation of those that hold.
        lost: the queue gave it up, and with it what it had not settled.
        spent: bytes of bodies sent that the queue client has not been told of.
    """

    def __init__(self, link: ConsumerLink, number: i64, tag: str, no_ack: bool) -> None:
        self.link = link
        self.number = number
        self.tag = tag
        self.tag_bytes = tag.encode()
        self.no_ack = no_ack
        self.prefetch: i64 = 0
        self.attachment: Attachment | None = None
        self.arguments: dict[str, Any] = {}
        self.standing: PermissionWatch | None = None
        self.state: i64 = CONSUMER_ATTACHING
        self.held: deque[DeliveryRun] = deque()
        self.held_start: i64 = 0
        self.queued = False
        self.lost = False
        self.spent: i64 = 0

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
    """A channel's session with one queue.

    Attributes:
        consumers: by number; an ended one stays away, its unsettled deliveries point to it.
        next_number: of the next consumer.
        unsettled: deliveries that wait for their settlement.
    """

    def __init__(self, client: QueueClient) -> None:
        super().__init__(client)
        self.consumers: dict[int, Consumer] = {}
        self.next_number: i64 = 1
        self.unsettled: i64 = 0
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
