"""Dead letters of one queue, at least once: its machine keeps them until they have arrived."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, final

from typing_extensions import override

from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.flow.charges import NO_CAUSE
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import (
    DEAD_LETTERS_IN_FLIGHT_MAX,
    ROUTING_WORK_OF_TURN,
    TIMER_STEP_MS,
)
from headrace_broker.runtime.contract.dead_letter import DeadLetter
from headrace_broker.runtime.dead_letter.dead_letter import OFF, TOO_COSTLY, address
from headrace_broker.runtime.dead_letter.publisher import DeadLetterPublish, DeadLetterPublisher
from headrace_broker.runtime.routing.router import Router

RETRY_SECONDS_MIN: Final = 1.0  # before a dead letter that did not arrive is sent again
RETRY_SECONDS_MAX: Final = 60.0  # the same after many attempts, each of which doubles it

REFUSED: Final = "a queue that it goes to refused it or was deleted"


class KeptSource(Protocol):
    """The leading replica of a queue, as far as it matters here."""

    queue: Queue
    arguments: dict[str, Any]

    def kept(self, limit: int) -> list[tuple[Acquired, int]]:
        """Return the oldest dead letters, at most `limit`, with the reasons of their deaths."""

    def dead_letters(
        self, messages: list[Acquired], reason: int, done: Callable[[], None]
    ) -> list[DeadLetter] | None:
        """Return letters of one entry with their bodies; None, and call back, once it is read."""

    def forget(self, ids: list[int]) -> bool:
        """Remove dead letters that have arrived; False when the machine cannot now."""


class Reporter(Protocol):
    """The node: it says when dead letters may go, and tells people what became of them."""

    def may_send(self) -> bool:
        """Return whether letters may go now; `QueueDeadLetters.look` is called when they may."""

    def cause(self, group: int, message_id: int) -> int:
        """Return who caused a message to die: a session, or NO_CAUSE. It is asked for once."""

    def arrived(self, group: int) -> None:
        """A dead letter has arrived."""

    def idle(self, group: int) -> None:
        """True if there is nothing left to do for this queue."""

    def dropped(self, source: Queue, problem: str) -> None:
        """A dead letter does not get where it is to go and is not kept."""

    def kept(self, source: Queue, problem: str) -> None:
        """A dead letter does not get where it is to go and is tried again later."""


@final
class Allowance:
    """Bytes that all dead letters of queues of a node may have under way together."""

    def __init__(self, bytes_max: int) -> None:
        self.held = 0  # bytes under way
        self._bytes_max = bytes_max
        self._waiting: dict[Callable[[], None], None] = {}

    def take(self, byte_count: int, waiter: Callable[[], None]) -> bool:
        """Take bytes; where they do not fit, have `waiter` called once half of all are free."""
        if self.held > 0 and self.held + byte_count > self._bytes_max:
            self._waiting[waiter] = None
            return False
        self.held += byte_count
        return True

    def give_back(self, byte_count: int) -> None:
        """Give bytes back."""
        self.held -= byte_count
        if self._waiting and self.held <= self._bytes_max // 2:
            waiting, self._waiting = self._waiting, {}
            for waiter in waiting:
                waiter()


@final
class _Flight(DeadLetterPublish):
    """A dead letter under way."""

    def __init__(self, queue_dead_letters: QueueDeadLetters, item: _Stuck, byte_count: int) -> None:
        super().__init__(item.cause, byte_count)
        self.item = item  # what is under way; its bytes are taken of the allowance
        self._queue_dead_letters = queue_dead_letters

    @override
    def done(self) -> None:
        self._queue_dead_letters.answered(self)


@final
class _Stuck:
    """A dead letter that is to be sent, or was and did not arrive everywhere."""

    def __init__(self, message: Acquired, reason: int, cause: int, before: frozenset[int]) -> None:
        self.message = message  # what the machine keeps
        self.reason = reason  # of its death
        self.cause = cause  # who is charged for it, a session or NO_CAUSE
        self.before = before  # groups of queues that have it since an earlier attempt
        # version of the routes at which its own took too many steps; -1 for none. It is not looked
        # for again before they change.
        self.costly_at = -1


class QueueDeadLetters:
    """Sends a queue's letters, a bounded number at a time, and has those forgotten that arrived.

    Nothing is lost with this object: the machine has the letters, and the next leader begins with
    the oldest. What arrived and was not forgotten by then arrives once more.

    A letter that can go nowhere, or that a queue refused, is tried again, at first after
    RETRY_SECONDS_MIN; queues that have it do not get it twice. When dead-lettering is switched off,
    the letters that did not arrive by then are dropped, as RabbitMQ does it.
    """

    def __init__(
        self,
        source: KeptSource,
        router: Router,
        publisher: DeadLetterPublisher,
        allowance: Allowance,
        reporter: Reporter,
    ) -> None:
        self._source = source
        self._router = router
        self._publisher = publisher
        self._allowance = allowance
        self._reporter = reporter
        self._more = True  # the machine may keep some that were not looked at
        self._next: deque[_Stuck] = deque()  # to be sent now
        self._flights: dict[int, _Flight] = {}
        self._stuck: dict[int, _Stuck] = {}
        self._arrived: dict[int, None] = {}
        self._forgetting: dict[int, None] = {}
        self._closed = False
        self._handle: asyncio.Handle | None = None
        self._retry_handle: asyncio.TimerHandle | None = None
        self._retry_seconds = RETRY_SECONDS_MIN
        self._work_left = ROUTING_WORK_OF_TURN  # steps for routes, in this turn of the loop

    def poll(self) -> None:
        """See what the machine keeps, in the next turn of the loop."""
        self._more = True
        self._soon()

    def forgotten(self, ids: list[int]) -> None:
        """The machine keeps these dead letters no more."""
        for message_id in ids:
            self._forgetting.pop(message_id, None)
        self._soon()

    def hurry(self) -> None:
        """Try what did not arrive again as soon as it may be: something has changed."""
        handle = self._retry_handle
        if handle is None:
            return
        loop = asyncio.get_running_loop()
        if handle.when() > loop.time() + RETRY_SECONDS_MIN:
            handle.cancel()
            self._retry_handle = loop.call_later(RETRY_SECONDS_MIN, self._retry)

    def close(self) -> None:
        """Stop; dead letters under way return their bytes when they are answered."""
        self._closed = True
        for handle in (self._handle, self._retry_handle):
            if handle is not None:
                handle.cancel()

    def answered(self, flight: _Flight) -> None:
        """Every queue has answered for a dead letter."""
        self._allowance.give_back(flight.byte_count)
        if self._closed:
            return
        item = flight.item
        message_id = int(item.message.message_id)
        del self._flights[message_id]
        if flight.failed:
            item.before |= frozenset(flight.arrived)
            self._hold(item, REFUSED)
        else:
            self._has_arrived(message_id)
        self._soon()

    def _has_arrived(self, message_id: int) -> None:
        self._arrived[message_id] = None
        self._retry_seconds = RETRY_SECONDS_MIN
        self._reporter.arrived(self._source.queue.group)

    def _hold(self, stuck: _Stuck, problem: str) -> None:
        """Keep a dead letter for another attempt."""
        self._stuck[int(stuck.message.message_id)] = stuck
        self._reporter.kept(self._source.queue, problem)
        if self._retry_handle is None:
            loop = asyncio.get_running_loop()
            self._retry_handle = loop.call_later(self._retry_seconds, self._retry)
            self._retry_seconds = min(2 * self._retry_seconds, RETRY_SECONDS_MAX)

    def _retry(self) -> None:
        if self._retry_handle is not None:
            self._retry_handle.cancel()
            self._retry_handle = None
        self._next.extend(self._stuck.values())
        self._stuck.clear()
        self._soon()

    def _soon(self) -> None:
        if self._handle is None and not self._closed:
            self._handle = asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Send as many as allowed, and forget arrived ones."""
        self._handle = None
        if self._closed:
            return
        self._refill()
        self._work_left = ROUTING_WORK_OF_TURN
        while self._next and self._reporter.may_send():
            room = self._room()
            if room <= 0 or not self._send_all(self._take_of_one_entry(room)):
                break
        self._publisher.flush()
        self._have_forgotten()
        if self._is_idle():
            self._reporter.idle(self._source.queue.group)

    def _room(self) -> int:
        """Return how many dead letters may go.

        Those of which nobody knows any more who caused them wait while their account is in debt,
        but one: a queue that takes nothing must not keep those that go elsewhere.
        """
        charges = self._publisher.charges
        if self._next[0].cause == NO_CAUSE and charges.unknown.in_debt:
            return 1 - len(self._flights)
        return DEAD_LETTERS_IN_FLIGHT_MAX - len(self._flights)

    def _take_of_one_entry(self, most: int) -> list[_Stuck]:
        """Take the next dead letters of one log entry and one reason, which are read together."""
        items = [self._next.popleft()]
        entry, reason = items[0].message.entry_index, items[0].reason
        while self._next and len(items) < most:
            other = self._next[0]
            if other.message.entry_index != entry or other.reason != reason:
                break
            items.append(self._next.popleft())
        return items

    def _send_all(self, items: list[_Stuck]) -> bool:
        """Send dead letters of one entry; False when some have to wait, which are next then.

        They wait for room, for the disk, or for the next turn of the loop where routes cost much.
        """
        messages = [item.message for item in items]
        try:
            dead_letters = self._source.dead_letters(messages, items[0].reason, self._soon)
        except KeyError:  # other settings: the machine has let them go meanwhile
            return True
        if dead_letters is None:
            self._next.extendleft(reversed(items))
            return False
        for place, dead_letter in enumerate(dead_letters):
            if self._work_left < 0:
                self._next.extendleft(reversed(items[place:]))
                self._soon()
                return False
            if not self._allowance.take(int(dead_letter.byte_count), self._soon):
                self._next.extendleft(reversed(items[place:]))
                return False
            self._send(items[place], dead_letter)
        return True

    def _is_idle(self) -> bool:
        return not (
            self._more
            or self._next
            or self._flights
            or self._stuck
            or self._arrived
            or self._forgetting
        )

    def _refill(self) -> None:
        """Read dead letters from the machine once half of those in hand are done."""
        busy = len(self._flights) + len(self._stuck) + len(self._next) + len(self._arrived)
        if not self._more or busy > DEAD_LETTERS_IN_FLIGHT_MAX // 2:
            return
        known = {
            *self._flights,
            *self._stuck,
            *self._arrived,
            *self._forgetting,
            *[int(item.message.message_id) for item in self._next],
        }
        limit = len(known) + DEAD_LETTERS_IN_FLIGHT_MAX - busy
        found = self._source.kept(limit)
        self._more = len(found) == limit
        group = self._source.queue.group
        for message, reason in found:
            message_id = int(message.message_id)
            if message_id not in known:
                cause = self._reporter.cause(group, message_id)
                self._next.append(_Stuck(message, int(reason), cause, frozenset()))

    def _send(self, item: _Stuck, dead_letter: DeadLetter) -> None:
        source = self._source
        if item.costly_at == self._router.version:
            self._allowance.give_back(int(dead_letter.byte_count))
            self._hold(item, TOO_COSTLY)
            return
        addressed = address(
            dead_letter, source.queue, source.arguments, self._router, int(time.time())
        )
        self._work_left -= addressed.work
        queues = [queue for queue in addressed.queues if queue.group not in item.before]
        message_id = int(item.message.message_id)
        if queues:
            flight = _Flight(self, item, int(dead_letter.byte_count))
            self._flights[message_id] = flight
            self._publisher.send(addressed.publish, queues, flight)
            return
        self._allowance.give_back(int(dead_letter.byte_count))
        if item.before:  # all queues that it goes to have it
            self._has_arrived(message_id)
        elif addressed.problem == OFF:  # what dies without an exchange is dropped, and so is this
            self._arrived[message_id] = None
            self._reporter.dropped(source.queue, OFF)
        else:
            if addressed.problem == TOO_COSTLY:
                item.costly_at = self._router.version
            self._hold(item, addressed.problem)

    def _have_forgotten(self) -> None:
        if not self._arrived:
            return
        ids = sorted(self._arrived)
        if self._source.forget(ids):
            self._forgetting.update(self._arrived)
            self._arrived.clear()
        elif self._handle is None:
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(TIMER_STEP_MS / 1000, self._pump)
