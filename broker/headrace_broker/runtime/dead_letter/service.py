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
    DEAD_LETTER_KEPT_OCTETS_MAX,
    DEAD_LETTER_OCTETS_MAX,
    LETTER_CAUSES_MAX,
    ROUTING_WORK_OF_TURN,
    TIMER_WAKES_MAX,
)
from headrace_broker.runtime.contract.dead_letter import DeadLetter
from headrace_broker.runtime.contract.dead_letter_cause import EXPIRY_CAUSE
from headrace_broker.runtime.dead_letter.dead_letter import NO_ROUTE, address
from headrace_broker.runtime.dead_letter.expiry_account import ExpiryAccounts
from headrace_broker.runtime.dead_letter.publisher import DeadLetterPublish, DeadLetterPublisher
from headrace_broker.runtime.dead_letter.queue_dead_letters import (
    Allowance,
    KeptSource,
    QueueDeadLetters,
)
from headrace_broker.runtime.routing.router import Router

WARNING_SECONDS: Final = 10.0  # between warnings of dead letters that found no room

log = logging.getLogger("headrace.queue")


class _Waiting(NamedTuple):
    """A letter that was not sent yet."""

    source: Queue
    arguments: dict[str, Any]
    letter: DeadLetter
    cause: int
    charge: Charge


@final
class _Once(DeadLetterPublish):
    """A letter that is not sent again, whatever becomes of it."""

    def __init__(self, office: DeadLetterService, cause: int, octets: int) -> None:
        super().__init__(cause, octets)
        self._office = office

    @override
    def done(self) -> None:
        self._office.sent_once(self)


class DeadLetterService:
    """Publisher of the dead letters of queues.

    While an alarm is on, letters that are sent until they have arrived stay in their queues. Those
    that are sent once wait here, up to half of the room that there is for them; what is more goes
    out, the oldest first, for it would be lost.

    Args:
        router: knows the way.
        carrier: takes letters there.
        expiries: whom to charge for what time does.
        blocked: says whether an alarm is on.

    None leaves before `release_all`: sessions can be opened then.

    Attributes:
        sent_count: letters that arrived in all of their queues.
        lost_count: letters sent at most once that no queue took or that found no room.
        congested: a further lot of letters might not find room.
    """

    def __init__(
        self,
        router: Router,
        carrier: DeadLetterPublisher,
        expiries: ExpiryAccounts,
        blocked: BlockedState,
    ) -> None:
        self.sent_count = 0
        self.lost_count = 0
        self._router = router
        self._carrier = carrier
        self._expiries = expiries
        self._blocked = blocked
        self._waiting: deque[_Waiting] = deque()
        self._waiting_octets = 0
        self._octets = 0  # of letters that wait or are under way, sent at most once
        self._handle: asyncio.Handle | None = None
        self._stopped = False
        self._may_leave = False
        self._complaints: dict[int, str] = {}  # by group: what was warned about last
        self._overflow_count = 0
        self._overflow_told = float("-inf")
        self._allowance = Allowance(DEAD_LETTER_KEPT_OCTETS_MAX)
        self._keepers: dict[int, QueueDeadLetters] = {}
        self._causes: dict[int, dict[int, int]] = {}  # group -> message id -> cause, of kept ones
        self._cause_count = 0
        blocked.watch(self._blocked_changed)

    @property
    def congested(self) -> bool:
        """True if more than half of the room is taken."""
        return self._octets > DEAD_LETTER_OCTETS_MAX // 2

    @property
    def held_octets(self) -> int:
        """Octets of letters that wait or are under way."""
        return self._octets + self._allowance.held

    @property
    def keeper_count(self) -> int:
        """Number of queues whose dead letters are sent at least once."""
        return len(self._keepers)

    def stop(self) -> None:
        """Send nothing more; letters are taken no more."""
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        for waiting in self._waiting:
            waiting.charge.repay(1, int(waiting.letter.octets))
        self._waiting.clear()
        for group in list(self._keepers):
            self.release(group)
        self._carrier.stop()

    # At most once

    def take(self, source: Queue, arguments: dict[str, Any], letters: list[DeadLetter]) -> None:
        """Send letters; those that do not fit are lost, and it is told how many those are."""
        if self._stopped:
            return
        for letter in letters:
            octets = int(letter.octets)
            if self._octets > 0 and self._octets + octets > DEAD_LETTER_OCTETS_MAX:
                self._overflow(source)
                continue
            self._octets += octets
            self._waiting_octets += octets
            cause = int(letter.cause)
            if cause == EXPIRY_CAUSE:
                cause = self._expiries.cause(source)
            charge = self._carrier.charges.charge(cause, source.group)
            charge.borrow_unbrought(1, octets)
            self._waiting.append(_Waiting(source, arguments, letter, cause, charge))
        self._send_soon()

    def _send_soon(self) -> None:
        if self._handle is None and self._waiting and self._may_send_once():
            self._handle = asyncio.get_running_loop().call_soon(self._send_some)

    def _may_send_once(self) -> bool:
        room_is_short = self._waiting_octets > DEAD_LETTER_OCTETS_MAX // 2
        return self._may_leave and (not self._blocked.now.is_on or room_is_short)

    def _send_some(self) -> None:
        """Send a bounded number, and the others in the next turn of the loop."""
        self._handle = None
        work = 0
        for _ in range(min(len(self._waiting), TIMER_WAKES_MAX)):
            if not self._may_send_once() or work > ROUTING_WORK_OF_TURN:
                break
            work += self._send(self._waiting.popleft())
        self._carrier.flush()
        self._send_soon()

    def _send(self, waiting: _Waiting) -> int:
        """Send a letter, whose cause owes for what it becomes; return the steps of its route."""
        source, arguments, letter, cause, charge = waiting
        addressed = address(letter, source, arguments, self._router, int(time.time()))
        octets = int(letter.octets)
        self._waiting_octets -= octets
        if addressed.queues:
            self._complaints.pop(source.group, None)
            self._carrier.send(addressed.publish, addressed.queues, _Once(self, cause, octets))
            charge.repay(1, octets)
            return addressed.work
        charge.repay(1, octets)
        self._octets -= octets
        self.dropped(source, addressed.problem)
        return addressed.work

    def sent_once(self, parcel: DeadLetterPublish) -> None:
        """Every queue has answered for a letter that is sent at most once."""
        self._octets -= parcel.octets
        if parcel.failed:
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
                "%d dead letters dropped, the last of queue %r in vhost %r: more than %d octets of "
                "them wait for the queues that they go to",
                self._overflow_count,
                source.name,
                source.vhost,
                DEAD_LETTER_OCTETS_MAX,
            )
            self._overflow_count = 0
            self._overflow_told = now

    # At least once

    def keep(self, source: KeptSource) -> None:
        """See to the letters that a queue's machine keeps; called when there are more of them."""
        if self._stopped:
            return
        keeper = self._keepers.get(source.queue.group)
        if keeper is None:
            keeper = QueueDeadLetters(source, self._router, self._carrier, self._allowance, self)
            self._keepers[source.queue.group] = keeper
        keeper.look()

    def note_causes(self, queue: Queue, ids: list[int], causes: list[int]) -> None:
        """Remember who caused messages to die that a queue's machine keeps, within a bound."""
        known = self._causes.setdefault(queue.group, {})
        for message_id, cause in zip(ids, causes, strict=True):
            if self._cause_count >= LETTER_CAUSES_MAX:
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
        """Return whether letters that are kept may go."""
        return self._may_leave and not self._blocked.now.is_on

    def release_all(self) -> None:
        """Release dead letters from now on."""
        self._may_leave = True
        self.go_on()

    def _blocked_changed(self, before: Blocked, now: Blocked) -> None:
        if before is not now:
            self.go_on()

    def go_on(self) -> None:
        """See whether letters may go that had to wait: an alarm is over, a debt is repaid."""
        if self._stopped:
            return
        for keeper in self._keepers.values():
            keeper.look()
        self._send_soon()

    def is_congested(self, queue: Queue) -> bool:
        """Return whether a queue's messages had better not expire now."""
        held_up = not self._may_leave or self._blocked.now.is_on
        return self.congested or held_up or self._expiries.in_debt(queue.group)

    def forgotten(self, group: int, ids: list[int]) -> None:
        """A queue's machine keeps these letters no more."""
        keeper = self._keepers.get(group)
        if keeper is not None:
            keeper.forgotten(ids)

    def release(self, group: int) -> None:
        """Leave a queue's dead letters to its next leader, or drop them when the queue is gone."""
        self._complaints.pop(group, None)
        self._cause_count -= len(self._causes.pop(group, ()))
        self._expiries.close(group)
        keeper = self._keepers.pop(group, None)
        if keeper is not None:
            keeper.close()

    def reconfigured(self, group: int) -> None:
        """The arguments of a queue led here are others now."""
        keeper = self._keepers.get(group)
        if keeper is not None:
            keeper.hurry()

    def on_events(self, events: Iterable[Event]) -> None:
        """Try again at once when there may be a way now."""
        if any(
            isinstance(event, QueueAdded | ExchangeAdded | BindingAdded | PolicyChanged)
            for event in events
        ):
            for keeper in self._keepers.values():
                keeper.hurry()

    # Telling people

    def arrived(self, group: int) -> None:
        """A letter that was kept has arrived."""
        self.sent_count += 1
        self._complaints.pop(group, None)

    def idle(self, group: int) -> None:
        """Everything that a queue kept has arrived."""
        self._keepers.pop(group).close()

    def dropped(self, source: Queue, problem: str) -> None:
        """A letter goes nowhere and is lost; told once for as long as that is so."""
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
