"""What the channels of a connection share: a turn's output, and what stops the reading."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, trait
from pamqp import base
from typing_extensions import override

from headrace_broker.codecs.method import encode_close, encode_method
from headrace_broker.flow.effort import Effort
from headrace_broker.flow.share import Reader
from headrace_broker.gateways.amqp.brake import Brake
from headrace_broker.gateways.amqp.confirming import Confirms
from headrace_broker.gateways.amqp.consumer import Consumer, Link
from headrace_broker.gateways.amqp.shell import Shell
from headrace_broker.model.limits import (
    FRAME_BYTES_MAX,
    OUTPUT_BYTES_MAX,
    OUTPUT_FLUSH_BYTES,
)
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.port import Broker, ConnectionInfo

_LOG: Final = logging.getLogger(__name__)

PAUSE_HELD: Final = 1  # too many octets of its publishes are held
PAUSE_COMMANDS: Final = 2  # too many commands wait in a channel
PAUSE_OUTPUT: Final = 4  # the client does not read what it is answered
PAUSE_EFFORT: Final = 8  # what it has sent waits for another turn of the loop


@trait
class Holder:
    """Keeps deliveries back while the socket is slow."""

    def send_some(self) -> bool:
        """Send a part of what is held; False when nothing may be sent."""
        raise AssertionError("abstract")


@trait
class Deferred:
    """Has inputs that wait for another turn of the loop."""

    def go_on_deferred(self) -> None:
        """Handle what waits, as far as this turn allows."""
        raise AssertionError("abstract")


@final
class Outlet(Reader):
    """Gathers what leaves in one loop turn into one write, and counts the reasons not to read.

    Attributes:
        broker: the node.
        shell: the socket.
        vhost: the connection's, "" before it is open.
        owner: the connection's id, which its exclusive queues belong to.
        owns_queues: whether it may have exclusive queues.
        cancel_notify: the client understands basic.cancel.
        qos_running: its basic.qos without `global` is for running consumers too.
        frame_max: octets of a frame to the client.
        out: octets for the next write; whoever appends to it calls `written`.
        writable: the socket takes deliveries.
        wrote: something was written since whoever clears this looked last.
        pauses: PAUSE_* bits, not 0: the socket is not read.
        brake: what stops its publishes, which does not stop the reading.
        share: what is held for it.
        effort: what it may cause in this turn of the loop.
        channels_stopped: its channels were sent channel.flow to stop, new ones are too.
    """

    def __init__(self, broker: Broker, shell: Shell, info: ConnectionInfo) -> None:
        self.broker = broker
        self.shell = shell
        self.vhost = ""
        self.owner = info.id
        self.owns_queues = False
        self.cancel_notify = False
        self.qos_running = False
        self.frame_max: i64 = FRAME_BYTES_MAX
        self.out = BytesWriter()
        self.writable = True
        self.channels_stopped = False
        self.wrote = False
        self.pauses: i64 = 0
        self._info = info
        self._woken = False
        self._stalled: i64 = 0
        self._touched: list[Link] = []
        self._confirming: list[Confirms] = []
        self._spent: list[Consumer] = []
        self._holders: deque[Holder] = deque()
        self._deferred: list[Deferred] = []
        self.effort = Effort(broker.effort_turns)
        self.share = broker.intake.open(self)
        self.brake = Brake(self, info)

    @property
    def user(self) -> str:
        """Who has logged in."""
        return self._info.user

    # Output

    def send(self, channel: i64, command: base.Frame) -> None:
        """Append a method frame."""
        self.out.write(encode_method(channel, command))
        self.written()

    def send_close(self, channel: i64, error: AmqpError, index: i64) -> None:
        """Append channel.close, or for channel 0 connection.close, for a fault in a method."""
        method = (int(index >> 16), int(index & 0xFFFF))
        self.out.write(encode_close(int(channel), error.code, error.text, *method))
        self.written()

    def written(self) -> None:
        """Take note that `out` has grown."""
        if len(self.out) >= OUTPUT_FLUSH_BYTES:
            self.push()
        self.wake()

    def wake(self) -> None:
        """Have `flush` called at the end of the loop turn."""
        if not self._woken:
            self._woken = True
            self.shell.wake()

    def touch(self, link: Link) -> None:
        """Flush a link's queue client at the end of the chunk or turn."""
        if not link.touched:
            link.touched = True
            self._touched.append(link)
            self.wake()

    def confirm(self, confirms: Confirms) -> None:
        """Have confirms sent at the end of the turn."""
        if not confirms.queued:
            confirms.queued = True
            self._confirming.append(confirms)
            self.wake()

    def spend(self, consumer: Consumer, octets: i64) -> None:
        """Tell the consumer's queue client at the end of the turn that bodies left for the socket.

        Not at once: it may answer with more deliveries before the caller is done with these.
        """
        if octets > 0:
            if consumer.spent == 0:
                self._spent.append(consumer)
            consumer.spent += octets

    def hold(self, holder: Holder) -> None:
        """Have a holder asked to send, in turn with the others, when the socket is writable.

        A holder may stand here once: it has left when its `send_some` returns False.
        """
        self._holders.append(holder)
        self.wake()

    def defer(self, deferred: Deferred) -> None:
        """Schedule a continuation in the next turn of the loop; once for each call."""
        self.effort.defer()
        self._deferred.append(deferred)
        self.wake()

    def flush_links(self) -> None:
        """Flush the queue clients that were touched."""
        touched = self._touched
        self._touched = []
        for link in touched:
            link.touched = False
            if not link.closed:
                link.client.flush()

    def flush(self) -> None:
        """End a loop turn: held deliveries and publishes, commands to queues, confirms, a write."""
        self._woken = False
        self._pump()
        self.brake.go_on()
        deferred = self._deferred
        self._deferred = []
        for each in deferred:
            each.go_on_deferred()
        self.flush_links()
        confirming = self._confirming
        self._confirming = []
        for confirms in confirming:
            confirms.queued = False
            confirms.emit(self.out)
        if len(self.out) > 0:
            self.push()
        self._open_windows()

    def push(self) -> None:
        """Write what has gathered."""
        data = self.out.getvalue()
        self.out = BytesWriter()
        self.wrote = True
        self._info.send_oct += len(data)
        self._info.send_cnt += 1
        self.shell.write(data)
        if self.shell.backlog() > OUTPUT_BYTES_MAX:
            self._pause(PAUSE_OUTPUT, True)

    def set_writable(self, writable: bool) -> None:
        """Keep deliveries back, or let them go again."""
        self.writable = writable
        if writable:
            self._pause(PAUSE_OUTPUT, False)
            if self._holders:
                self.wake()

    def _open_windows(self) -> None:
        spent = self._spent
        self._spent = []
        for consumer in spent:
            octets = consumer.spent
            consumer.spent = 0
            if not consumer.link.closed:
                consumer.link.client.consumed(consumer.number, octets)

    def _pump(self) -> None:
        while self.writable and self._holders:
            holder = self._holders.popleft()
            if holder.send_some():
                self._holders.append(holder)

    # Reasons not to read

    @override
    def may_read(self, reading: bool) -> None:
        """As many publishes are held as may be, or fewer again."""
        self._pause(PAUSE_HELD, not reading)

    @override
    def stalled(self) -> None:
        """A large publish that others wait for does not go on."""
        _LOG.warning(
            "%s: closed: others wait for a publish of which nothing comes", self._info.name
        )
        self.shell.abort()

    def stall(self, stalled: bool) -> None:
        """One more, or one less, channel has too many commands waiting."""
        self._stalled += 1 if stalled else -1
        self._pause(PAUSE_COMMANDS, self._stalled > 0)

    def pause_for_effort(self, on: bool) -> None:
        """Note that input waits for another turn, or no longer does."""
        self._pause(PAUSE_EFFORT, on)

    def _pause(self, cause: i64, on: bool) -> None:
        before = self.pauses
        self.pauses = before | cause if on else before & ~cause
        if (before == 0) != (self.pauses == 0):
            self.shell.set_reading(self.pauses == 0)
