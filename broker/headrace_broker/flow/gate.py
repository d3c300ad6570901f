"""Gates: where publishes that must wait stand, and in which order they go on."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import final

from mypy_extensions import i64, mypyc_attr

from headrace_broker.flow.account import Account


@mypyc_attr(allow_interpreted_subclasses=True)
class Waiter:
    """Somebody who holds publishes: a channel, a publish stream. It waits at one gate at a time.

    Attributes:
        account: whose publishes they are.
    """

    account: Account

    @abstractmethod
    def admit(self, octets: i64) -> i64:
        """Pass on held publishes, the oldest first, while nothing stops them.

        Before it returns it waits again (`Gate.wait`, at this or another gate) if some are left.

        Args:
            octets: stop once so many are passed on; at least one batch goes.

        Returns:
            The octets that were passed on, 0 when another limit stops it.
        """


@final
class Gate:
    """A limit that several publishers share.

    Attributes:
        limit: a LIMIT constant of `model.flow`.
        group: the queue it belongs to, 0 for the whole node.
        is_open: nobody needs to wait.
    """

    def __init__(self, limit: int, group: int) -> None:
        self.limit = limit
        self.group = group
        self.is_open = True
        self._waiting: deque[Waiter] = deque()

    @property
    def waiting_count(self) -> int:
        """How many wait here."""
        return len(self._waiting)

    def wait(self, waiter: Waiter) -> None:
        """Wait here; it may stand here once."""
        self._waiting.append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Wait no more; one who does not is ignored."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def serve(self, octets: i64) -> i64:
        """Let waiters pass, in fair shares, until so many octets have gone or nobody may.

        Returns:
            The octets that have gone.
        """
        gone: i64 = 0
        for _ in range(len(self._waiting)):
            if gone >= octets or not self._waiting:
                break
            gone += self._waiting.popleft().admit(octets - gone)
        return gone
