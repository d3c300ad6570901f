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
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import (
    DEAD_LETTER_KEPT_OCTETS_MAX,
    DEAD_LETTER_OCTETS_MAX,
    TIMER_WAKES_MAX,
)
from headrace_broker.runtime.dead_letter import NO_ROUTE, address
from headrace_broker.runtime.dead_letter_carrier import Carrier, Parcel
from headrace_broker.runtime.dead_letter_keeper import Allowance, Keeper, KeptSource
from headrace_broker.runtime.letter import Letter
from headrace_broker.runtime.router import Router

WARNING_SECONDS: Final = 10.0  # between warnings of dead letters that found no room

log = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    """A letter that was not sent yet."""

    source: Queue
    arguments: dict[str, Any]
    letter: Letter


@final
class _Once(Parcel):
    """A letter that is not sent again, whatever becomes of it."""

    def __init__(self, office: DeadLetterOffice, octets: int) -> None:
        super().__init__()
        self._office = office
        self._octets = octets

    @override
    def done(self) -> None:
        self._office.sent_once(self, self._octets)


class DeadLetterOffice:
    """Takes what queues let go and sees to it that it gets where it is to go.

    Attributes:
        sent_count: letters that arrived in all of their queues.
        lost_count: letters sent at most once that no queue took or that found no room.
        congested: a further lot of letters might not find room.
    """

    def __init__(self, router: Router, carrier: Carrier) -> None:
        self.sent_count = 0
        self.lost_count = 0
        self._router = router
        self._carrier = carrier
        self._waiting: deque[_Waiting] = deque()
        self._octets = 0  # of letters that wait or are under way, sent at most once
        self._handle: asyncio.Handle | None = None
        self._stopped = False
        self._complaints: dict[int, str] = {}  # by group: what was warned about last
        self._overflow_count = 0
        self._overflow_told = float("-inf")
        self._allowance = Allowance(DEAD_LETTER_KEPT_OCTETS_MAX)
        self._keepers: dict[int, Keeper] = {}

    @property
    def congested(self) -> bool:
        """Whether more than half of the room is taken."""
        return self._octets > DEAD_LETTER_OCTETS_MAX // 2

    @property
    def held_octets(self) -> int:
        """Octets of letters that wait or are under way."""
        return self._octets + self._allowance.held

    @property
    def keeper_count(self) -> int:
        """Number of queues whose letters are sent until they have arrived."""
        return len(self._keepers)

    def stop(self) -> None:
        """Send nothing more; letters are taken no more."""
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._waiting.clear()
        for group in list(self._keepers):
            self.release(group)
        self._carrier.stop()

    # At most once

    def take(self, source: Queue, arguments: dict[str, Any], letters: list[Letter]) -> None:
        """Send letters; those that do not fit are lost, and it is told how many those are."""
        if self._stopped:
            return
        for letter in letters:
            octets = int(letter.octets)
            if self._octets > 0 and self._octets + octets > DEAD_LETTER_OCTETS_MAX:
                self._overflow(source)
                continue
            self._octets += octets
            self._waiting.append(_Waiting(source, arguments, letter))
        if self._waiting and self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._send_some)

    def _send_some(self) -> None:
        """Send a bounded number, and the others in the next turn of the loop."""
        self._handle = None
        for _ in range(min(len(self._waiting), TIMER_WAKES_MAX)):
            self._send(*self._waiting.popleft())
        self._carrier.flush()
        if self._waiting:
            self._handle = asyncio.get_running_loop().call_soon(self._send_some)

    def _send(self, source: Queue, arguments: dict[str, Any], letter: Letter) -> None:
        addressed = address(letter, source, arguments, self._router, int(time.time()))
        octets = int(letter.octets)
        if addressed.queues:
            self._complaints.pop(source.group, None)
            self._carrier.send(addressed.publish, addressed.queues, _Once(self, octets))
            return
        self._octets -= octets
        self.dropped(source, addressed.problem)

    def sent_once(self, parcel: Parcel, octets: int) -> None:
        """Every queue has answered for a letter that is sent at most once."""
        self._octets -= octets
        if parcel.failed:
            self.lost_count += 1
        else:
            self.sent_count += 1

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
            keeper = Keeper(source, self._router, self._carrier, self._allowance, self)
            self._keepers[source.queue.group] = keeper
        keeper.look()

    def forgotten(self, group: int, ids: list[int]) -> None:
        """A queue's machine keeps these letters no more."""
        keeper = self._keepers.get(group)
        if keeper is not None:
            keeper.forgotten(ids)

    def release(self, group: int) -> None:
        """Leave a queue's letters to its next leader, or to nobody when it is gone."""
        self._complaints.pop(group, None)
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
