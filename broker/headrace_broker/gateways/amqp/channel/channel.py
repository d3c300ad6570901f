"""A channel: takes what its client sends in order, and what its queues answer as it comes."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64
from pamqp import base, commands

from headrace_broker.codecs.event import Acked, Method, Rejected
from headrace_broker.codecs.frame import BASIC_PUBLISH
from headrace_broker.codecs.method import channel_open_ok, decode_method, method_name
from headrace_broker.gateways.amqp.channel import channel_port
from headrace_broker.gateways.amqp.channel.command_order import (
    OVERTAKING,
    TX_COMMIT,
    order_of,
    unwrap,
    wrap,
)
from headrace_broker.gateways.amqp.messages.connection_output import ConnectionOutput, Deferred
from headrace_broker.gateways.amqp.methods.handler import HANDLERS
from headrace_broker.gateways.amqp.methods.handler_port import Handler, Operation
from headrace_broker.gateways.amqp.methods.method_channel import ChannelOverError, MethodChannel
from headrace_broker.gateways.amqp.model import states
from headrace_broker.gateways.publishing.command import BufferedInput
from headrace_broker.model.limits import CHANNEL_UNITS, METHOD_UNITS, REJECT_UNITS
from headrace_broker.model.message import DeliveryRun, Publish
from headrace_broker.model.reply_code import (
    NO_CONSUMERS,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    AmqpError,
)
from headrace_broker.runtime.contract.port import ACCEPT, GET_CONSUMER, RELEASE, QueueClient


@final
class Channel(MethodChannel, Deferred):
    """One channel from channel.open to channel.close-ok.

    While an operation (`start`) is awaited, what comes waits, so that a channel's commands never
    overtake each other. Publishes that a limit stops are held, and what comes behind them waits
    too but for settlements and the like.
    """

    def __init__(
        self, number: i64, output: ConnectionOutput, owner: channel_port.ChannelOwner
    ) -> None:
        super().__init__(number, output)
        self._owner = owner
        self.buffer = self.admission.buffer
        self._fresh = True  # nothing has come of its client yet

    # From the client

    def receive(self, event: channel_port.Input) -> None:
        """Handle an input, or have it wait for the operation or the publishes before it."""
        if self._busy:
            self.buffer.wait(wrap(event))
        elif self.buffer.is_holding and not self.buffer.may_pass(order_of(event)):
            self.admission.hold(wrap(event))
        else:
            self._handle(event, False)

    def start(
        self,
        operation: Operation,
        index: i64,
        handler: Handler | None = None,
        command: base.Frame | None = None,
    ) -> None:
        """Run an operation for method `index`; the channel's next inputs wait for its end.

        When it fails for what is not found here, it is begun again by `handler` with `command`.
        """
        self._busy = True
        self.output.flush_links()  # what was published and settled before comes first
        self._owner.operation_started()
        self.output.shell.start(self._operate(operation, index, handler, command))

    def fail(self, error: AmqpError, index: i64) -> None:
        """Close the channel, or for a hard error the connection."""
        if int(index) not in OVERTAKING:
            self.buffer.drop_publishes()  # those behind what fails are void
        if not error.soft:
            self._owner.fail(error, index)
            return
        was_open = self.state == states.CHANNEL_OPEN
        self.admission.release()
        self._enter(states.CHANNEL_INPUT_FAIL)
        if was_open:
            self.confirms.emit(self.output.out)
            self.output.send_close(self.number, error, index)
            self._release()

    def drop(self) -> None:
        """The connection ends: hand over what may be, and take nothing any more."""
        self.admission.release()
        self._enter(states.CHANNEL_INPUT_DROP)

    def give_up(self) -> None:
        """Give everything back, after `drop`."""
        self.admission.clear()
        self._release()

    def _handle(self, event: channel_port.Input, served: bool) -> None:
        if self.state != states.CHANNEL_OPEN:
            self._transition(event)
            return
        try:
            if isinstance(event, list):
                left = self.admission.publish(event, served)
                if left:
                    self.start(self._publish_left(left), BASIC_PUBLISH)
            elif isinstance(event, Acked):
                self.deliveries.settle(event.first, event.delivery_tag, event.multiple, ACCEPT)
            elif isinstance(event, Rejected):
                self.output.effort.spend(REJECT_UNITS)
                tag = event.delivery_tag
                operation = channel_port.settle_operation(event)
                self.deliveries.settle(tag, tag, event.multiple, operation)
            elif isinstance(event, Method):
                self._method(event, served)
            else:
                text = self.output.broker.limits.too_large(event.size)
                raise AmqpError(PRECONDITION_FAILED, text)
        except AmqpError as error:
            self.fail(error, channel_port.input_index(event))

    def _method(self, method: Method, served: bool) -> None:
        if channel_port.input_kind(method) != states.CHANNEL_INPUT_METHOD:
            self._transition(method)
            return
        self.output.effort.spend(METHOD_UNITS)
        holds = method.index == TX_COMMIT and self.transaction.has_publishes
        if holds and not self.admission.admits(wrap(method), served):
            return
        command = decode_method(method.payload)
        handler = HANDLERS.get(int(method.index))
        if handler is None:
            raise AmqpError(NOT_IMPLEMENTED, method_name(int(method.index)))
        try:
            operation = handler(self, command)
        except AmqpError as error:
            if error.code != NOT_FOUND:
                raise
            self.start(self._look_again(handler, command), method.index)
        else:
            if operation is not None:
                self.start(operation, method.index, handler, command)

    # What is not found may have been declared through another node a moment ago.

    async def _attempt(
        self, operation: Operation, handler: Handler, command: base.Frame | None
    ) -> None:
        try:
            await operation
        except AmqpError as error:
            if error.code != NOT_FOUND:
                raise
            await self._look_again(handler, command)

    async def _look_again(self, handler: Handler, command: base.Frame | None) -> None:
        """Handle a method for the second time; the first time changed nothing."""
        await self.catch_up()
        operation = handler(self, command)
        if operation is not None:
            await operation

    async def _publish_left(self, publishes: list[Publish]) -> None:
        """Publish what found no queue before; meanwhile it counts as held, as do those behind."""
        self.buffer.set_aside(publishes)
        try:
            await self.catch_up()
        finally:
            self.buffer.take_aside()
        self.admission.publish(publishes, current=True)

    # Publishes

    @property
    def is_busy(self) -> bool:
        """True while an operation is awaited."""
        return self._busy

    def resume(self, waiting: BufferedInput, served: bool) -> None:
        """Handle an input that was held."""
        event = unwrap(waiting)
        if self.state == states.CHANNEL_CLOSED:
            self._owner.dispatch(self.number, event)  # to a new channel of this number
        else:
            self._handle(event, served)

    def crash(self) -> None:
        """Close the connection for the exception being handled."""
        self._owner.crash("publishes that were held")

    def _transition(self, event: channel_port.Input) -> None:
        """Handle what opens and closes the channel, and everything while it is not open."""
        kind = channel_port.input_kind(event)
        before = self.state
        self.output.effort.spend(CHANNEL_UNITS)
        if not self._enter(kind):
            index = channel_port.input_index(event)
            self._owner.fail(channel_port.unexpected(self.number, before, index), index)
            return
        if kind == states.CHANNEL_INPUT_OPEN and self.state == states.CHANNEL_OPEN:
            if not self._fresh:
                self.begin()
            self._fresh = False
            self.send(channel_open_ok())
            if self.output.channels_stopped:
                self.send(commands.Channel.Flow(False))
        elif kind == states.CHANNEL_INPUT_CLOSE:
            self.confirms.emit(self.output.out)
            self._release()
            self.output.send(self.number, commands.Channel.CloseOk())
        if self.state == states.CHANNEL_CLOSED:
            self._owner.channel_closed(self.number)

    def _enter(self, kind: int) -> bool:
        following = states.advance(states.CHANNEL_TABLE, self.state, kind)
        if following == states.NO_STATE:
            return False
        self.state = following
        return True

    def _release(self) -> None:
        self.admission.defer(0)
        self.release()

    async def _operate(
        self, operation: Operation, index: i64, handler: Handler | None, command: base.Frame | None
    ) -> None:
        try:
            try:
                if not self.is_open:
                    operation.close()  # the connection ended in the same turn
                elif handler is None:
                    await operation
                else:
                    await self._attempt(operation, handler, command)
            except AmqpError as error:
                self.fail(error, index)
            except ChannelOverError:
                pass  # nobody waits for it any more
            self._busy = False
            self.tell_cancels()
            self._drain()
        except Exception:  # noqa: BLE001 - only this connection ends
            self._owner.crash(method_name(int(index)))
        self._owner.operation_ended()

    def go_on_deferred(self) -> None:
        """See `Deferred`; until now the channel counted as busy."""
        self._busy = False
        self._drain()

    def _drain(self) -> None:
        """Continue with waiting inputs: buffered publishes, which are older, first.

        Where that is more than this turn allows, the channel stays busy until the next one.
        """
        self.admission.go_on()
        while not self._busy:
            if self.output.effort.is_spent and self.buffer.waits_behind:
                self._busy = True
                self.output.defer(self)
                break
            waiting = self.buffer.take_behind()
            if waiting is None:
                break
            self._owner.dispatch(self.number, unwrap(waiting))

    # From the queues

    def on_unreachable(self, client: QueueClient, text: str) -> None:
        """Refuse publishes that wait for confirms, and continue with buffered ones.

        Without confirms, or where the session has deliveries as well, the channel closes.
        """
        whole = self.deliveries.unsettled.count > 0
        if whole or not self.refuse_unreachable(client, text):
            self.fail(AmqpError(PRECONDITION_FAILED, text), BASIC_PUBLISH)
        else:
            self.output.admission.wake()

    def on_delivery(self, client: QueueClient, run: DeliveryRun) -> None:
        """Send a run, or hold it."""
        link = self.links.find(client)
        if link is None:
            return
        consumer = link.consumers.get(int(run.consumer))
        if consumer is None:
            last = run.first + len(run.positions) - 1
            client.settle(run.consumer, RELEASE, run.first, last)
            self.output.touch(link)
            return
        try:
            self.deliveries.deliver(consumer, run)
        except Exception:  # noqa: BLE001 - only this connection ends
            self._owner.crash("a delivery")

    def on_cancelled(self, client: QueueClient, consumer: int, reason: str) -> None:
        """Tell the client that its consumer is gone, if it supports that."""
        link = self.links.find(client)
        found = link.consumers.get(consumer) if link is not None else None
        if found is None:
            return
        known = found.state != states.CONSUMER_ATTACHING
        found.lost = True
        self.forget_consumer(found, states.CONSUMER_INPUT_LOST)
        if known:
            self.notify_cancel(found)

    def on_timed_out(self, client: QueueClient, consumer: int) -> None:
        """Tell the client that its consumer is gone, or close the channel of one that cannot know.

        Source: RabbitMQ's documentation of consumers, "Delivery Acknowledgement Timeout".
        """
        link = self.links.find(client)
        if link is None:
            return
        if consumer != GET_CONSUMER and self.output.cancel_notify:
            self.on_cancelled(client, consumer, "timed out")
            return
        self.fail(channel_port.timed_out(self.number), 0)

    def deferred_changed(self) -> None:
        """Show the queue that defers confirms."""
        self.admission.defer(self.confirms.deferred_by())

    def confirm(self) -> None:
        """Return immediate publishes that no queue took, and answer at the end of the turn."""
        for publish in self.confirms.take_returned():
            self.publisher.return_publish(publish, NO_CONSUMERS, b"NO_CONSUMERS")
        self.output.confirm(self.confirms)
