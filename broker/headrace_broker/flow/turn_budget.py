"""How much a node takes in during one turn of its loop, weighed against what its consumers get.

Acknowledgements and deliveries are done in every turn, whatever there is of them. A consumer with
a prefetch of n gets n messages in as many turns as a message and its acknowledgement take to go
round. Publishers have no such measure: without a budget, what they send in those turns is several
times as much, and queues grow. The budget shrinks while queues grow whose consumers are held up by
this node, and grows again while there are none.

A consumer that takes its time itself is no reason: its round takes longer than the node's turns
explain. Nor is anything while turns are short: consumers could not be served much faster.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.limits import TURN_MESSAGES_MIN, TURN_US_MAX, TURN_US_SHORT

FULL: Final = 1 << 16  # the whole of the limits, in the units of `share`
ROUND_TURNS: Final = 64  # turns that a message and its acknowledgement take at most: gateway,
# client, gateway, leader, followers, disk, leader, some of them several, and the ack of a window
SMOOTHING: Final = 8  # looks over which what leaves a queue is averaged
GROWTH_STEPS: Final = 16  # a sixteenth more each time, while nothing speaks against it
DRAIN_PERCENT: Final = 95  # of what leaves may come in, while too much waits


@final
class Round:
    """What the queues that are led here did since the last look, as far as their consumers hurry.

    Attributes:
        arrived: messages.
        left: messages that were handed to consumers for good.
        waiting: messages that are ready.
        wanted: messages that their consumers take at a time.
    """

    def __init__(self) -> None:
        self.arrived: i64 = 0
        self.left: i64 = 0
        self.waiting: i64 = 0
        self.wanted: i64 = 0

    def add(self, arrived: i64, left: i64, waiting: i64, unsettled: i64) -> None:
        """Add a queue whose consumers hurry."""
        self.arrived += arrived
        self.left += left
        self.waiting += waiting
        self.wanted += unsettled


@final
class Sight:
    """What is seen of a queue that is led here, from one look to the next.

    Args:
        last_id: id of the message that came last.
        ready: messages that are ready.
    """

    def __init__(self, last_id: i64, ready: i64) -> None:
        self._last_id = last_id
        self._ready = ready
        self._usual: i64 = 0  # messages that leave between two looks, in SMOOTHING parts of one

    def look(
        self,
        last_id: i64,
        ready: i64,
        unsettled: i64,
        elapsed_us: i64,
        turn_us: i64,
        round_: Round,
    ) -> None:
        """Look again, and add the queue to the round if its consumers hurry.

        Args:
            last_id: id of the message that came last.
            ready: messages that are ready.
            unsettled: messages at consumers.
            elapsed_us: since the last look.
            turn_us: length of a turn of the loop.
            round_: to add to.
        """
        arrived = last_id - self._last_id
        left = arrived + self._ready - ready
        self._last_id = last_id
        self._ready = ready
        # Consumers acknowledge in bursts: what is usual tells how fast they are.
        self._usual += left - self._usual // SMOOTHING
        if left > 0 and unsettled * SMOOTHING * elapsed_us <= self._usual * ROUND_TURNS * turn_us:
            round_.add(arrived, left, ready, unsettled)


@final
class TurnBudget:
    """The budget of a turn.

    Attributes:
        share: of the limits that may be passed on in a turn, at most FULL.
    """

    def __init__(self, limits: FlowLimits) -> None:
        self.share: i64 = FULL
        self._limits = limits

    def messages(self) -> i64:
        """Return how many publishes may be passed on in a turn."""
        limits = self._limits
        full = limits.scaled(limits.turn_messages)
        return min(max(full * self.share // FULL, TURN_MESSAGES_MIN), full)

    def octets(self) -> i64:
        """Return the same in octets."""
        limits = self._limits
        full = limits.scaled(limits.turn_octets)
        return max(full * self.share // FULL, 1)

    def look(self, round_: Round, passed: i64, turn_us: i64) -> None:
        """Adapt it; called a few times a second while publishes wait for it.

        Args:
            round_: what the queues did since the last look.
            passed: publishes passed on in a turn, on average since then.
            turn_us: length of a turn, likewise.
        """
        share = self.share
        full = self._limits.scaled(self._limits.turn_messages)
        used = min(max(passed, TURN_MESSAGES_MIN) * FULL // full, share)
        waits = round_.waiting > 2 * round_.wanted and round_.arrived > 0
        behind = waits and turn_us >= TURN_US_SHORT
        if behind:
            # Fewer than leave, so that what waits goes as well; by three quarters at most at once.
            aim = used * round_.left * DRAIN_PERCENT // (round_.arrived * 100)
            share = min(share, max(aim, used // 4))
        if turn_us > TURN_US_MAX:
            share = min(share, max(used * TURN_US_MAX // turn_us, used // 4))
        elif not behind:
            share += max(share // GROWTH_STEPS, FULL // 1000)
        self.share = min(max(share, TURN_MESSAGES_MIN * FULL // full), FULL)
