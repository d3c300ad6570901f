"""Feed of open views: the cluster is read once a second for all of them.

Without subscribers nothing is asked and nothing computed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any, Final, NamedTuple, Protocol

from headrace_broker.management.http.access import Caller
from headrace_broker.management.page.view_state import ViewState
from headrace_broker.model.limits import PAGE_USER_VIEWERS_MAX, PAGE_VIEWERS_MAX

SECONDS_MIN: Final = 1.0  # between looks
SECONDS_QUICK: Final = 0.2  # between rounds with a new subscriber
SECONDS_MAX: Final = 10.0  # between looks, however long one takes
REST: Final = 9  # times as long as a look has kept the node busy, the next one waits

log = logging.getLogger("headrace.http")


class View(NamedTuple):
    """Selection of objects that a page shows."""

    kind: str  # name of a kind of view
    vhost: str = ""  # of the queue; "" where there is none
    name: str = ""  # of what is looked at, or what names have to hold; "" for all


class ViewData(Protocol):
    """Data of one collection, for all views."""

    async def find(self, view: View, who: Caller) -> Callable[[], Mapping[str, Any]]:
        """Collect a view's data; return a function that makes its values for a user."""


class FeedOverError(Exception):
    """The feed has ended."""


class TooManyError(Exception):
    """Too many look already; the text says who."""


class Place:
    """A view for all users with the same rights."""

    def __init__(self, view: View, who: Caller) -> None:
        self.view = view
        self.who = who
        self.board = ViewState()
        self.viewers = 0


class ViewSubscriber:
    """Subscriber of some views."""

    def __init__(self, user: str, places: tuple[Place, ...]) -> None:
        self.user = user
        self.places = places  # the views as they see them


class Feed:
    """Boards of all subscribed views, kept up to date."""

    def __init__(
        self, look: Callable[[], ViewData], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look = look  # takes a look at the cluster; what it returns asks at its first use
        self._clock = clock  # seconds of a clock that never goes back
        self._places: dict[tuple[View, str], Place] = {}
        self._seats: dict[int, ViewSubscriber] = {}
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Condition()
        self._joined = asyncio.Event()
        self.looks = 0

    def join(self, who: Caller, views: tuple[View, ...]) -> ViewSubscriber:
        """Look at views from now on; TooManyError where there are as many viewers as may be."""
        if len(self._seats) >= PAGE_VIEWERS_MAX:
            raise TooManyError(f"this node shows its page {PAGE_VIEWERS_MAX} times already")
        own = sum(1 for seat in self._seats.values() if seat.user == who.name)
        if own >= PAGE_USER_VIEWERS_MAX:
            raise TooManyError(f"user '{who.name}' looks at {PAGE_USER_VIEWERS_MAX} pages already")
        seat = ViewSubscriber(who.name, tuple(self._place(view, who) for view in views))
        self._seats[id(seat)] = seat
        self._joined.set()
        if self._task is None:
            self._task = asyncio.create_task(
                self._run(),
                name="page-feed",
                context=Context(),  # for all who look
            )
        return seat

    def leave(self, seat: ViewSubscriber) -> None:
        """Unsubscribe."""
        del self._seats[id(seat)]
        for place in seat.places:
            place.viewers -= 1
            if place.viewers == 0:
                del self._places[place.view, _sees(place.who)]

    async def wait(self, looks: int) -> int:
        """Wait for a look after this one; FeedOverError where none comes: join again."""
        async with self._news:
            await self._news.wait_for(lambda: self.looks != looks or self._task is None)
        if self._task is None:
            raise FeedOverError
        return self.looks

    async def stop(self) -> None:
        """Stop the feed, whatever subscribers there are."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
            await self._tell()

    def _place(self, view: View, who: Caller) -> Place:
        key = (view, _sees(who))
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = Place(view, who)
        place.viewers += 1
        return place

    async def _run(self) -> None:
        """Run while there are subscribers; a later one starts it again."""
        try:
            while self._seats:
                busy = await self._update()
                await self._rest(busy)
        except Exception:
            log.exception("web page feed failed; its viewers reconnect")
        finally:
            self._task = None
        await self._tell()

    async def _update(self) -> float:
        """Bring all boards up to date; returns for how many seconds that kept the node busy."""
        self._joined.clear()
        sight = self._look()
        places = list(self._places.values())
        makers = await asyncio.gather(*(sight.find(each.view, each.who) for each in places))
        busy = 0.0
        for place, make in zip(places, makers, strict=True):
            began = self._clock()
            place.board.update(make())
            busy += self._clock() - began
            await asyncio.sleep(0)
        self.looks += 1
        await self._tell()
        return busy

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _rest(self, busy: float) -> None:
        """Wait for the next round: a second or more, less for a new subscriber."""
        seconds = min(max(SECONDS_MIN, REST * busy), SECONDS_MAX)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.sleep(SECONDS_QUICK)
                await self._joined.wait()


def _sees(who: Caller) -> str:
    """Return the key of users who see the same."""
    return "" if who.monitors else f"user {who.name}"
