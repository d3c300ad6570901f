"""What the channels of a connection share: a turn's output, and what stops the reading."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, trait
from pamqp import base

from headrace_broker.codecs.method import encode_method
from headrace_broker.gateways.amqp.confirming import Confirms
from headrace_broker.gateways.amqp.consumer import Consumer, Link
from headrace_broker.gateways.amqp.shell import Shell
from headrace_broker.model.limits import (
    FRAME_BYTES_MAX,
    OUTPUT_BYTES_MAX,
    OUTPUT_FLUSH_BYTES,
    QUOTA_LOOK_SECONDS_MAX,
)
from headrace_broker.model.message import Publish
from headrace_broker.runtime.port import Broker, ConnectionInfo

PAUSE_CONGESTED: Final = 1  # a queue has too much pending
PAUSE_BLOCKED: Final = 2  # the node blocks publishers and this connection publishes
PAUSE_COMMANDS: Final = 4  # too many commands wait behind an operation of their channel
PAUSE_OUTPUT: Final = 8  # the client does not read what it is answered
PAUSE_QUOTA: Final = 16  # its user or vhost has published too fast


@trait
class Holder:
    """Keeps deliveries back while the socket is slow."""

    def send_some(self) -> bool:
        """Send a part of what is held; False when nothing may be sent."""
        raise AssertionError("abstract")


@final
class Outlet:
    """Gathers what leaves in one loop turn into one write, and counts the reasons not to read.

    Attributes:
        broker: the node.
        shell: the socket.
        vhost: the connection's, "" before it is open.
        owner: the connection's id, which its exclusive queues belong to.
        owns_queues: whether it may have exclusive queues.
        cancel_notify: the client understands basic.cancel.
        frame_max: octets of a frame to the client.
        out: octets for the next write; whoever appends to it calls `written`.
        writable: the socket takes deliveries.
        wrote: something was written since whoever clears this looked last.
        pauses: PAUSE_* bits, not 0: the socket is not read.
    """

    def __init__(self, broker: Broker, shell: Shell, info: ConnectionInfo) -> None:
        self.broker = broker
        self.shell = shell
        self.vhost = ""
        self.owner = info.id
        self.owns_queues = False
        self.cancel_notify = False
        self.frame_max: i64 = FRAME_BYTES_MAX
        self.out = BytesWriter()
        self.writable = True
        self.wrote = False
        self.pauses: i64 = 0
        self._info = info
        self._publisher = False
        self._blocked = False
        self._woken = False
        self._congested: i64 = 0
        self._stalled: i64 = 0
        self._touched: list[Link] = []
        self._confirming: list[Confirms] = []
        self._spent: list[Consumer] = []
        self._holders: deque[Holder] = deque()

    @property
    def user(self) -> str:
        """Who has logged in."""
        return self._info.user

    # Output

    def send(self, channel: i64, command: base.Frame) -> None:
        """Append a method frame."""
        self.out.write(encode_method(channel, command))
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

    def flush_links(self) -> None:
        """Flush the queue clients that were touched."""
        touched = self._touched
        self._touched = []
        for link in touched:
            link.touched = False
            if not link.closed:
                link.client.flush()

    def flush(self) -> None:
        """End a loop turn: held deliveries, commands to queues, confirms, one write."""
        self._woken = False
        self._pump()
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

    def congest(self, link: Link) -> None:
        """Stop reading until `relieve` was called for this link."""
        if not link.congested:
            link.congested = True
            self._congested += 1
            self._pause(PAUSE_CONGESTED, True)

    def relieve(self, link: Link) -> None:
        """Take back `congest`; a link that is not congested is ignored."""
        if link.congested:
            link.congested = False
            self._congested -= 1
            if self._congested == 0:
                self._pause(PAUSE_CONGESTED, False)

    def stall(self, stalled: bool) -> None:
        """One more, or one less, channel has too many commands waiting."""
        self._stalled += 1 if stalled else -1
        self._pause(PAUSE_COMMANDS, self._stalled > 0)

    def block(self, blocked: bool) -> None:
        """Publishers are blocked, or no longer."""
        self._blocked = blocked
        self._pause(PAUSE_BLOCKED, blocked and self._publisher)

    def published(self, publishes: list[Publish]) -> None:
        """Take note of what this connection publishes; it has to wait if that was too fast."""
        if not self._publisher:
            self._publisher = True
            self._pause(PAUSE_BLOCKED, self._blocked)
        quotas = self.broker.quotas
        if quotas.limited and quotas.take(self.user, self.vhost, publishes):
            self._wait_for_quota()

    def _wait_for_quota(self) -> None:
        if not self.pauses & PAUSE_QUOTA:
            self._pause(PAUSE_QUOTA, True)
            self._ask_quota_later(self.broker.quotas.wait_seconds(self.user, self.vhost))

    def _ask_quota_later(self, wait: float) -> None:
        """Ask again when the wait is over, and sooner: limits may be raised or taken away."""
        self.shell.call_later(min(wait, float(QUOTA_LOOK_SECONDS_MAX)), self._quota_over)

    def _quota_over(self) -> None:
        """Read on, unless others of the same user or vhost have taken more meanwhile."""
        wait = self.broker.quotas.wait_seconds(self.user, self.vhost)
        if wait > 0:
            self._ask_quota_later(wait)
        else:
            self._pause(PAUSE_QUOTA, False)

    def _pause(self, cause: i64, on: bool) -> None:
        before = self.pauses
        self.pauses = before | cause if on else before & ~cause
        if (before == 0) != (self.pauses == 0):
            self.shell.set_reading(self.pauses == 0)
        if self.pauses & PAUSE_BLOCKED:
            self._info.state = "blocked"
        else:
            slowed = self.pauses & (PAUSE_CONGESTED | PAUSE_QUOTA)
            self._info.state = "flow" if slowed else "running"
