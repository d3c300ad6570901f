"""Order of password hashing: fair by network and by user, so guessers do not delay others.

A turn is given in turns to the network and to the user that had none for longest, so that neither
many networks that guess one user's password nor one network that guesses those of many makes others
wait for all of them. Before both come users who have logged in from their address before. Networks
from which many log-ins failed get a turn every now and then only: hashing takes the processors that
everybody else needs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable

from headrace_broker.model.limits import (
    LOGIN_PLACES_MAX,
    LOGIN_SUSPECT_PAUSE_SECONDS,
    LOGIN_SUSPECT_WAITING_MAX,
    LOGINS_CHECKED_MAX,
    LOGINS_WAITING_MAX,
    LOGINS_WAITING_NETWORK_MAX,
)


class CrowdedError(Exception):
    """Too many log-ins wait already; this one may come again later."""


class _Waiter:
    """A log-in that waits for its turn."""

    __slots__ = ("before", "network", "number", "suspect", "turn", "user")

    def __init__(self, number: int, network: str, user: str, before: bool, suspect: bool) -> None:
        self.number = number
        self.network = network
        self.user = user
        self.before = before
        self.suspect = suspect and not before
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Served:
    """Times of last turns; those of longest ago are forgotten, and come first."""

    def __init__(self) -> None:
        self._at: OrderedDict[str, float] = OrderedDict()

    def at(self, name: str) -> float:
        return self._at.get(name, -1.0)

    def serve(self, name: str, at: float) -> None:
        self._at[name] = at
        self._at.move_to_end(name)
        if len(self._at) > LOGIN_PLACES_MAX:
            self._at.popitem(last=False)


class LoginTurns:
    """Turns of password checks, LOGINS_CHECKED_MAX at once.

    Args:
        clock: seconds of a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._free = LOGINS_CHECKED_MAX
        self._waiting: dict[int, _Waiter] = {}
        self._networks = _Served()
        self._users = _Served()
        self._suspects = _Served()  # in seconds
        self._number = 0
        self._turns = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def turn(
        self, network: str, user: str, before: bool = False, suspect: bool = False
    ) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the end of the block.

        Args:
            network: where it comes from.
            user: who it says to be.
            before: this user has logged in from there before.
            suspect: many log-ins failed there.

        Raises:
            CrowdedError: too many wait already.
        """
        self._check_room(network, before, suspect)
        self._number += 1
        waiter = _Waiter(self._number, network, user, before, suspect)
        self._waiting[waiter.number] = waiter
        self._give()
        try:
            await waiter.turn
        except asyncio.CancelledError:
            self._waiting.pop(waiter.number, None)
            if waiter.turn.done() and not waiter.turn.cancelled():
                self._end()
            raise
        try:
            yield
        finally:
            self._end()

    def _check_room(self, network: str, before: bool, suspect: bool) -> None:
        same = sum(each.network == network for each in self._waiting.values())
        most = LOGIN_SUSPECT_WAITING_MAX if suspect else LOGINS_WAITING_NETWORK_MAX
        if len(self._waiting) >= LOGINS_WAITING_MAX or (same >= most and not before):
            raise CrowdedError

    def _end(self) -> None:
        self._free += 1
        self._give()

    def _give(self) -> None:
        """Give the turns that are free."""
        while self._free and self._waiting:
            found = self._next()
            if found is None:
                return
            del self._waiting[found.number]
            self._turns += 1
            self._networks.serve(found.network, self._turns)
            self._users.serve(found.user, self._turns)
            if found.suspect:
                self._suspects.serve(found.network, self._clock())
            if not found.turn.done():
                self._free -= 1
                found.turn.set_result(None)

    def _next(self) -> _Waiter | None:
        """Return the next in turn, None while all have to wait; then a timer checks again."""
        now = self._clock()
        due = [(self._due(each), each) for each in self._waiting.values()]
        ready = [each for at, each in due if at <= now]
        if ready:
            return min(ready, key=self._by_network if self._turns % 2 else self._by_user)
        if self._timer is None:
            delay = min(at for at, _ in due) - now
            self._timer = asyncio.get_running_loop().call_later(delay, self._again)
        return None

    def _again(self) -> None:
        self._timer = None
        self._give()

    def _due(self, waiter: _Waiter) -> float:
        if not waiter.suspect:
            return 0.0
        served = self._suspects.at(waiter.network)
        return served + LOGIN_SUSPECT_PAUSE_SECONDS if served >= 0 else 0.0

    def _by_network(self, waiter: _Waiter) -> tuple[bool, float, float, int]:
        network, user = self._networks.at(waiter.network), self._users.at(waiter.user)
        return (not waiter.before, network, user, waiter.number)

    def _by_user(self, waiter: _Waiter) -> tuple[bool, float, float, int]:
        network, user = self._networks.at(waiter.network), self._users.at(waiter.user)
        return (not waiter.before, user, network, waiter.number)
