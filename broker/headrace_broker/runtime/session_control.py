"""The control part of a session: settles and requests in order, and its end."""

from __future__ import annotations

import asyncio
from typing import final

from mypy_extensions import i64

from headrace_broker.core.queue.command import encode_close
from headrace_broker.model.limits import PIPELINE_COMMANDS
from headrace_broker.runtime.answer import Answer, no_queue
from headrace_broker.runtime.lane import ControlLane
from headrace_broker.runtime.session_link import SessionLink
from headrace_broker.runtime.trace_port import TRACING


@final
class Control:
    """The control lane of a session.

    Attributes:
        lane: what gathered and what is not answered.
        close_sent: the queue was told to forget the session; that command has no number.
    """

    def __init__(self, link: SessionLink) -> None:
        self.lane = ControlLane(link.session)
        self.close_sent = False
        self._link = link

    def send(self) -> None:
        """Send the settles that gathered, as far as the pipeline has room."""
        lane = self.lane
        while lane.gathered and len(lane.pending) < PIPELINE_COMMANDS:
            self._link.send(lane.seal_settles().data)

    def settles_sent(self) -> int:
        """Send all gathered settles and return the number of the next control command."""
        while self.lane.gathered:
            self._link.send(self.lane.seal_settles().data)
        return self.lane.next_number

    def request(self, data: bytes) -> Answer:
        """Send a command that was encoded with the lane's next number; return its answer to be."""
        future: Answer = asyncio.get_running_loop().create_future()
        if self._link.gone:
            future.set_exception(no_queue(self._link.queue))
            return future
        self._link.send(self.lane.add(data, future).data)
        return future

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
        """Have the queue forget the session, once."""
        if not self.close_sent:
            self.close_sent = True
            self._link.send(encode_close(self._link.session))

    def give_up(self) -> None:
        """Fail whatever somebody waits for: the queue is gone."""
        for future in self.lane.take_futures():
            if not future.done():
                future.set_exception(no_queue(self._link.queue))
