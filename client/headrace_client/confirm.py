"""Publisher confirm of a message."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from headrace_client.error import HeadraceError


class Confirm:
    """Awaited, it returns once the message is safe, and raises what became of it otherwise.

    Nobody has to wait: what is refused and was not asked about is raised by `Publisher.flush`.
    """

    __slots__ = ("_done", "_error", "_seen", "_waiters", "resent", "sequence")

    def __init__(self, sequence: int) -> None:
        # number of the message: 1, 2, 3, ... of its publisher, or what was given
        self.sequence = sequence
        # it was sent again after its stream was lost. Without a publisher id it may be in its
        # queues twice then.
        self.resent = False
        self._done = False
        self._seen = False
        self._error: HeadraceError | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def is_done(self) -> bool:
        """True if the outcome of the message is known."""
        return self._done

    @property
    def error(self) -> HeadraceError | None:
        """Error of a message that is not safe; None as long as that is not known."""
        self._seen = self._seen or self._error is not None
        return self._error

    @property
    def is_seen(self) -> bool:
        """True if the error was asked for."""
        return self._seen

    def __await__(self) -> Generator[Any, None, None]:
        if not self._done:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            self._seen = True
            raise self._error

    def settle(self, error: HeadraceError | None = None) -> None:
        """Say what became of the message, once."""
        assert not self._done, "a message is answered once"
        self._done = True
        self._error = error
        if self._waiters is not None:
            waiters, self._waiters = self._waiters, None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
