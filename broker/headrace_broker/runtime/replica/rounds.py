"""Batching of non-urgent commands at a queue's leader into rounds.

Each round through a replicated log costs every replica a turn of its loop, two frames and a sync,
with one command in it as with a hundred. Settles, and publishes whose confirms the queue defers
anyway, therefore wait while ROUNDS_UNDER_WAY rounds of their kind are under way, and leave together
when the oldest of these is applied. At a queue with little to do nothing waits.

Source: Nagle, "Congestion Control in IP/TCP Internetworks", RFC 896, which does this to segments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from headrace_broker.core.queue.command.command import (
    ACQUIRE,
    CONFIGURE,
    ENQUEUE,
    FORGET,
    NODE_DOWN,
    SETTLE,
    TICK,
)
from headrace_broker.model.limits import ROUND_BYTES, ROUNDS_UNDER_WAY


@final
class Rounds:
    """The rounds of one leadership.

    What waits is what its sessions keep until it is answered: nothing is lost with it.
    """

    def __init__(self, propose: Callable[[int, bytes], None]) -> None:
        # commands that the log has taken and that are not applied, but for the leader's own
        self.under_way: i64 = 0
        self._settles = _Lane(propose)
        self._publishes = _Lane(propose)

    def keeps(self, session: int, data: bytes, saturated: bool) -> bool:
        """Return whether a command was kept for a later round; otherwise it is to go now.

        What goes now does not overtake what waits of its lane: that goes before it.
        """
        kind = _kind(data)
        if kind == SETTLE:
            return self._settles.keeps(session, data)
        if kind == ENQUEUE and saturated:
            return self._publishes.keeps(session, data)
        self.precede(data)
        return False

    def precede(self, data: bytes) -> None:
        """Send what waits before a command that is to go now, whatever it is."""
        if _kind(data) == ENQUEUE:
            self._publishes.release()
        else:
            self.release()

    def release(self) -> None:
        """Let everything that waits go."""
        self._publishes.release()
        self._settles.release()

    def proposed(self, data: bytes) -> None:
        """The log has taken a command, given without stamp."""
        kind = _kind(data)
        if kind == SETTLE:
            self._settles.proposed += 1
        elif kind == ENQUEUE:
            self._publishes.proposed += 1
        if not _is_of_leader(kind):
            self.under_way += 1

    def applied(self, kind: i64) -> None:
        """Note that a command of that kind was applied: the next round may leave."""
        if kind == SETTLE:
            self._settles.take_applied()
        elif kind == ENQUEUE:
            self._publishes.take_applied()
        if self.under_way > 0 and not _is_of_leader(kind):
            self.under_way -= 1


@final
class _Lane:
    """Commands of one kind."""

    def __init__(self, propose: Callable[[int, bytes], None]) -> None:
        self.proposed: i64 = 0  # how many the log has taken, whether they waited or not
        self._propose = propose
        self._applied: i64 = 0
        self._ends: list[int] = []  # of rounds under way: how many had been proposed
        self._kept: list[tuple[int, bytes]] = []
        self._kept_bytes: i64 = 0

    def keeps(self, session: int, data: bytes) -> bool:
        """As `Rounds.keeps`."""
        if self._applied >= self.proposed:
            self._ends.clear()  # a round that the log did not take ends here
        if len(self._ends) < ROUNDS_UNDER_WAY:
            self._ends.append(self.proposed + 1)
            return False
        self._kept.append((session, data))
        self._kept_bytes += len(data)
        if self._kept_bytes >= ROUND_BYTES:
            self.release()
        return True

    def release(self) -> None:
        """Let all that is kept go."""
        if not self._kept:
            return
        kept, self._kept = self._kept, []
        self._kept_bytes = 0
        for session, data in kept:
            self._propose(session, data)
        self._ends.append(self.proposed)

    def take_applied(self) -> None:
        """One more was applied, in whatever order: rounds end by count."""
        self._applied = min(self._applied + 1, self.proposed)
        ends = self._ends
        while ends and ends[0] <= self._applied:
            del ends[0]
        if len(ends) < ROUNDS_UNDER_WAY:
            self.release()


def _is_of_leader(kind: i64) -> bool:
    return kind in (CONFIGURE, TICK, ACQUIRE, FORGET, NODE_DOWN)


def _kind(data: bytes) -> i64:
    return data[0] if data else 0
