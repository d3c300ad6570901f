"""The control part of a session: settles and requests in order, and its end.

A settle costs a queue's replicas a round through their logs, and its consumer does not feel when it
comes while there is other work for it. So few settles at a time gather, until they are a part that
counts of what the consumer may work on, or SETTLE_GATHER_MS have passed; the sessions of a
node send them in the same turn of its loop, so that they travel together.

Source: Clark, "Window and Acknowledgement Strategy in TCP", RFC 813.
"""

from __future__ import annotations

import asyncio
from typing import final

from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.core.queue.command.command import encode_cancel, encode_close
from headrace_broker.model.limits import (
    PIPELINE_COMMANDS,
    SETTLE_GATHER_COUNT,
    SETTLE_GATHER_PARTS,
    SETTLE_SLOW_MS,
    SETTLE_SLOW_PARTS,
)
from headrace_broker.model.reply_code import INTERNAL_ERROR, AmqpError
from headrace_broker.runtime.contract.answer import Answer, no_queue
from headrace_broker.runtime.contract.lane_port import Gathering, SessionOwner
from headrace_broker.runtime.contract.port import ACCEPT, GET_CONSUMER
from headrace_broker.runtime.contract.trace_port import TRACING
from headrace_broker.runtime.session.lane import ControlLane
from headrace_broker.runtime.session.link import SessionLink


@final
class Control(Gathering):
    """The control lane of a session."""

    def __init__(self, link: SessionLink, owner: SessionOwner) -> None:
        self.lane = ControlLane(link.session)  # what gathered and what is not answered
        # the queue was told to forget the session; that command has no number
        self.close_sent = False
        self._link = link
        self._owner = owner
        self._count: i64 = 0  # deliveries that the gathered settles are about
        self._sent_ms: i64 = 0  # when all had been sent last, on the monotonic clock
        self._due = False  # they wait no longer
        self._waits = False  # for a turn, to send what gathered

    def settle(self, consumer: i64, operation: i64, first: i64, last: i64, room: i64) -> None:
        """Gather a range, given in the queue's numbers.

        Args:
            consumer: the queue's number of it.
            operation: what becomes of the deliveries.
            first: the first of them.
            last: the last of them.
            room: deliveries that the consumer may work on; see `Subscription.room`.
        """
        self.lane.settle(consumer, operation, first, last)
        self._count += last - first + 1
        if operation != ACCEPT or not self._few(room):  # others may want what goes back
            self._due = True

    def send(self) -> None:
        """Send the settles that gathered, if they are due, as far as the pipeline has room."""
        lane = self.lane
        if not self._due:
            if lane.gathered and not self._waits:
                self._waits = True
                self._owner.send_later(self)
            return
        while lane.gathered and len(lane.pending) < PIPELINE_COMMANDS:
            self._link.send(lane.seal_settles().data)
        if not lane.gathered:
            self._all_sent()

    def settles_sent(self) -> int:
        """Send all gathered settles and return the number of the next control command."""
        while self.lane.gathered:
            self._link.send(self.lane.seal_settles().data)
        self._all_sent()
        return self.lane.next_number

    def request(self, data: bytes, waited: bool = True) -> Answer:
        """Send a command that was encoded with the lane's next number; return its answer to be.

        Args:
            data: the command.
            waited: whether a client waits for the answer, which is an error then after a long time
                without a leader; otherwise it comes once there is one.
        """
        future: Answer = asyncio.get_running_loop().create_future()
        if self._link.gone:
            future.set_exception(no_queue(self._link.queue))
            return future
        self._link.send(self.lane.add(data, future, waited).data)
        return future

    def order(self, data: bytes) -> None:
        """As `request`, for a command whose answer says nothing."""
        if not self._link.gone:
            self._link.send(self.lane.add(data, None).data)

    def withdraw(self, number: i64) -> None:
        """Ask for nothing in the place of a request for which nobody waits any more.

        A queue that has not seen it yet would hand messages to a consumer that is gone, and count
        that as a failed delivery of them.
        """
        for command in self.lane.pending:
            if command.number == number:
                command.data = encode_cancel(self._link.session, number, GET_CONSUMER)

    def answer(self, number: i64, status: i64, count: i64) -> None:
        """Take the answer to a command and send the settles that gathered meanwhile."""
        if TRACING.tracer is not None:
            TRACING.tracer.answered(self._link.session, number)
        future = self.lane.answered(number)
        if future is not None and not future.done():
            future.set_result((int(status), int(count)))
        self.send()

    def resend(self) -> None:
        """Send everything unanswered again."""
        for command in list(self.lane.pending):
            self._link.send(command.data)
        if self.close_sent:
            self._link.send(encode_close(self._link.session))

    def close(self) -> None:
        """End the session at the queue, once."""
        if not self.close_sent:
            self.close_sent = True
            self._owner.close_in_turn(self)

    @override
    def send_close(self) -> None:
        if not self._link.gone:
            self._link.send(encode_close(self._link.session))

    def give_up(self) -> None:
        """Fail all waiters: the queue is gone."""
        for future in self.lane.take_futures():
            if not future.done():
                future.set_exception(no_queue(self._link.queue))
        self._all_sent()

    def fail(self, text: str) -> None:
        """Fail all clients that wait; the queue may apply their commands all the same, later."""
        for command in self.lane.pending:
            future = command.future
            if future is not None and command.waited and not future.done():
                future.set_exception(AmqpError(INTERNAL_ERROR, text))

    @override
    def time_is_up(self) -> None:
        """Send what gathered, if it has not been sent meanwhile."""
        self._waits = False
        self._due = self.lane.gathered > 0
        self.send()

    def _few(self, room: i64) -> bool:
        """Return whether the consumer has work for longer than its settles would wait."""
        if self._count >= SETTLE_GATHER_COUNT or self._count * SETTLE_SLOW_PARTS >= room:
            return False
        if self._count * SETTLE_GATHER_PARTS < room:
            return True
        return self._owner.monotonic_ms() - self._sent_ms >= SETTLE_SLOW_MS

    def _all_sent(self) -> None:
        self._sent_ms = self._owner.monotonic_ms()
        self._count = 0
        self._due = False
