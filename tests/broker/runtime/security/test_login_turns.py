"""Order of password hashing, and refusals without room."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace_broker.model.limits import (
    LOGIN_SUSPECT_PAUSE_SECONDS,
    LOGIN_SUSPECT_WAITING_MAX,
    LOGINS_CHECKED_MAX,
    LOGINS_WAITING_MAX,
    LOGINS_WAITING_NETWORK_MAX,
)
from headrace_broker.runtime.security import login_turns
from headrace_broker.runtime.security.login_turns import CrowdedError, LoginTurns


class World:
    """Log-ins whose looks end when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.turns = LoginTurns(lambda: self.now)
        self.order: list[tuple[str, str]] = []
        self.looks: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self, network: str, user: str, **more: bool) -> asyncio.Task[None]:
        async def log_in() -> None:
            async with self.turns.turn(network, user, **more):
                self.order.append((network, user))
                over = asyncio.Event()
                self.looks.append(over)
                await over.wait()

        task = asyncio.create_task(log_in())
        self.tasks.append(task)
        return task

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def poll(self, count: int = 1) -> None:
        """End so many looks, one after the other."""
        for _ in range(count):
            await self.settle()
            self.looks.pop(0).set()
        await self.settle()

    async def busy(self) -> None:
        """Give all turns to others."""
        for number in range(LOGINS_CHECKED_MAX):
            self.ask(f"busy {number}", f"busy {number}")
        await self.settle()
        self.order.clear()


def run(body: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        async with asyncio.timeout(60):
            await body(world)
        for task in world.tasks:
            task.cancel()
        await asyncio.gather(*world.tasks, return_exceptions=True)

    asyncio.run(main())


@pytest.mark.parametrize(
    "guesser",
    [
        lambda number: ("203.0.113.1", "ann"),
        lambda number: ("203.0.113.1", f"user {number}"),
        lambda number: (f"203.0.113.{number}", "ann"),
    ],
    ids=["one guesses", "one sprays", "many guess one user's"],
)
def test_guessers_queue_behind_each_other(guesser: Callable[[int], tuple[str, str]]) -> None:
    async def body(world: World) -> None:
        await world.busy()
        for number in range(40):
            world.ask(*guesser(number))
        await world.settle()
        world.ask("192.0.2.1", "bob")
        await world.poll(3)
        assert ("192.0.2.1", "bob") in world.order  # before 37 others who came earlier

    run(body)


def test_who_has_logged_in_from_there_before_comes_first() -> None:
    async def body(world: World) -> None:
        await world.busy()
        for number in range(40):
            world.ask(f"203.0.113.{number}", f"user {number}")
        world.ask("203.0.113.1", "bob", before=True, suspect=True)
        await world.poll()
        assert world.order == [("203.0.113.1", "bob")]

    run(body)


def test_all_have_their_turn_in_the_end() -> None:
    async def body(world: World) -> None:
        await world.busy()
        asked = [(f"n{number % 5}", f"u{number % 3}") for number in range(30)]
        for each in asked:
            world.ask(*each)
        await world.poll(30 + LOGINS_CHECKED_MAX)
        assert sorted(world.order) == sorted(asked)
        assert not world.turns._waiting
        assert world.turns._free == LOGINS_CHECKED_MAX

    run(body)


def test_a_suspect_network_gets_a_turn_every_now_and_then(monkeypatch: Any) -> None:
    async def body(world: World) -> None:
        for number in range(4):
            world.ask("203.0.113.1", f"user {number}", suspect=True)
        await world.settle()
        assert len(world.order) == 1  # though there are free turns
        world.ask("192.0.2.1", "bob")
        await world.settle()
        assert world.order[-1] == ("192.0.2.1", "bob")
        await world.poll(2)
        assert len(world.order) == 2
        world.now += LOGIN_SUSPECT_PAUSE_SECONDS
        world.turns._again()
        await world.settle()
        assert len(world.order) == 3

    run(body)


def test_a_suspect_network_is_looked_at_again_by_itself(monkeypatch: Any) -> None:
    monkeypatch.setattr(login_turns, "LOGIN_SUSPECT_PAUSE_SECONDS", 0.001)

    async def body(world: World) -> None:
        loop = asyncio.get_running_loop()
        world.turns._clock = loop.time
        for number in range(5):
            world.ask("203.0.113.1", f"user {number}", suspect=True)
        while len(world.order) < 5:
            await asyncio.sleep(0.001)
            if world.looks:
                await world.poll()

    run(body)


@pytest.mark.parametrize(
    ("suspect", "most"), [(False, LOGINS_WAITING_NETWORK_MAX), (True, LOGIN_SUSPECT_WAITING_MAX)]
)
def test_a_network_has_so_much_room_to_wait_and_others_have_theirs(
    suspect: bool, most: int
) -> None:
    async def body(world: World) -> None:
        await world.busy()
        tasks = [
            world.ask("203.0.113.1", f"user {number}", suspect=suspect) for number in range(most)
        ]
        await world.settle()
        assert not any(task.done() for task in tasks)
        crowded = world.ask("203.0.113.1", "one more", suspect=suspect)
        known = world.ask("203.0.113.1", "bob", before=True, suspect=suspect)
        other = world.ask("192.0.2.1", "bob")
        await world.settle()
        assert isinstance(crowded.exception(), CrowdedError)
        assert not known.done()
        assert not other.done()

    run(body)


def test_all_networks_together_have_a_bound() -> None:
    async def body(world: World) -> None:
        await world.busy()
        for number in range(LOGINS_WAITING_MAX):
            world.turns._waiting[-number - 1] = login_turns._Waiter(
                0, f"{number}", "", False, False
            )
        crowded = world.ask("192.0.2.1", "bob", before=True)
        await world.settle()
        assert isinstance(crowded.exception(), CrowdedError)
        world.turns._waiting.clear()

    run(body)


def test_who_goes_gives_its_turn_back() -> None:
    async def body(world: World) -> None:
        await world.busy()
        gone = world.ask("203.0.113.1", "ann")
        await world.settle()
        gone.cancel()
        await world.settle()
        assert not world.turns._waiting
        world.ask("192.0.2.1", "bob")
        for task in world.tasks[:LOGINS_CHECKED_MAX]:
            task.cancel()  # in the middle of their looks
        await world.settle()
        assert world.order == [("192.0.2.1", "bob")]
        assert world.turns._free == LOGINS_CHECKED_MAX - 1

    run(body)
