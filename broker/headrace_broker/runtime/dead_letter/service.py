"""Dead letters of the queues that are led on this node: sent once, or until they have arrived."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, final

from typing_extensions import override

from headrace_broker.catalog.event import (
    BindingAdded,
    Event,
    ExchangeAdded,
    PolicyChanged,
    QueueAdded,
)
from headrace_broker.flow.blocked import Blocked, BlockedState
from headrace_broker.flow.charges import NO_CAUSE, Charge
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import (
    DEAD_LETTER_BYTES_MAX,
    DEAD_LETTER_CAUSES_MAX,
    DEAD_LETTER_KEPT_BYTES_MAX,
    ROUTING_WORK_OF_TURN,
    TIMER_WAKES_MAX,
)
from headrace_broker.runtime.contract.dead_letter import DeadLetter
from headrace_broker.runtime.contract.dead_letter_cause import EXPIRY_CAUSE
from headrace_broker.runtime.dead_letter.at_least_once import (
    Allowance,
    KeptSource,
    QueueDeadLetters,
)
from headrace_broker.runtime.dead_letter.dead_letter import NO_ROUTE, address
from headrace_broker.runtime.dead_letter.expiry_account import ExpiryAccounts
from headrace_broker.runtime.dead_letter.publisher import DeadLetterPublish, DeadLetterPublisher
from headrace_broker.runtime.routing.router import Router

WARNING_SECONDS: Final = 10.0  # between warnings of dead letters that found no room

log = logging.getLogger("headrace.queue")


class _Waiting(NamedTuple):
    """A dead letter that was not sent yet."""

    source: Queue
    arguments: dict[str, Any]
    dead_letter: DeadLetter
    cause: int
    charge: Charge


@final
class _Once(DeadLetterPublish):
    """A dead letter that is not sent again, whatever becomes of it."""

    def __init__(self, service: DeadLetterService, cause: int, byte_count: int) -> None:
        super().__init__(cause, byte_count)
        self._service = service

    @override
    def done(self) -> None:
        self._service.sent_once(self)


class DeadLetterService:
    """Publisher of the dead letters of queues.

    While an alarm is on, dead letters that are sent until they have arrived stay in their queues.
    Those that are sent once wait here, up to half of the room that there is for them; what is more
    goes out, the oldest first, for it would be lost.

    None leaves before `release_all`: sessions can be opened then.

    Attributes:
        congested: a further lot of dead letters might not find room.
    """

    def __init__(
        self,
        router: Router,
        publisher: DeadLetterPublisher,
        expiries: ExpiryAccounts,
        blocked: BlockedState,
    ) -> None:
        self.sent_count = 0  # dead letters that arrived in all of their queues
        # dead letters sent at most once that no queue took or that found no room
        self.lost_count = 0
        self._router = router  # knows the way
        self._publisher = publisher  # takes dead letters there
        self._expiries = expiries  # whom to charge for what time does
        self._blocked = blocked  # says whether an alarm is on
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._byte_count = 0  # of dead letters that wait or are under way, sent at most once
        self._handle: asyncio.Handle | None = None
        self._stopped = False
        self._may_leave = False
        self._complaints: dict[int, str] = {}  # by group: what was warned about last
        self._overflow_count = 0
        self._overflow_told = float("-inf")
        self._allowance = Allowance(DEAD_LETTER_KEPT_BYTES_MAX)
        self._queue_dead_letters: dict[int, QueueDeadLetters] = {}
        self._causes: dict[int, dict[int, int]] = {}  # group -> message id -> cause, of kept ones
        self._cause_count = 0
        blocked.watch(self._blocked_changed)

    @property
    def congested(self) -> bool:
        """True if more than half of the room is taken."""
        return self._byte_count > DEAD_LETTER_BYTES_MAX // 2

    @property
    def held_bytes(self) -> int:
        """Bytes of dead letters that wait or are under way."""
        return self._byte_count + self._allowance.held

    @property
    def queue_count(self) -> int:
        """Number of queues whose dead letters are sent at least once."""
        return len(self._queue_dead_letters)

    def stop(self) -> None:
        """Send nothing more; dead letters are taken no more."""
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        for waiting in self._waiting:
            waiting.charge.repay(1, int(waiting.dead_letter.byte_count))
        self._waiting.clear()
        for group in list(self._queue_dead_letters):
            self.release(group)
        self._publisher.stop()

    # At most once

    def accept(
        self, source: Queue, arguments: dict[str, Any], dead_letters: list[DeadLetter]
    ) -> None:
        """Send dead letters; those that do not fit are lost, and it is told how many those are."""
        if self._stopped:
            return
        for dead_letter in dead_letters:
            byte_count = int(dead_letter.byte_count)
            if self._byte_count > 0 and self._byte_count + byte_count > DEAD_LETTER_BYTES_MAX:
                self._overflow(source)
                continue
            self._byte_count += byte_count
            self._waiting_bytes += byte_count
            cause = int(dead_letter.cause)
            if cause == EXPIRY_CAUSE:
                cause = self._expiries.cause(source)
            charge = self._publisher.charges.charge(cause, source.group)
            charge.borrow_unbrought(1, byte_count)
            self._waiting.append(_Waiting(source, arguments, dead_letter, cause, charge))
        self._send_soon()

    def _send_soon(self) -> None:
        if self._handle is None and self._waiting and self._may_send_once():
            self._handle = asyncio.get_running_loop().call_soon(self._send_some)

    def _may_send_once(self) -> bool:
        room_is_short = self._waiting_bytes > DEAD_LETTER_BYTES_MAX // 2
        return self._may_leave and (not self._blocked.now.is_on or room_is_short)

    def _send_some(self) -> None:
        """Send a bounded number, and the others in the next turn of the loop."""
        self._handle = None
        work = 0
        for _ in range(min(len(self._waiting), TIMER_WAKES_MAX)):
            if not self._may_send_once() or work > ROUTING_WORK_OF_TURN:
                break
            work += self._send(self._waiting.popleft())
        self._publisher.flush()
        self._send_soon()

    def _send(self, waiting: _Waiting) -> int:
        """Send a letter, whose cause owes for what it becomes; return the steps of its route."""
        source, arguments, dead_letter, cause, charge = waiting
        addressed = address(dead_letter, source, arguments, self._router, int(time.time()))
        byte_count = int(dead_letter.byte_count)
        self._waiting_bytes -= byte_count
        if addressed.queues:
            self._complaints.pop(source.group, None)
            self._publisher.send(
                addressed.publish, addressed.queues, _Once(self, cause, byte_count)
            )
            charge.repay(1, byte_count)
            return addressed.work
        charge.repay(1, byte_count)
        self._byte_count -= byte_count
        self.dropped(source, addressed.problem)
        return addressed.work

    def sent_once(self, dead_publish: DeadLetterPublish) -> None:
        """Every queue has answered for a dead letter that is sent at most once."""
        self._byte_count -= dead_publish.byte_count
        if dead_publish.failed:
            self.lost_count += 1
        else:
            self.sent_count += 1

    def lost(self, source: Queue, count: int) -> None:
        """Count messages that died and could not be read; told once for as long as that is so."""
        self.lost_count += count
        problem = (
            "it could not be read from the disk before its entry went, or too many wait for that"
        )
        self._complain(source, problem, "dropped", logging.WARNING)

    def _overflow(self, source: Queue) -> None:
        self.lost_count += 1
        self._overflow_count += 1
        now = time.monotonic()
        if now - self._overflow_told >= WARNING_SECONDS:
            log.warning(
                "%d dead letters dropped, the last of queue %r in vhost %r: more than %d bytes of "
                "them wait for the queues that they go to",
                self._overflow_count,
                source.name,
                source.vhost,
                DEAD_LETTER_BYTES_MAX,
            )
            self._overflow_count = 0
            self._overflow_told = now

    # At least once

    def keep(self, source: KeptSource) -> None:
        """See to the letters that a queue's machine keeps; called when there are more of them."""
        if self._stopped:
            return
        queue_dead_letters = self._queue_dead_letters.get(source.queue.group)
        if queue_dead_letters is None:
            queue_dead_letters = QueueDeadLetters(
                source, self._router, self._publisher, self._allowance, self
            )
            self._queue_dead_letters[source.queue.group] = queue_dead_letters
        queue_dead_letters.poll()

    def note_causes(self, queue: Queue, ids: list[int], causes: list[int]) -> None:
        """Remember who caused messages to die that a queue's machine keeps, within a bound."""
        known = self._causes.setdefault(queue.group, {})
        for message_id, cause in zip(ids, causes, strict=True):
            if self._cause_count >= DEAD_LETTER_CAUSES_MAX:
                break
            self._cause_count += message_id not in known
            known[message_id] = self._expiries.cause(queue) if cause == EXPIRY_CAUSE else cause

    def cause(self, group: int, message_id: int) -> int:
        """Return who caused a message to die, and drop that record."""
        cause = self._causes.get(group, {}).pop(message_id, None)
        if cause is None:
            return NO_CAUSE
        self._cause_count -= 1
        return cause

    def may_send(self) -> bool:
        """Return whether dead letters that are kept may go."""
        return self._may_leave and not self._blocked.now.is_on

    def release_all(self) -> None:
        """Release dead letters from now on."""
        self._may_leave = True
        self.go_on()

    def _blocked_changed(self, before: Blocked, now: Blocked) -> None:
        if before is not now:
            self.go_on()

    def go_on(self) -> None:
        """See whether dead letters may go that had to wait: an alarm is over, a debt is repaid."""
        if self._stopped:
            return
        for queue_dead_letters in self._queue_dead_letters.values():
            queue_dead_letters.poll()
        self._send_soon()

    def is_congested(self, queue: Queue) -> bool:
        """Return whether a queue's messages had better not expire now."""
        held_up = not self._may_leave or self._blocked.now.is_on
        return self.congested or held_up or self._expiries.in_debt(queue.group)

    def forgotten(self, group: int, ids: list[int]) -> None:
        """A queue's machine keeps these dead letters no more."""
        queue_dead_letters = self._queue_dead_letters.get(group)
        if queue_dead_letters is not None:
            queue_dead_letters.forgotten(ids)

    def release(self, group: int) -> None:
        """Leave a queue's dead letters to its next leader, or drop them when the queue is gone."""
        self._complaints.pop(group, None)
        self._cause_count -= len(self._causes.pop(group, ()))
        self._expiries.close(group)
        queue_dead_letters = self._queue_dead_letters.pop(group, None)
        if queue_dead_letters is not None:
            queue_dead_letters.close()

    def reconfigured(self, group: int) -> None:
        """The arguments of a queue led here are others now."""
        queue_dead_letters = self._queue_dead_letters.get(group)
        if queue_dead_letters is not None:
            queue_dead_letters.hurry()

    def on_events(self, events: Iterable[Event]) -> None:
        """Try again at once when there may be a way now."""
        if any(
            isinstance(event, QueueAdded | ExchangeAdded | BindingAdded | PolicyChanged)
            for event in events
        ):
            for queue_dead_letters in self._queue_dead_letters.values():
                queue_dead_letters.hurry()

    # Telling people

    def arrived(self, group: int) -> None:
        """A dead letter that was kept has arrived."""
        self.sent_count += 1
        self._complaints.pop(group, None)

    def idle(self, group: int) -> None:
        """Everything that a queue kept has arrived."""
        self._queue_dead_letters.pop(group).close()

    def dropped(self, source: Queue, problem: str) -> None:
        """A dead letter goes nowhere and is lost; told once for as long as that is so."""
        self.lost_count += 1
        level = logging.INFO if problem == NO_ROUTE else logging.WARNING
        self._complain(source, problem, "dropped", level)

    def kept(self, source: Queue, problem: str) -> None:
        """A letter goes nowhere now and is tried again; told once for as long as that is so."""
        self._complain(source, problem, "kept", logging.WARNING)

    def _complain(self, source: Queue, problem: str, outcome: str, level: int) -> None:
        if self._complaints.get(source.group) != problem:
            self._complaints[source.group] = problem
            text = "queue %r in vhost %r: a dead letter is %s, for %s"
            log.log(level, text, source.name, source.vhost, outcome, problem)
