"""A channel's ends at a queue: its session there and its consumers."""

from __future__ import annotations

from collections import deque
from typing import Any, final

from mypy_extensions import i64

from headrace_broker.gateways.amqp.states import (
    CONSUMER_ATTACHING,
    CONSUMER_TABLE,
    NO_STATE,
    advance,
)
from headrace_broker.model.message import DeliveryRun
from headrace_broker.runtime.port import GET_CONSUMER, Attachment, QueueClient


@final
class Consumer:
    """A subscription, or (number GET_CONSUMER) the gets of a channel from one queue.

    Attributes:
        link: the queue.
        number: its number within the queue client.
        tag: consumer tag as the client knows it.
        tag_octets: the same on the wire.
        no_ack: deliveries are settled by being sent.
        prefetch: most unsettled deliveries that its client asked for, 0 for no limit.
        attachment: how the queue serves it, None before it was asked to.
        arguments: as the client gave them, for listings.
        state: a CONSUMER_* state.
        held: runs that wait for the socket, the channel's limit or its flow, oldest first.
        held_start: index into the first of them where the next delivery stands.
        queued: whether it stands in the channel's rotation of those that hold.
        lost: the queue gave it up, and with it what it had not settled.
        spent: octets of bodies sent that the queue client has not been told of.
    """

    def __init__(self, link: Link, number: i64, tag: str, no_ack: bool) -> None:
        self.link = link
        self.number = number
        self.tag = tag
        self.tag_octets = tag.encode()
        self.no_ack = no_ack
        self.prefetch: i64 = 0
        self.attachment: Attachment | None = None
        self.arguments: dict[str, Any] = {}
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


@final
class Link:
    """A channel's session with one queue.

    Attributes:
        client: the runtime's end.
        getter: stands for basic.get in the channel's unsettled deliveries.
        consumers: by number; an ended one stays away, its unsettled deliveries point to it.
        tickets: publishes that wait for their confirm.
        unsettled: deliveries that wait for their settlement.
        congested: the queue client asked for a pause.
        touched: there is something to flush.
        closed: the session is over: nothing may be said any more.
    """

    def __init__(self, client: QueueClient) -> None:
        self.client = client
        self.getter = Consumer(self, GET_CONSUMER, "", False)
        self.consumers: dict[int, Consumer] = {}
        self.next_number: i64 = 1
        self.tickets: i64 = 0
        self.unsettled: i64 = 0
        self.congested = False
        self.touched = False
        self.closed = False

    @property
    def idle(self) -> bool:
        """Whether closing the session loses nothing that the client still counts on."""
        return not (self.consumers or self.tickets or self.unsettled or self.congested)
