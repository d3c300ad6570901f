"""Limit on publishes to a queue that falls behind on a busy node: as many as leave it.

Consumers take part in the same turns of the loop as publishers, with a prefetch where publishers
need none: whoever sends more gets more of a node that is busy, and queues grow for as long as that
lasts. So each queue's leader compares what comes with what leaves. While the queue grows and its
consumers hurry, it tells the nodes how many messages a second they may let in. That figure is
divided among them by the publishers that wait there, and rises until together they bring what
leaves: those that want less than their part leave the rest to the others.

A consumer that is slow itself is no reason, nor is a queue without one: what comes in does not
change how fast those go.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.model.limits import OUTFLOW_MIN

SECOND_US: Final = 1_000_000
ROUND_TURNS: Final = 16  # turns from a delivery to the one that its acknowledgement makes room for:
# gateway, client, gateway, leader, followers, disk, leader; as many again where they do not match
SMOOTHING: Final = 8  # looks over which what leaves a queue is averaged
SHORT_SMOOTHING: Final = 4  # likewise what comes; it has to be seen soon what a bound does
DRAIN_PERCENT: Final = 85  # of what leaves may come in, while too much waits
DEEP: Final = 2  # times what consumers hold: more than that need not wait for them
SPARE: Final = 2  # times what comes or leaves: one node alone never needs more
CALM_LOOKS: Final = 30  # at which a queue is not behind, one after the other, until its bound goes
BEHIND_LOOKS: Final = 3  # in a row before there is a bound: acknowledgements come in bursts
STILL_LOOKS: Final = 20  # without anything that comes or leaves: longer than a slow disk takes
RATE_MAX: Final = 10_000_000  # messages a second; only so that products stay within 64 bits
LOOK_US_MAX: Final = 10_000_000  # between looks; likewise
PREFETCH_MAX: Final = 65535  # what a client can ask for


@final
class Outflow:
    """One queue, as its leader sees it from one look to the next."""

    def __init__(self, last_id: i64, ready: i64) -> None:
        # messages a second to be divided among the nodes, 0 for any number; more than they bring
        # where some leave theirs
        self.bound: i64 = 0
        self.is_still = False  # for a while nothing has come or left
        self._last_id = last_id  # id of the message that came last
        self._ready = ready  # messages that are ready
        self._left: i64 = 0  # a second, on average
        self._came: i64 = 0  # likewise
        self._still: i64 = 0  # looks since anything came or left
        self._calm: i64 = 0  # looks at which it was not behind, one after the other
        self._behind: i64 = 0  # looks at which it was, one after the other

    def poll(
        self,
        last_id: i64,  # id of the message that came last
        ready: i64,
        unsettled: i64,
        consumers: i64,
        elapsed_us: i64,  # since the last look
        turn_us: i64,
        busy: bool,
        nodes: i64,  # how many may let in something
    ) -> None:
        """Take a sample, and set the bound."""
        elapsed = min(max(elapsed_us, 1), LOOK_US_MAX)
        turn = min(turn_us, SECOND_US)
        came = max(last_id - self._last_id, 0)
        left = max(came + self._ready - ready, 0)
        self._last_id = last_id
        self._ready = ready
        if came == 0 and left == 0:
            self._stand_still()
            return
        self._still = 0
        self.is_still = False
        self._left += (_rate(left, elapsed) - self._left) // SMOOTHING
        self._came += (_rate(came, elapsed) - self._came) // SHORT_SMOOTHING
        behind = (
            busy
            and self._came > 0
            and ready > DEEP * unsettled + self._left * elapsed // SECOND_US
            and self._hurries(unsettled, consumers, turn)
        )
        self._behind = self._behind + 1 if behind else 0
        if self._behind >= BEHIND_LOOKS or (behind and self.bound > 0):
            self._restrain()
        elif not behind and self.bound > 0:
            self._relent()
        if self.bound > 0:
            self._keep_below(max(nodes, 1))

    def _stand_still(self) -> None:
        """The log is slow, which says nothing about consumers, or everybody has gone."""
        self._still += 1
        if self._still >= STILL_LOOKS:
            self.is_still = True
            self.bound = 0
            self._left = 0
            self._came = 0

    def _hurries(self, unsettled: i64, consumers: i64, turn_us: i64) -> bool:
        """Return whether turns explain how long consumers take.

        It holds where one takes less than ROUND_TURNS for all that it has, or less than a turn for
        each message: it has a processor that is as busy as this one's.
        """
        if self._left <= 0 or consumers <= 0:
            return False
        each = min(unsettled // consumers, PREFETCH_MAX)
        return unsettled * SECOND_US <= self._left * max(ROUND_TURNS, each) * turn_us

    def _restrain(self) -> None:
        aim = max(self._left * DRAIN_PERCENT // 100, 1)
        self._calm = 0
        if self.bound == 0:
            self._came = aim  # what came before says nothing about the bound
        elif self._came > aim:
            self.bound = max(self.bound * aim // self._came, self.bound * 3 // 4)
        else:
            self.bound += self.bound // 32 + 1
        self.bound = max(self.bound, aim)

    def _relent(self) -> None:
        self._calm += 1
        if self._calm >= CALM_LOOKS:
            self.bound = 0
        else:
            self.bound = max(self.bound + self.bound // 8 + 1, self._left)

    def _keep_below(self, nodes: i64) -> None:
        """Limit the bound to SPARE times the share of one of several equal nodes.

        More would let in too much when what else bounds publishers does so no more.
        """
        most = SPARE * max(self._came, self._left) * nodes
        self.bound = max(min(self.bound, most), OUTFLOW_MIN * nodes)


def _rate(count: i64, elapsed_us: i64) -> i64:
    return min(count, RATE_MAX) * SECOND_US // elapsed_us
