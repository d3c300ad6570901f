"""Carries dead letters to their queues over sessions of the node's own."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Final, final

from typing_extensions import override

from headrace_broker.flow.cause_runs import CauseRuns
from headrace_broker.flow.charges import Charge, Charges
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import DEAD_LETTER_SESSIONS_MAX
from headrace_broker.model.message import Publish
from headrace_broker.runtime.contract.port import PendingConfirm, QueueClient, QueueListener
from headrace_broker.runtime.session.session import QueueSession

IDLE_SECONDS: Final = (
    30.0  # a session with nothing under way is kept so long for the next dead letter
)


class DeadLetterPublish:
    """One dead letter on its way to one or more queues."""

    def __init__(self, cause: int, byte_count: int) -> None:
        self.cause = cause  # session that is charged for it, or NO_CAUSE
        self.byte_count = byte_count  # that are charged at each of the queues
        self.waits = 0  # queues that have not answered
        self.arrived: list[int] = []  # groups of queues that have it
        self.failed: list[int] = []  # groups of queues that refused it or are gone

    @abstractmethod
    def done(self) -> None:
        """Every queue has answered; called where a log is being applied, so it must not wait."""


class _Line:
    """The session with one queue."""

    def __init__(self, session: QueueSession, causes: CauseRuns) -> None:
        self.session = session
        self.causes = causes  # of its dead letters
        self.under_way = 0  # dead letters that it has not answered


@final
class DeadLetterPublisher(QueueListener):
    """Publishes dead letters and tells their publishes what became of them.

    Their causes owe for them at each queue until it has answered.
    """

    def __init__(
        self,
        open_session: Callable[[Queue, QueueListener, CauseRuns], QueueSession],
        charges: Charges,
    ) -> None:
        self.charges = charges  # what is under way on this node
        # starts a session with a queue whose messages' x-death the broker writes, and whose causes
        # are told to its leader
        self._open_session = open_session
        self._lines: dict[int, _Line] = {}
        self._idle: dict[int, float] = {}  # group -> since when, the longest first
        self._touched: dict[int, QueueSession] = {}
        self._publishes: dict[int, DeadLetterPublish] = {}  # by the number of a pending confirm
        self._owed: dict[int, Charge] = {}  # likewise
        self._next_number = 1
        self._sweep: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Stop the timer of idle sessions; messages under way are neither awaited nor charged."""
        owed, self._owed = self._owed, {}
        for number, charge in owed.items():
            charge.repay(1, self._publishes[number].byte_count)
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def send(
        self, publish: Publish, queues: Iterable[Queue], dead_publish: DeadLetterPublish
    ) -> None:
        """Hand a dead letter to its queues' sessions, where it stays until `flush`."""
        targets = list(queues)
        dead_publish.waits = len(targets)
        for queue in targets:
            number = self._next_number
            self._next_number += 1
            self._publishes[number] = dead_publish
            charge = self.charges.charge(dead_publish.cause, queue.group)
            charge.borrow(1, dead_publish.byte_count)
            self._owed[number] = charge
            line = self._line(queue)
            line.under_way += 1
            line.causes.add(dead_publish.cause)
            self._touched[queue.group] = line.session
            line.session.publish([publish], PendingConfirm(number, number))

    def flush(self) -> None:
        """Send the gathered publishes."""
        touched, self._touched = self._touched, {}
        for session in touched.values():
            session.flush()

    def _line(self, queue: Queue) -> _Line:
        line = self._lines.get(queue.group)
        if line is None:
            causes = CauseRuns()
            line = _Line(self._open_session(queue, self, causes), causes)
            self._lines[queue.group] = line
        self._idle.pop(queue.group, None)
        return line

    # From the queues

    @override
    def on_confirmed(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        """Note arrivals; what a deleted queue "confirms" has not arrived."""
        line = self._lines[client.queue.group]
        self._answer(line, pending_confirms, not line.session.link.gone)

    @override
    def on_rejected(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        self._answer(self._lines[client.queue.group], pending_confirms, False)

    @override
    def on_writable(self, client: QueueClient) -> None:
        """Ignore it: senders bound the dead letters under way."""

    def _answer(self, line: _Line, pending_confirms: list[PendingConfirm], arrived: bool) -> None:
        group = line.session.queue.group
        line.under_way -= len(pending_confirms)
        line.causes.answered(len(pending_confirms))
        if line.under_way == 0:
            self._rest(group)
        for pending_confirm in pending_confirms:
            dead_publish = self._publishes.pop(int(pending_confirm.first))
            charge = self._owed.pop(int(pending_confirm.first), None)
            if charge is not None:
                charge.repay(1, dead_publish.byte_count)
            (dead_publish.arrived if arrived else dead_publish.failed).append(group)
            dead_publish.waits -= 1
            if dead_publish.waits == 0:
                dead_publish.done()

    # Idle sessions

    def _rest(self, group: int) -> None:
        loop = asyncio.get_running_loop()
        self._idle[group] = loop.time()
        if len(self._idle) > DEAD_LETTER_SESSIONS_MAX or self._lines[group].session.link.gone:
            loop.call_soon(self._close_surplus)
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE_SECONDS, self._close_idle)

    def _close_surplus(self) -> None:
        surplus = list(self._idle)[: max(len(self._idle) - DEAD_LETTER_SESSIONS_MAX, 0)]
        gone = [group for group in self._idle if self._lines[group].session.link.gone]
        for group in {*surplus, *gone}:
            self._close(group)

    def _close_idle(self) -> None:
        self._sweep = None
        loop = asyncio.get_running_loop()
        for group, since in list(self._idle.items()):
            if loop.time() - since < IDLE_SECONDS:
                self._sweep = loop.call_at(since + IDLE_SECONDS, self._close_idle)
                return
            self._close(group)

    def _close(self, group: int) -> None:
        del self._idle[group]
        self._touched.pop(group, None)
        self._lines.pop(group).session.close()
