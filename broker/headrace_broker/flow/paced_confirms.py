"""Confirms of a queue that is behind: they follow the messages that leave it.

A message is confirmed when it is in the log. It makes room for the next one of its consumer a round
trip later: delivery, acknowledgement, and the log again. So with equal windows publishers outrun
consumers, and the difference stands in the queue, however fast both are. While a queue is *behind*,
a confirm waits until as many messages have left. Publishers that wait for confirms, and all others
by what their connections may have unconfirmed, then bring as many as leave, and a message waits in
its publisher's window in place of the queue. Many publishers without confirms have large windows
together: if the queue becomes deep nevertheless, nodes let in less
than leaves it (`bound`).

A queue is behind if messages stand in it for which its consumers have no room although they are
fast: they take little longer for all that they hold than commands take through the log, or less
than a turn of the loop for each message while the node is busy. A consumer that is slow itself is
no reason, nor is a queue without one: fewer publishes do not make those faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, final

from mypy_extensions import i64

STANDING_MIN: Final = 32  # ready messages for which no confirm waits
STANDING_PART: Final = 2  # nor for so many as this part of what consumers hold
DEEP: Final = 2  # times that: more is reduced
WAIT_US_MAX: Final = 1_000_000  # for a confirm; sessions send again what is not answered for 2 s
WHOLE: Final = 100  # parts of a message
DRAIN_PERCENT: Final = 85  # of what leaves is confirmed, while the queue is deeper
BOUND_DEPTH: Final = 2  # times what consumers hold, from which on nodes let in less
BOUND_US: Final = 100_000  # and what leaves in this time beside it, until they begin to
BOUND_OVER: Final = 16  # times what leaves: a bound that has risen so far is over
LOOK_US: Final = 50_000  # between looks at how fast consumers are, or a command if that is longer
SMOOTHING: Final = 4  # looks over which the rate of what leaves is averaged
FAST_COMMANDS: Final = 2  # durations of a command that fast consumers take for what they hold,
FAST_US: Final = 5_000  # and for the way to them and back, and their own work
CALM_LOOKS: Final = 20  # in a row at which consumers were not fast, until confirms wait no more
STALLED_US: Final = 100_000  # in which nothing is delivered, until all confirms are told,
STALLED_COMMANDS: Final = 4  # and durations of a command beside that
REST_US: Final = 1_000_000  # after that in which no confirm waits: it may be what clients wait for
SHOWN_US: Final = 1_000_000  # for which a queue counts as behind after a confirm had to wait
RATE_MAX: Final = 10_000_000  # messages a second; only so that products stay within 64 bits
COMMAND_US_MAX: Final = 20_000  # what counts of a command: a slow log makes no consumer fast
PREFETCH_MAX: Final = 65535  # the most that a client can ask for
SECOND_US: Final = 1_000_000


class QueueFigures(NamedTuple):
    """A queue after a command."""

    now_us: int  # monotonic
    delivered: int  # messages so far
    ready: int
    unsettled: int
    busy: int  # consumers that hold all that they may
    command_us: int  # from proposal to application, on average


@final
class PacedQueues:
    """Queues led by a node whose confirms wait, or that are deep."""

    def __init__(self) -> None:
        self.busy_us: i64 = 0  # length of a turn of the node's loop while it is busy, otherwise 0
        self._queues: dict[PacedConfirms, None] = {}
        self._bounded: dict[int, None] = {}  # groups with a bound at the last poll

    def add(self, paced: PacedConfirms) -> None:
        """Poll one until none of its confirms waits and it has no bound."""
        self._queues[paced] = None

    def poll(self, now_us: i64) -> dict[int, int]:
        """Return bounds by group, 0 for those that are over; called ten times a second.

        Tells the confirms of queues that stand still.
        """
        bounds = dict.fromkeys(self._bounded, 0)
        for paced in list(self._queues):
            waits = paced.poll(now_us)
            if paced.bound > 0:
                bounds[paced.group] = int(paced.bound)
            elif not waits:
                del self._queues[paced]
        self._bounded = {group: None for group, bound in bounds.items() if bound > 0}
        return bounds


@final
class PacedConfirms:
    """Confirms of one queue, told in the order of its log.

    Args:
        group: the queue's.
        tell: called with a session and the first and last number of publishes that are confirmed.
        queues: those of the node.
    """

    def __init__(
        self, group: int, tell: Callable[[int, int, int], None], queues: PacedQueues
    ) -> None:
        self.group = group
        self.is_on = False  # confirms may have to wait
        self._tell = tell
        self._queues = queues
        # session, first, last, messages, since when
        self._waiting: deque[tuple[int, int, int, int, int]] = deque()
        self._room: i64 = 0  # of messages that left, for confirms: in WHOLE parts
        self._last = QueueFigures(0, -1, 0, 0, 0, 0)  # after the last command
        self._left_us: i64 = 0  # when something was delivered last
        self._rests_until_us: i64 = 0
        self._waited_us: i64 = -SHOWN_US  # when a confirm had to wait last
        self._looked_us: i64 = 0
        self._left: i64 = 0  # messages delivered since the last look
        self._rate: i64 = 0  # of deliveries in a second, on average
        self._calm: i64 = 0  # looks in a row at which consumers were not fast
        self._fast = False  # as of their last round: as many deliveries as they hold messages
        self._round: i64 = 0  # messages delivered when it began
        self._round_us: i64 = 0  # when that was
        self.bound: i64 = 0  # messages a second that all nodes together may let in, 0 for any

    def is_behind(self, now_us: i64) -> bool:
        """Return whether a confirm had to wait within the last second."""
        return now_us - self._waited_us < SHOWN_US

    def confirm(self, session: i64, first: i64, last: i64, messages: i64) -> None:
        """Take a confirm of so many new messages; `applied` tells it, or has it wait."""
        numbers = int(session), int(first), int(last), int(messages), self._last.now_us
        self._waiting.append(numbers)

    def applied(self, queue: QueueFigures) -> None:
        """Tell those that may be told after a command."""
        before, self._last = self._last, queue
        left: i64 = queue.delivered - before.delivered if before.delivered >= 0 else 0
        if left > 0:
            self._left += left
            self._left_us = queue.now_us
        if before.busy == 0:  # they take what comes, and nobody learns how fast they are
            self._round, self._round_us = queue.delivered, queue.now_us
        elif queue.delivered - self._round >= max(queue.unsettled, 1):
            self._fast = self._are_fast(queue, queue.now_us - self._round_us)
            self._round, self._round_us = queue.delivered, queue.now_us
        if queue.now_us - self._looked_us >= max(LOOK_US, queue.command_us):
            self._look(queue)
        if self.is_on:
            self._pass(left, queue.ready, max(queue.unsettled // STANDING_PART, STANDING_MIN))
        else:
            self.tell_all()
        if self._waiting:
            self._waited_us = queue.now_us
            self._queues.add(self)

    def tell_all(self) -> None:
        """Tell all that wait."""
        while self._waiting:
            self._tell_first()

    def stop(self) -> None:
        """Tell all that wait, and let none wait any more."""
        self.is_on = False
        self.tell_all()

    def poll(self, now_us: i64) -> bool:
        """Tell those that waited for long, set the bound, and return whether any waits."""
        if self._is_stalled(now_us):
            if self._waiting:
                self._rests_until_us = now_us + REST_US
            self.stop()
        while self._waiting and now_us - self._waiting[0][4] >= WAIT_US_MAX:
            self._tell_first()
        self._set_bound()
        return len(self._waiting) > 0

    def _is_stalled(self, now_us: i64) -> bool:
        most: i64 = STALLED_US + min(STALLED_COMMANDS * self._last.command_us, WAIT_US_MAX)
        return now_us - self._left_us >= most

    def _set_bound(self) -> None:
        """Bound a queue that is deep, and raise the bound by and by when it is no longer.

        Nodes with few publishes leave of their part what others may then bring.
        """
        queue = self._last
        depth: i64 = queue.ready - BOUND_DEPTH * queue.unsettled
        if not self.is_on:
            self.bound = 0
        elif depth > (0 if self.bound > 0 else self._rate * BOUND_US // SECOND_US):
            least = max(self._rate * DRAIN_PERCENT // WHOLE, 1)
            self.bound = max(self.bound * 3 // 4, least)
        elif self.bound > 0:
            self.bound += self.bound // 8 + 1
            if self.bound > BOUND_OVER * self._rate:
                self.bound = 0

    def _pass(self, left: i64, ready: i64, most: i64) -> None:
        """Tell as many as may be, after `left` messages have left."""
        if ready <= most:
            self._room = 0
            self.tell_all()
            return
        self._room += min(left, RATE_MAX) * (DRAIN_PERCENT if ready > DEEP * most else WHOLE)
        while self._waiting and self._waiting[0][3] * WHOLE <= self._room:
            self._room -= self._waiting[0][3] * WHOLE
            self._tell_first()
        if not self._waiting:
            self._room = min(self._room, most * WHOLE)

    def _look(self, queue: QueueFigures) -> None:
        """Judge how fast consumers are."""
        elapsed, self._looked_us = queue.now_us - self._looked_us, queue.now_us
        left, self._left = self._left, 0
        rate = min(min(left, RATE_MAX) * SECOND_US // elapsed, RATE_MAX)
        self._rate += (rate - self._rate) // SMOOTHING
        stalled = self._is_stalled(queue.now_us)
        fast = self._fast and self._are_fast(queue, queue.now_us - self._round_us)
        if fast and not stalled and queue.busy > 0:
            self._calm = 0
            rested = queue.now_us >= self._rests_until_us
            if rested and not self.is_on and queue.ready > STANDING_MIN:
                self.is_on = True
                self._room = 0
        else:
            self._calm += 1
            if self._calm >= CALM_LOOKS or stalled:
                self.is_on = False

    def _are_fast(self, queue: QueueFigures, round_us: i64) -> bool:
        each: i64 = min(queue.unsettled // max(queue.busy, 1), PREFETCH_MAX)
        log_us: i64 = min(queue.command_us, COMMAND_US_MAX) * FAST_COMMANDS + FAST_US
        return round_us <= max(log_us, each * min(self._queues.busy_us, SECOND_US))

    def _tell_first(self) -> None:
        session, first, last, _, _ = self._waiting.popleft()
        self._tell(session, first, last)
