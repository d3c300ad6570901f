"""Calls wait for their turn to begin, and with each of their steps."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Any

import pytest

from headrace_broker.flow.effort import Effort, EffortTurns
from headrace_broker.model.limits import CALLS_WAITING_MAX, CONTROL_TURN_UNITS, LOOP_HELD_US
from headrace_broker.runtime.calls.gate import CallGate, TooManyCallsError, Turns, turns_of_call
from headrace_broker.runtime.intake.loop_watch import LoopWatch
from headrace_broker.runtime.security.audit import ACTOR, Actor


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.now_us = 1

    def __call__(self) -> int:
        return self.now_us


class World:
    """A gate, and something else that spends the budget of turns."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        effort_turns = EffortTurns(
            lambda callback: loop.call_soon(callback), itertools.count(0, 1_000_000).__next__
        )
        self.clock = Clock()
        self.watch = LoopWatch()
        self.gate = CallGate(effort_turns, self.watch, self.clock, self.clock)
        self.other = Effort(effort_turns)

    def spend(self) -> None:
        """Spend the rest of this turn's budget."""
        self.gate.turns.spend(CONTROL_TURN_UNITS)


def run(body: Any) -> None:
    async def within() -> None:
        async with asyncio.timeout(30):
            await body(World())

    asyncio.run(within())


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_call_begins_at_once_where_nobody_waits():
    async def body(world: World) -> None:
        began = world.gate.begin("peer", "call")
        with pytest.raises(StopIteration):  # it is done without a turn of the loop
            began.__aenter__().send(None)
        await began.__aexit__(None, None, None)

    run(body)


def test_calls_wait_once_the_budget_of_a_turn_is_spent():
    async def body(world: World) -> None:
        went: list[int] = []

        async def call(number: int) -> None:
            async with world.gate.begin(f"peer {number % 4}", "call"):
                went.append(number)

        tasks = [asyncio.create_task(call(number)) for number in range(100)]
        await asyncio.sleep(0)
        assert 0 < len(went) < 10
        assert world.gate.turns.waiting == 100 - len(went)
        await asyncio.gather(*tasks)
        assert sorted(went) == list(range(100))
        assert world.gate.turns.waiting == 0
        assert world.gate._clients == {}

    run(body)


def test_a_call_that_ends_while_it_waits_is_forgotten():
    async def body(world: World) -> None:
        async def call() -> None:
            async with world.gate.begin("peer", "call"):
                raise AssertionError("it has ended")

        task = asyncio.create_task(call())
        world.spend()
        await asyncio.sleep(0)
        assert world.gate.turns.waiting == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert world.gate.turns.waiting == 0
        assert world.gate._clients == {}
        await turns()
        assert world.gate.turns.is_free

    run(body)


def test_past_the_bound_calls_are_refused_with_a_reason():
    async def body(world: World) -> None:
        world.spend()
        world.gate.turns.waiting = CALLS_WAITING_MAX
        with pytest.raises(TooManyCallsError, match=f"{CALLS_WAITING_MAX} calls wait"):
            async with world.gate.begin("peer", "call"):
                raise AssertionError("there was no room")
        assert world.gate._clients == {}
        assert world.gate.turns.refused == 1

    run(body)


def test_steps_of_a_call_wait_for_their_turns():
    async def body(world: World) -> None:
        went: list[str] = []

        async def work() -> str:
            went.append("first")
            await asyncio.sleep(0)
            went.append("second")
            return "done"

        async with world.gate.begin("peer", "call") as call:
            task = asyncio.create_task(_awaited(call, work()))
            await asyncio.sleep(0)
            assert went == ["first"]
            world.clock.now_us += 1
            for _ in range(20):
                world.spend()
                await asyncio.sleep(0)
            assert went == ["first"]
            assert await task == "done"
        assert went == ["first", "second"]

    run(body)


async def _awaited(call: Turns, work: Any) -> Any:
    return await call.paced(work)


def test_what_a_call_raises_and_what_it_waits_for_passes_through():
    async def body(world: World) -> None:
        async def failing() -> None:
            await asyncio.sleep(0)
            raise ZeroDivisionError

        async def waiting(future: asyncio.Future[int]) -> int:
            try:
                return await future
            except ValueError:
                return -1

        loop = asyncio.get_running_loop()
        async with world.gate.begin("peer", "call") as call:
            with pytest.raises(ZeroDivisionError):
                await call.paced(failing())
            future = loop.create_future()
            loop.call_soon(future.set_exception, ValueError())
            assert await call.paced(waiting(future)) == -1
            future = loop.create_future()
            loop.call_soon(future.set_result, 7)
            assert await call.paced(waiting(future)) == 7
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await call.paced(asyncio.sleep(30))

    run(body)


def test_a_call_that_is_cancelled_while_its_step_waits_hears_of_it():
    async def body(world: World) -> None:
        heard: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(0)
                heard.append("went on")
            except asyncio.CancelledError:
                heard.append("cancelled")
                raise

        async with world.gate.begin("peer", "call") as call:
            task = asyncio.create_task(_awaited(call, work()))
            await asyncio.sleep(0)
            for _ in range(3):
                world.spend()
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert heard == ["cancelled"]

    run(body)


def test_a_step_that_keeps_the_loop_is_named(caplog):
    async def body(world: World) -> None:
        async def work() -> None:
            world.clock.now_us += LOOP_HELD_US + 7000

        ACTOR.set(Actor("guest", "10.0.0.1:5", "grpc"))
        async with world.gate.begin("10.0.0.1:5", "gRPC Topology/ListQueues") as call:
            await call.paced(work())
        assert world.watch.held == 1
        assert not world.gate.turns.is_free  # and all calls pause

    caplog.set_level(logging.WARNING)
    run(body)
    [record] = caplog.records
    text = "gRPC Topology/ListQueues from 10.0.0.1:5 of user 'guest' has kept this node's loop"
    assert record.getMessage().startswith(text)


def test_requests_of_a_stream_wait_for_their_turns():
    async def body(world: World) -> None:
        went: list[int] = []

        async def stream() -> None:
            async with world.gate.begin("peer", "stream") as call:
                assert turns_of_call() is call
                for number in range(50):
                    await call.request()
                    with call.step():
                        went.append(number)

        task = asyncio.create_task(stream())
        await asyncio.sleep(0)
        assert 0 < len(went) < 20
        await task
        assert len(went) == 50

    run(body)
