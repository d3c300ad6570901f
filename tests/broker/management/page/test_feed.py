"""One collection for all open views, and none without one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from headrace_broker.management.http.access import Caller
from headrace_broker.management.page import feed as feed_module
from headrace_broker.management.page.feed import Feed, FeedOverError, TooManyError, View
from headrace_broker.model.limits import PAGE_USER_VIEWERS_MAX, PAGE_VIEWERS_MAX

ADMIN = Caller("root", ("administrator",))
OTHER = Caller("mon", ("monitoring",))
USER = Caller("app", ("management",))


class World:
    """Counts collections, and their questions."""

    def __init__(self) -> None:
        self.looks = 0
        self.asked: list[tuple[str, str]] = []
        self.fault = False

    def poll(self) -> World:
        self.looks += 1
        return self

    async def find(self, view: View, who: Caller) -> Callable[[], dict[str, Any]]:
        self.asked.append((view.kind, who.name))
        if self.fault:
            raise ValueError("a fault")
        looks = self.looks
        return lambda: {"looks": looks, "view": view.kind}


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SECONDS_MIN", "SECONDS_QUICK", "REST"):
        monkeypatch.setattr(feed_module, name, 0)


def run(test: Callable[[Feed, World], Coroutine[Any, Any, None]]) -> None:
    async def all_of_it() -> None:
        world = World()
        feed = Feed(world.poll)
        try:
            await test(feed, world)
        finally:
            await feed.stop()

    asyncio.run(all_of_it())


def test_nothing_is_looked_at_while_nobody_is_there():
    async def check(feed: Feed, world: World) -> None:
        await asyncio.sleep(0)
        assert world.looks == 0
        seat = feed.join(ADMIN, (View("queues"),))
        await feed.wait(feed.looks)
        feed.leave(seat)
        with contextlib.suppress(FeedOverError):
            while True:
                await feed.wait(feed.looks)
        looks = world.looks
        await asyncio.sleep(0)
        assert world.looks == looks

    run(check)


def test_who_may_see_the_same_shares_a_board():
    async def check(feed: Feed, world: World) -> None:
        views = (View("cluster"), View("queues"))
        first, second = feed.join(ADMIN, views), feed.join(OTHER, views)
        third = feed.join(USER, views)
        await feed.wait(feed.looks)
        assert first.places[1].board is second.places[1].board
        assert third.places[1].board is not first.places[1].board
        asked = world.asked[:4]
        assert sorted(asked) == [
            *(("cluster", "app"), ("cluster", "root"), ("queues", "app"), ("queues", "root"))
        ]
        feed.leave(first)
        await feed.wait(feed.looks)
        assert second.places[0].board.version > 1

    run(check)


def test_a_fault_ends_all_seats_and_who_joins_again_begins_anew(caplog):
    async def check(feed: Feed, world: World) -> None:
        world.fault = True
        seat = feed.join(ADMIN, (View("queues"),))
        with pytest.raises(FeedOverError):
            await feed.wait(feed.looks)
        feed.leave(seat)
        world.fault = False
        feed.join(ADMIN, (View("queues"),))
        await feed.wait(feed.looks)

    run(check)
    assert "web page feed failed" in caplog.text


def test_who_waits_hears_that_the_node_stops():
    async def check(feed: Feed, world: World) -> None:
        feed.join(ADMIN, (View("queues"),))
        await feed.wait(feed.looks)
        await feed.stop()
        with pytest.raises(FeedOverError):
            await feed.wait(feed.looks)

    run(check)


def test_viewers_are_bounded():
    async def check(feed: Feed, world: World) -> None:
        seats = [feed.join(ADMIN, (View("queues"),)) for _ in range(PAGE_USER_VIEWERS_MAX)]
        with pytest.raises(TooManyError, match="user 'root' looks at 16 pages already"):
            feed.join(ADMIN, (View("queues"),))
        feed.leave(seats[0])
        feed.join(ADMIN, (View("queues"),))
        for number in range(PAGE_VIEWERS_MAX - PAGE_USER_VIEWERS_MAX):
            feed.join(Caller(f"u{number}", ("management",)), (View("queues"),))
        with pytest.raises(TooManyError, match="this node shows its page 64 times already"):
            feed.join(OTHER, (View("queues"),))

    run(check)


def test_nobody_s_name_is_on_what_is_looked_up_for_all(monkeypatch):
    who: ContextVar[str] = ContextVar("who", default="nobody")
    names: list[str] = []

    async def check(feed: Feed, world: World) -> None:
        find = world.find

        async def look(view: View, caller: Caller) -> Callable[[], dict[str, Any]]:
            names.append(who.get())
            return await find(view, caller)

        monkeypatch.setattr(world, "find", look)
        who.set("root")
        feed.join(ADMIN, (View("queues"),))
        await feed.wait(feed.looks)
        assert set(names) == {"nobody"}

    run(check)
