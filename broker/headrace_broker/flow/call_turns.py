"""Turns of calls: requests over HTTP and gRPC, which come as tasks and not as input of a socket.

A call is a row of steps, each from where its task is woken to where it waits again. All calls of a
node together are one more client of the budget for methods (`effort.py`), and the connections that
they came by take turns in it. So a turn of the loop holds a few steps, whoever has how many calls;
the others wait for the next turn. A long step is known only when it is over: then all calls pause
for as long as it took, so that what it has kept waiting is done first.

Source: Shreedhar, Varghese, "Efficient Fair Queuing Using Deficit Round-Robin".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from headrace_broker.flow.effort import Effort, EffortTurns
from headrace_broker.model.limits import (
    CALL_DEBT_UNITS_MAX,
    CALL_STEP_PAUSE_US_MAX,
    CALL_STEP_US,
    CALL_UNITS,
    CALLS_WAITING_MAX,
    METHOD_UNITS,
)

Go = Callable[[], bool]  # lets a step begin; False when its call has ended meanwhile


@final
class CallClient:
    """A connection by which calls come."""

    def __init__(self) -> None:
        self.calls: i64 = 0  # under way, or waiting to begin
        self.waiting: i64 = 0  # of those, how many wait to begin
        self.step_us: i64 = 0  # what a step of its calls has taken of late, in microseconds
        self.credit: i64 = 0  # units left in its turn; below 0 for what a step took beyond
        self.begin: deque[Go] = deque()
        self.go_on: deque[Go] = deque()
        self.in_line = False

    @property
    def step_units(self) -> i64:
        """Units that a step is taken to cost before it is known."""
        return max(self.step_us, METHOD_UNITS)


@final
class CallTurns:
    """The calls of a node."""

    def __init__(
        self,
        turns: EffortTurns,  # the budget of a turn, shared with the connections of AMQP
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self.waiting: i64 = 0  # calls that wait to begin
        self.refused: i64 = 0  # calls that found no room to wait
        self._effort = Effort(turns, of_calls=True)
        self._call_soon = call_soon  # has a function called in the next turn of the loop
        self._call_later = call_later  # has a function called in so many seconds
        self._line: deque[CallClient] = deque()
        self._asked = False
        self._pausing = False

    @property
    def is_free(self) -> bool:
        """True if a step may begin at once: nothing waits, and this turn's budget is not spent."""
        return not self._line and not self._pausing and not self._effort.is_spent

    def spend(self, units: i64) -> None:
        """A step begins that is taken to cost so much."""
        self._effort.spend(units)

    def has_room(self, client: CallClient) -> bool:
        """Return whether one more call of a connection may wait, and count it where it may not.

        Each connection may have as many waiting as there is still room for, so that there always is
        some for those that have none.

        Source: Choudhury, Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet
        Switches".
        """
        if client.waiting < CALLS_WAITING_MAX - self.waiting:
            return True
        self.refused += 1
        return False

    def wait_to_begin(self, client: CallClient, go: Go) -> None:
        """Begin a call when its connection's turn comes."""
        client.waiting += 1
        self.waiting += 1
        client.begin.append(go)
        self._wait(client)

    def began(self, client: CallClient) -> None:
        """A call that waited has begun, or has ended before it could."""
        client.waiting -= 1
        self.waiting -= 1

    def wait_to_go_on(self, client: CallClient, go: Go) -> None:
        """Begin a call's next step when its connection's turn comes, before calls that wait.

        What has begun is finished first: it holds memory.
        """
        client.go_on.append(go)
        self._wait(client)

    def took(self, client: CallClient, microseconds: i64) -> None:
        """A step is over that took so long."""
        units = client.step_units
        client.credit -= max(microseconds, units)
        client.step_us += (microseconds - client.step_us) // 4
        if microseconds > units:
            self._effort.spend(microseconds - units)
        if microseconds > CALL_STEP_US and not self._pausing:
            self._pausing = True
            pause_us = min(microseconds, CALL_STEP_PAUSE_US_MAX)
            self._call_later(int(pause_us) / 1_000_000, self._pause_over)

    def _pause_over(self) -> None:
        self._pausing = False
        self._serve()

    def _wait(self, client: CallClient) -> None:
        self._effort.defer()
        if not client.in_line:
            client.in_line = True
            self._line.append(client)
        self._ask()

    def _ask(self) -> None:
        if not self._asked and not self._pausing:
            self._asked = True
            self._call_soon(self._serve_soon)

    def _serve_soon(self) -> None:
        self._asked = False
        self._serve()

    def _serve(self) -> None:
        """Begin steps, connection by connection, as far as this turn allows."""
        while self._line and not self._pausing and not self._effort.is_spent:
            client = self._line.popleft()
            client.credit = min(max(client.credit, -CALL_DEBT_UNITS_MAX) + CALL_UNITS, CALL_UNITS)
            if client.credit <= 0 or self._one(client):
                self._line.append(client)
            else:
                client.in_line = False
        if self._line:
            self._ask()

    def _one(self, client: CallClient) -> bool:
        """Begin a step of a connection; False when none waits."""
        while client.go_on:
            go = client.go_on.popleft()
            if go():
                self._effort.spend(client.step_units)
                return True
        while client.begin:
            go = client.begin.popleft()
            if go():
                self._effort.spend(client.step_units + CALL_UNITS)
                return True
        return False
