"""A channel: takes what its client sends in order, and what its queues answer as it comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from typing import Any, final

from mypy_extensions import i64
from pamqp import base, commands

from headrace_broker.codecs.event import Acked, Method, Rejected
from headrace_broker.codecs.frame import BASIC_ACK
from headrace_broker.codecs.method import decode_method, encode_close, method_name
from headrace_broker.gateways.amqp import states
from headrace_broker.gateways.amqp.channel_port import (
    ChannelOwner,
    Input,
    input_index,
    input_kind,
)
from headrace_broker.gateways.amqp.confirming import Confirms
from headrace_broker.gateways.amqp.consumer import Consumer
from headrace_broker.gateways.amqp.delivering import Deliveries
from headrace_broker.gateways.amqp.handler import HANDLERS
from headrace_broker.gateways.amqp.links import Links
from headrace_broker.gateways.amqp.outlet import Outlet
from headrace_broker.gateways.amqp.publishing import Publisher
from headrace_broker.model.limits import CHANNEL_COMMANDS_MAX
from headrace_broker.model.message import DeliveryRun
from headrace_broker.model.reply_code import (
    CHANNEL_ERROR,
    CONTENT_TOO_LARGE,
    NOT_IMPLEMENTED,
    AmqpError,
)
from headrace_broker.runtime.port import (
    REJECT,
    RELEASE,
    QueueClient,
    QueueListener,
    Ticket,
)


@final
class Channel(QueueListener):
    """One channel from channel.open to channel.close-ok.

    While an operation (`start`) is awaited, what comes waits, so that a channel's commands never
    overtake each other.

    Attributes:
        number: 1 to channel_max.
        state: a CHANNEL_* state.
        outlet: the connection's.
        links: its sessions.
        confirms: answers to its publishes.
        deliveries: to its client.
        consumers: by tag.
        last_queue: name of the queue that was declared last, "" for none.
        prefetch: for consumers that come, 0 for no limit.
    """

    def __init__(self, number: i64, outlet: Outlet, owner: ChannelOwner) -> None:
        self.number = number
        self.state: i64 = states.CHANNEL_CLOSED
        self.outlet = outlet
        self._owner = owner
        self._begin()
        self._busy = False
        self._stalled = False
        self._waiting: deque[Input] = deque()

    def _begin(self) -> None:
        """Be as new: a channel that closed from both sides may be opened again at once."""
        self.links = Links(self.outlet, self)
        self.confirms = Confirms(self.number)
        self.deliveries = Deliveries(self.number, self.outlet)
        self.consumers: dict[str, Consumer] = {}
        self.last_queue = ""
        self.prefetch: i64 = 0
        self._publisher = Publisher(self.outlet, self.links, self.confirms)

    @property
    def is_open(self) -> bool:
        """Whether it may be used."""
        return self.state == states.CHANNEL_OPEN

    # From the client

    def take(self, event: Input) -> None:
        """Handle an input, or queue it behind the operation that is awaited."""
        if not self._busy:
            self._handle(event)
            return
        self._waiting.append(event)
        if len(self._waiting) >= CHANNEL_COMMANDS_MAX and not self._stalled:
            self._stalled = True
            self.outlet.stall(True)

    def end_chunk(self) -> None:
        """Settle the acks that have gathered."""
        try:
            self.deliveries.apply_acks()
        except AmqpError as error:
            self.fail(error, BASIC_ACK)

    def send(self, command: base.Frame) -> None:
        """Send a method, unless the channel is not open any more."""
        if self.state == states.CHANNEL_OPEN:
            self.outlet.send(self.number, command)

    def start(self, operation: Coroutine[Any, Any, None], index: i64) -> None:
        """Run an operation for method `index`; the channel's next inputs wait for its end."""
        self._busy = True
        self.outlet.flush_links()  # what was published and settled before comes first
        self._owner.operation_started()
        self.outlet.shell.start(self._operate(operation, index))

    def fail(self, error: AmqpError, index: i64) -> None:
        """Close the channel, or for a hard error the connection."""
        if not error.soft:
            self._owner.fail(error, index)
            return
        was_open = self.state == states.CHANNEL_OPEN
        self._enter(states.CHANNEL_INPUT_FAIL)
        if was_open:
            self.confirms.emit(self.outlet.out)
            method = (int(index >> 16), int(index & 0xFFFF))
            close = encode_close(int(self.number), error.code, error.text, *method)
            self.outlet.out.write(close)
            self.outlet.written()
            self._release()

    def drop(self) -> None:
        """The connection ends: give everything back."""
        self._enter(states.CHANNEL_INPUT_DROP)
        self._waiting.clear()
        self._release()

    def _handle(self, event: Input) -> None:
        if self.state == states.CHANNEL_OPEN and not isinstance(event, Acked):
            self.end_chunk()
        if self.state != states.CHANNEL_OPEN:
            self._transition(event)
            return
        try:
            if isinstance(event, list):
                self._publisher.publish(event)
            elif isinstance(event, Acked):
                self.deliveries.ack(event.delivery_tag, event.multiple)
            elif isinstance(event, Rejected):
                operation = RELEASE if event.requeue else REJECT
                self.deliveries.settle(event.delivery_tag, event.multiple, operation)
            elif isinstance(event, Method):
                self._method(event)
            else:
                text = f"a body of {event.size} octets exceeds the largest message"
                raise AmqpError(CONTENT_TOO_LARGE, text)
        except AmqpError as error:
            self.fail(error, BASIC_ACK if isinstance(event, Acked) else input_index(event))

    def _method(self, method: Method) -> None:
        if input_kind(method) != states.CHANNEL_INPUT_METHOD:
            self._transition(method)
            return
        command = decode_method(method.payload)
        handler = HANDLERS.get(int(method.index))
        if handler is None:
            raise AmqpError(NOT_IMPLEMENTED, method_name(int(method.index)))
        operation = handler(self, command)
        if operation is not None:
            self.start(operation, method.index)

    def _transition(self, event: Input) -> None:
        """Handle what opens and closes the channel, and everything while it is not open."""
        kind = input_kind(event)
        before = self.state
        if not self._enter(kind):
            index = input_index(event)
            where = f"on channel {int(self.number)}, which is {states.CHANNEL_STATES[int(before)]}"
            error = AmqpError(CHANNEL_ERROR, f"{method_name(int(index))} {where}")
            self._owner.fail(error, index)
            return
        if kind == states.CHANNEL_INPUT_OPEN and self.state == states.CHANNEL_OPEN:
            self._begin()
            self.send(commands.Channel.OpenOk())
        elif kind == states.CHANNEL_INPUT_CLOSE:
            self.confirms.emit(self.outlet.out)
            self._release()
            self.outlet.send(self.number, commands.Channel.CloseOk())
        if self.state == states.CHANNEL_CLOSED:
            self._owner.channel_closed(self.number)

    def _enter(self, kind: int) -> bool:
        following = states.advance(states.CHANNEL_TABLE, self.state, kind)
        if following == states.NO_STATE:
            return False
        self.state = following
        return True

    def _release(self) -> None:
        if self._stalled:
            self._stalled = False
            self.outlet.stall(False)
        self.deliveries.clear()
        self.confirms.discard()
        self.consumers.clear()
        self.links.close()

    async def _operate(self, operation: Coroutine[Any, Any, None], index: i64) -> None:
        try:
            try:
                if self.is_open:
                    await operation
                else:
                    operation.close()  # the connection ended in the same turn
            except AmqpError as error:
                self.fail(error, index)
            self._busy = False
            self._drain()
        except Exception:  # noqa: BLE001 - only this connection ends
            self._owner.crash(method_name(int(index)))
        self._owner.operation_ended()

    def _drain(self) -> None:
        """Go on with what waited."""
        while self._waiting and not self._busy:
            self._owner.dispatch(self.number, self._waiting.popleft())
        if self._stalled and len(self._waiting) < CHANNEL_COMMANDS_MAX // 2:
            self._stalled = False
            self.outlet.stall(False)
        self.end_chunk()

    # From the queues

    def on_confirmed(self, client: QueueClient, tickets: list[Ticket]) -> None:
        """Confirm publishes at the end of the turn."""
        self._answer(client, tickets, False)

    def on_rejected(self, client: QueueClient, tickets: list[Ticket]) -> None:
        """Refuse publishes at the end of the turn."""
        self._answer(client, tickets, True)

    def on_delivery(self, client: QueueClient, run: DeliveryRun) -> None:
        """Send a run, or hold it."""
        link = self.links.find(client)
        if link is None:
            return
        consumer = link.consumers.get(int(run.consumer))
        if consumer is None:
            last = run.first + len(run.positions) - 1
            client.settle(run.consumer, RELEASE, run.first, last)
            self.outlet.touch(link)
            return
        try:
            self.deliveries.deliver(consumer, run)
        except Exception:  # noqa: BLE001 - only this connection ends
            self._owner.crash("a delivery")

    def on_cancelled(self, client: QueueClient, consumer: int, reason: str) -> None:
        """Tell the client that its consumer is gone, if it wants to know."""
        link = self.links.find(client)
        found = link.consumers.get(consumer) if link is not None else None
        if found is None:
            return
        known = found.state != states.CONSUMER_ATTACHING
        found.lost = True
        self.forget_consumer(found, states.CONSUMER_INPUT_LOST)
        if known:
            self.notify_cancel(found)

    def on_writable(self, client: QueueClient) -> None:
        """Read on, if this was the last congested queue."""
        link = self.links.find(client)
        if link is not None:
            self.outlet.relieve(link)

    def forget_consumer(self, consumer: Consumer, event: int) -> None:
        """End a consumer; what it held and was not sent is given back, or void when it is lost."""
        consumer.enter(event)
        if consumer.lost:
            consumer.held.clear()
        else:
            self.deliveries.release_held(consumer)
        consumer.link.consumers.pop(int(consumer.number), None)
        self.consumers.pop(consumer.tag, None)

    def notify_cancel(self, consumer: Consumer) -> None:
        """Send basic.cancel for a lost consumer to a client that understands it."""
        if self.outlet.cancel_notify:
            self.send(commands.Basic.Cancel(consumer.tag, True))

    def _answer(self, client: QueueClient, tickets: list[Ticket], rejected: bool) -> None:
        link = self.links.find(client)
        if link is not None:
            link.tickets -= len(tickets)
            self.confirms.settle(tickets, rejected)
            self.outlet.confirm(self.confirms)
