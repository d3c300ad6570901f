"""Output of a connection in one turn of the loop, and reasons not to read from it."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.flow.effort import Effort
from headrace_broker.flow.share import Reader
from headrace_broker.gateways.publishing.admission_control import AdmissionControl, Turn
from headrace_broker.gateways.publishing.confirming import Confirms
from headrace_broker.gateways.publishing.link import Link
from headrace_broker.gateways.publishing.shell import Shell
from headrace_broker.gateways.publishing.timers import Timers
from headrace_broker.model.limits import METHOD_UNITS, OUTPUT_BYTES_MAX, OUTPUT_FLUSH_BYTES
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import ConnectionInfo

_LOG: Final = logging.getLogger("headrace.connection")

PAUSE_HELD: Final = 1  # too many bytes of its publishes are held
PAUSE_COMMANDS: Final = 2  # too many commands wait in a channel
PAUSE_OUTPUT: Final = 4  # the client does not read what it is answered
PAUSE_EFFORT: Final = 8  # what it has sent waits for another turn of the loop


class OutputBuffer(Reader, Turn):
    """Gathers the output of one loop turn into one write, and counts the reasons not to read."""

    def __init__(self, broker: Broker, shell: Shell, info: ConnectionInfo) -> None:
        self.broker = broker  # the node
        self.shell = shell  # the socket
        self.vhost = ""  # the connection's, "" before it is open
        self.out = BytesWriter()  # bytes for the next write; whoever appends to it calls `written`
        self.wrote = False  # something was written since this was cleared
        self.pauses: i64 = 0  # PAUSE_* bits, not 0: the socket is not read
        self._info = info
        self._woken = False
        self._stalled: i64 = 0
        self._touched: list[Link] = []
        self._confirming: list[Confirms] = []
        self._ending: deque[Link] = deque()  # of channels that have ended
        # work other than messages that it may cause in this turn of the loop
        self.effort = Effort(broker.effort_turns)
        self.share = broker.intake.open(self)  # of the node's memory for buffered publishes
        timers = Timers(broker, shell)
        # limits on its publishes, which do not stop the reading
        self.admission = AdmissionControl(broker, info, self.share, self.effort, timers, self)

    @property
    def user(self) -> str:
        """Name of the user that has logged in."""
        return self._info.user

    # Output

    def written(self) -> None:
        """Take note that `out` has grown."""
        if len(self.out) >= OUTPUT_FLUSH_BYTES:
            self.push()
        self.wake()

    @override
    def wake(self) -> None:
        """Schedule `flush` at the end of the loop turn."""
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
        """Schedule confirms for the end of the turn."""
        if not confirms.queued:
            confirms.queued = True
            self._confirming.append(confirms)
            self.wake()

    def end(self, links: list[Link]) -> None:
        """End the sessions of a channel, those that this turn has no room for in later ones."""
        self._ending.extend(links)
        self.end_links()

    def end_links(self) -> None:
        """End sessions of channels that have ended, as far as this turn allows."""
        try:
            while self._ending and not self.effort.is_spent:
                self.effort.spend(METHOD_UNITS)
                self._ending.popleft().end()
        finally:  # a fault at one must not spare those behind it
            if self._ending:
                self.effort.defer()
                self.wake()

    @property
    def ends_links(self) -> bool:
        """True while sessions of channels that have ended wait for another turn."""
        return len(self._ending) > 0

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
        if self._ending:
            self.end_links()
        self.send_deliveries()
        self.admission.go_on()
        self.go_on_deferred()
        self.flush_links()
        confirming = self._confirming
        self._confirming = []
        for confirms in confirming:
            confirms.queued = False
            confirms.emit(self.out)
        if len(self.out) > 0:
            self.push()
        self.report_sent()

    def send_deliveries(self) -> None:
        """Send deliveries that were kept back."""

    def go_on_deferred(self) -> None:
        """Handle inputs that waited for this turn."""

    def report_sent(self) -> None:
        """Report to queues how many delivered bytes have left for the socket."""

    def push(self) -> None:
        """Write everything that has gathered."""
        data = self.out.getvalue()
        self.out = BytesWriter()
        self.wrote = True
        self._info.send_oct += len(data)
        self._info.send_cnt += 1
        self.shell.write(data)
        self.check_backlog()

    def count_sent(self, byte_count: i64) -> None:
        """Count bytes that are written past `out`."""
        self._info.send_oct += byte_count

    def check_backlog(self) -> None:
        """Stop reading from a client that does not read its answers."""
        if self.shell.backlog() > OUTPUT_BYTES_MAX:
            self.pause(PAUSE_OUTPUT, True)

    # Reasons not to read

    @override
    def may_read(self, reading: bool) -> None:
        """Stop or resume reading: the share of buffered publishes is used up, or no longer."""
        self.pause(PAUSE_HELD, not reading)

    @override
    def stalled(self) -> None:
        """Close the socket: a large publish that others wait for has stalled."""
        _LOG.warning(
            "%s: closed: others wait for a publish of which nothing comes", self._info.name
        )
        self.shell.abort()

    @override
    def stall(self, stalled: bool) -> None:
        """Count a channel that has too many commands waiting, or no longer has."""
        self._stalled += 1 if stalled else -1
        self.pause(PAUSE_COMMANDS, self._stalled > 0)

    def pause(self, cause: i64, on: bool) -> None:
        """Note a PAUSE_* reason not to read the socket, or that it is over."""
        before = self.pauses
        self.pauses = before | cause if on else before & ~cause
        if (before == 0) != (self.pauses == 0):
            self.shell.set_reading(self.pauses == 0)
