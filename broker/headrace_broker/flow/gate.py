"""Gates: waiting publishes and their order.

Accounts take turns by deficit round robin over bytes: each turn gives an account its quantum
times its weight, and what it takes beyond that it owes to its next turns. All waiters of one
account (the channels of a connection) share that account's turn, so more channels get no more.

Source: Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit Round-Robin"; here a batch may
exceed the deficit, which is owed then ("surplus" round robin).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from headrace_broker.flow.account import Account

QUANTUM_BYTES: Final = 32 << 10  # of an account of weight 1 in its turn; a chunk of small messages


@mypyc_attr(allow_interpreted_subclasses=True)
class Waiter:
    """Holder of waiting publishes: a channel, a publish stream. It waits at one gate at a time."""

    account: Account  # whose publishes they are; the same while it waits

    @abstractmethod
    def admit(self, byte_count: i64) -> i64:
        """Pass on held publishes, the oldest first, while nothing stops them, about `byte_count`.

        Before it returns it waits again (`Gate.wait`, at this or another gate) if some are left. It
        asks gates for `room`, not whether they are open: it has stood in line. Returns the bytes
        passed on, 0 when another limit stops it.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class GateScheduler:
    """Scheduler of gates: serves them later, never within a call that rings."""

    @abstractmethod
    def ring(self, gate: Gate) -> None:
        """Serve `gate` in a turn of its own; it rings once until it is served."""


@final
class _Line:
    """The waiters of one account."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.waiters: dict[Waiter, None] = {}  # in the order in which they came
        self.deficit: i64 = 0  # bytes that may go in this turn; negative ones are owed
        self.has_turn = False  # it was given its quantum and has not used it up

    def begin_turn(self) -> None:
        quantum: i64 = QUANTUM_BYTES * self.account.weight
        self.deficit = min(self.deficit + quantum, quantum)
        self.has_turn = True


@final
class Gate:
    """A limit that several publishers share.

    Its owner says whether there is `room` and serves it when it rings; no waiter starves while
    there is room: a new waiter, or new room with a waiter, rings.
    """

    def __init__(self, limit: int, group: int, bell: GateScheduler | None = None) -> None:
        self.limit = limit  # a LIMIT constant of `model.flow`
        self.group = group  # the queue it belongs to, 0 for the whole node
        self.room = True  # the limit is not reached
        self.overdrawn = False  # exceeded so much that not even those pass who cannot wait
        self.is_open = True  # there is room and nobody waits: what comes anew need not wait either
        self.waiting_count: i64 = 0  # how many wait here
        self._bell = bell
        self._rung = False
        self._serving = False
        self._lines: dict[Account, _Line] = {}
        self._turns: deque[_Line] = deque()

    def set_room(self, room: bool) -> None:
        """Say whether the limit leaves room; those who wait are served in a later turn."""
        self.room = room
        self._changed()

    def wait(self, waiter: Waiter) -> None:
        """Wait here, behind what waits of the same account; one who does already is ignored."""
        line = self._lines.get(waiter.account)
        if line is None:
            line = _Line(waiter.account)
            self._lines[waiter.account] = line
            self._turns.append(line)
        if waiter not in line.waiters:
            line.waiters[waiter] = None
            self.waiting_count += 1
            self._changed()

    def leave(self, waiter: Waiter) -> None:
        """Wait no more; one who does not is ignored."""
        line = self._lines.get(waiter.account)
        if line is not None and waiter in line.waiters:
            self._take(line, waiter)
            if self.waiting_count == 0 and not self._serving:
                self._forget()
            self._changed()

    def waiting_weight(self) -> i64:
        """Sum of the weights of accounts with waiting publishes."""
        weight: i64 = 0
        for line in self._lines.values():
            if line.waiters:
                weight += line.account.weight
        return weight

    def serve(self, byte_count: i64) -> i64:
        """Pass waiters, in fair shares, up to so many bytes; return how many went."""
        self._rung = False
        self._serving = True
        gone: i64 = 0
        idle: i64 = 0  # waiters in a row that came back with nothing done
        while (
            self.room
            and gone < byte_count
            and idle <= self.waiting_count
            and self.waiting_count > 0
        ):
            line = self._next_line()
            waiter = next(iter(line.waiters))
            self._take(line, waiter)
            passed = waiter.admit(min(line.deficit, byte_count - gone))
            line.deficit -= passed
            gone += passed
            if passed > 0:
                idle = 0
            elif waiter in line.waiters:
                idle += 1
                line.has_turn = False  # others first
                self._turns.rotate(-1)
        self._serving = False
        if self.waiting_count == 0:
            self._forget()
        self._changed()
        return gone

    def _next_line(self) -> _Line:
        """Return the line that is next; there is a waiter.

        Lines without waiters go, once they have paid their debt.
        """
        turns = self._turns
        while True:
            line = turns[0]
            if line.has_turn and line.deficit > 0 and line.waiters:
                return line
            if not line.has_turn and line.waiters:
                line.begin_turn()
                if line.deficit > 0:
                    return line
            turns.popleft()
            if not line.waiters and not line.has_turn:
                line.begin_turn()
            line.has_turn = False
            if line.waiters or line.deficit < 0:
                turns.append(line)
            else:
                del self._lines[line.account]

    def _take(self, line: _Line, waiter: Waiter) -> None:
        del line.waiters[waiter]
        self.waiting_count -= 1

    def _forget(self) -> None:
        """Drop all turns, because no account waits any more."""
        self._lines.clear()
        self._turns.clear()

    def _changed(self) -> None:
        waiting = self.waiting_count > 0
        self.is_open = self.room and not waiting
        if self.room and waiting and not self._serving and not self._rung:
            bell = self._bell
            if bell is not None:
                self._rung = True
                bell.ring(self)
