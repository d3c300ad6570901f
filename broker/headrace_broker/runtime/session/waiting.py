"""Waiters for a session's queue to answer everything that was sent."""

from __future__ import annotations

import asyncio
from typing import final

from mypy_extensions import i64

from headrace_broker.runtime.session.lane import ControlLane, PublishLane


@final
class Waiter:
    """Waits for one moment."""

    def __init__(self, publish: i64, control: i64, over: asyncio.Future[None]) -> None:
        self.publish = publish  # number of the last publish to be answered
        self.control = control  # of the last control command
        self.over = over  # resolved when they are


@final
class Waiting:
    """The waiters of a session; a channel has one at a time."""

    def __init__(self, publishes: PublishLane, controls: ControlLane) -> None:
        self._publishes = publishes
        self._controls = controls
        self._waiters: list[Waiter] = []

    def begin(self) -> asyncio.Future[None]:
        """Return a future that ends when everything sent up to now is answered."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        publish = self._publishes.next_number - 1
        self._waiters.append(Waiter(publish, self._controls.next_number - 1, over))
        self.poll()
        return over

    def poll(self) -> None:
        """Release waiters whose moment has come."""
        if not self._waiters:
            return
        publishes = self._publishes.pending
        controls = self._controls.pending
        publish = publishes[0].first if publishes else self._publishes.next_number
        control = controls[0].number if controls else self._controls.next_number
        waiters = self._waiters
        self._waiters = []
        for waiter in waiters:
            if waiter.publish < publish and waiter.control < control:
                _release(waiter)
            else:
                self._waiters.append(waiter)

    def end(self) -> None:
        """Release all: the session or its queue is gone."""
        waiters = self._waiters
        self._waiters = []
        for waiter in waiters:
            _release(waiter)


def _release(waiter: Waiter) -> None:
    if not waiter.over.done():
        waiter.over.set_result(None)
