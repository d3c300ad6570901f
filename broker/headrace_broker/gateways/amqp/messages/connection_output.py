"""Output that the channels of a connection share: frames, deliveries, and deferred inputs."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64, trait
from pamqp import base
from typing_extensions import override

from headrace_broker.catalog.permission_watch import PermissionWatch
from headrace_broker.codecs.delivery_encoder import BodyFrames
from headrace_broker.codecs.method import encode_close, encode_method
from headrace_broker.gateways.amqp.messages.consumer import Consumer
from headrace_broker.gateways.publishing.output_buffer import (
    PAUSE_EFFORT,
    PAUSE_OUTPUT,
    OutputBuffer,
)
from headrace_broker.gateways.publishing.shell import Shell
from headrace_broker.model.limits import FRAME_BYTES_MAX
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import ConnectionInfo


@trait
class DeliverySource:
    """Keeps deliveries back while the socket is slow."""

    def send_some(self) -> bool:
        """Send a part of the pending bytes; False when nothing may be sent."""
        raise AssertionError("abstract")


@trait
class Deferred:
    """Receiver of inputs that wait for another turn of the loop."""

    def go_on_deferred(self) -> None:
        """Handle what waits, as far as this turn allows."""
        raise AssertionError("abstract")


@final
class ConnectionOutput(OutputBuffer):
    """The output of an AMQP connection."""

    def __init__(self, broker: Broker, shell: Shell, info: ConnectionInfo) -> None:
        super().__init__(broker, shell, info)
        self.owner = info.id  # the connection's id, which its exclusive queues belong to
        self.owns_queues = False  # whether it may have exclusive queues
        self.cancel_notify = False  # the client understands basic.cancel
        self.qos_running = False  # its basic.qos without `global` is for running consumers too
        self.frame_max: i64 = FRAME_BYTES_MAX  # bytes of a frame to the client
        self.writable = True  # the socket takes deliveries
        # its channels were sent channel.flow to stop, new ones are too
        self.channels_stopped = False
        self._spent: list[Consumer] = []
        self._sources: deque[DeliverySource] = deque()
        self._deferred: list[Deferred] = []
        self._shut = False

    def stand_down(self, standing: PermissionWatch | None) -> None:
        """Stop judging something that has ended when permissions change."""
        if standing is not None:
            self.broker.standings.leave(standing)

    def send(self, channel: i64, command: base.Frame) -> None:
        """Append a method frame."""
        self.out.write(encode_method(channel, command))
        self.written()

    def send_close(self, channel: i64, error: AmqpError, index: i64) -> None:
        """Append channel.close, or for channel 0 connection.close, for a fault in a method."""
        method = (int(index >> 16), int(index & 0xFFFF))
        self.out.write(encode_close(int(channel), error.code, error.text, *method))
        self.written()

    def wrote_message(self, rest: BodyFrames | None) -> None:
        """Take note that `out` has grown by a message; `rest` is its body, where it is large."""
        if rest is None:
            self.written()
            return
        self.push()
        self.count_sent(rest.left)
        self.shell.write_body(rest)
        self.check_backlog()
        self.wake()

    def spend(self, consumer: Consumer, byte_count: i64) -> None:
        """Tell the consumer's queue client at the end of the turn that bodies left for the socket.

        Not at once: it may answer with more deliveries before the caller is done with these.
        """
        if byte_count > 0:
            if consumer.spent == 0:
                self._spent.append(consumer)
            consumer.spent += byte_count

    def hold(self, source: DeliverySource) -> None:
        """Ask a source to send, in turn with the others, when the socket is writable.

        A source may stand here once: it has left when its `send_some` returns False.
        """
        self._sources.append(source)
        self.wake()

    def defer(self, deferred: Deferred) -> None:
        """Schedule a continuation in the next turn of the loop; once for each call."""
        self.effort.defer()
        self._deferred.append(deferred)
        self.wake()

    @override
    def go_on_deferred(self) -> None:
        deferred = self._deferred
        self._deferred = []
        for each in deferred:
            each.go_on_deferred()

    def set_writable(self, writable: bool) -> None:
        """Stop or resume deliveries."""
        self.writable = writable and not self._shut
        if writable:
            self.pause(PAUSE_OUTPUT, False)
            if self._sources:
                self.wake()

    def shut(self) -> None:
        """Stop all deliveries: the connection ends."""
        self._shut = True
        self.writable = False

    @override
    def report_sent(self) -> None:
        spent = self._spent
        self._spent = []
        for consumer in spent:
            byte_count = consumer.spent
            consumer.spent = 0
            if not consumer.link.closed:
                consumer.link.client.consumed(consumer.number, byte_count)

    @override
    def send_deliveries(self) -> None:
        while self.writable and self._sources:
            source = self._sources.popleft()
            if source.send_some():
                self._sources.append(source)

    def pause_for_effort(self, on: bool) -> None:
        """Note that input waits for another turn, or no longer does."""
        self.pause(PAUSE_EFFORT, on)
