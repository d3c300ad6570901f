"""The turns of calls over HTTP and gRPC, as their tasks see them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from headrace_broker.flow.call_turns import CallClient, CallTurns
from headrace_broker.flow.effort import EffortTurns
from headrace_broker.model.limits import (
    CALL_UNITS,
    CALLS_WAITING_MAX,
    LOOP_HELD_US,
    STREAM_REQUEST_UNITS,
)
from headrace_broker.runtime.intake.loop_watch import LoopWatch
from headrace_broker.runtime.security.audit import ACTOR

T = TypeVar("T")

# Of the call, or the stream, that a task serves.
TURNS: Final[ContextVar[Turns | None]] = ContextVar("TURNS", default=None)


def turns_of_call() -> Turns:
    """Return the turns of the call that the task serves."""
    turns = TURNS.get()
    assert turns is not None, "every call begins at a gate"
    return turns


def clock_us() -> int:
    """Return microseconds of a clock that never goes back."""
    return time.monotonic_ns() // 1000


def cpu_us() -> int:
    """Return microseconds of the processor that this thread has had."""
    return time.thread_time_ns() // 1000


class TooManyCallsError(Exception):
    """There is no room for one more call that waits."""


class CallGate:
    """Gate of calls: decides when they begin and continue."""

    def __init__(
        self,
        effort_turns: EffortTurns | None = None,  # the budget of a turn of the loop
        watch: LoopWatch | None = None,
        clock: Callable[[], int] = clock_us,
        cpu: Callable[[], int] = cpu_us,
    ) -> None:
        effort_turns = effort_turns or EffortTurns(_call_soon, cpu)
        self.turns = CallTurns(effort_turns, _call_soon, _call_later)  # who may go on
        self.watch = watch or LoopWatch()  # names calls that keep the loop for long
        self.clock = clock  # microseconds of a clock that never goes back
        # microseconds of the processor that the loop has had: what a step has to wait for other
        # processes is not its own
        self.cpu = cpu
        self._clients: dict[str, CallClient] = {}

    @contextlib.asynccontextmanager
    async def begin(self, peer: str, name: str) -> AsyncIterator[Turns]:
        """Wait until a call may begin; within, it is under way.

            async with gate.begin(peer, name) as turns:
                await turns.paced(work)

        Args:
            peer: the connection that it came by.
            name: the call, for the log.

        Raises TooManyCallsError: too many wait.
        """
        client = self._clients.setdefault(peer, CallClient())
        client.calls += 1
        try:
            turns = Turns(self, client, f"{name} from {peer}")
            await turns.begin()
            token = TURNS.set(turns)
            try:
                yield turns
            finally:
                TURNS.reset(token)
        finally:
            client.calls -= 1
            if not client.calls:
                del self._clients[peer]


class Turns:
    """Turns of the event loop in which a call, or a stream, does its work."""

    def __init__(self, gate: CallGate, client: CallClient, name: str) -> None:
        self._gate = gate
        self._client = client  # the connection that it came by
        self._name = name  # the call, for the log

    async def begin(self) -> None:
        """Wait until it may begin; TooManyCallsError where too many wait."""
        turns, client = self._gate.turns, self._client
        if turns.is_free:
            turns.spend(CALL_UNITS + client.step_units)
            return
        if not turns.has_room(client):
            raise TooManyCallsError(
                f"{turns.waiting} calls wait for their turn on this node, {client.waiting} of them "
                f"from this connection; at most {CALLS_WAITING_MAX} may, and a connection may have "
                "no more than there is room left for"
            )
        may_go = asyncio.get_running_loop().create_future()
        turns.wait_to_begin(client, lambda: _go(may_go))
        try:
            await may_go
        finally:
            turns.began(client)

    async def request(self) -> None:
        """Wait until one more request of a stream may be handled."""
        turns = self._gate.turns
        if not turns.is_free:
            await self._wait()
        turns.spend(STREAM_REQUEST_UNITS)

    def paced(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Wrap a coroutine so that its steps take turns."""
        return _Paced(self, work)

    @contextlib.contextmanager
    def step(self) -> Generator[None]:
        """Count the block, which does not wait, as a step."""
        gate = self._gate
        began, began_cpu = gate.clock(), gate.cpu()
        try:
            yield
        finally:
            gate.turns.took(self._client, gate.cpu() - began_cpu)
            self._watch(began)

    @contextlib.contextmanager
    def watched(self) -> Generator[None]:
        """Name this stream in the log if the block keeps the loop for long; count nothing."""
        began = self._gate.clock()
        try:
            yield
        finally:
            self._watch(began)

    def _watch(self, began: int) -> None:
        now = self._gate.clock()
        if now - began > LOOP_HELD_US:
            actor = ACTOR.get()
            user = actor.user if actor is not None else ""
            self._gate.watch.note(self._name, user, now - began, now)

    async def _wait(self) -> None:
        may_go = asyncio.get_running_loop().create_future()
        self._gate.turns.wait_to_go_on(self._client, lambda: _go(may_go))
        await may_go

    def go_on(self) -> Generator[Any, None, None]:
        """Wait, as an iterator of a coroutine does, until the next step may begin."""
        turns = self._gate.turns
        if turns.is_free:
            turns.spend(self._client.step_units)
        else:
            yield from self._wait().__await__()


class _Paced(Awaitable[T]):
    """Awaits a coroutine, and waits with each of its steps until it may begin.

    A task is woken when what it waits for is done. What it does then is one step of the coroutine:
    it is counted, and the next one has to wait its turn after it was woken.
    """

    def __init__(self, turns: Turns, work: Coroutine[Any, Any, T]) -> None:
        self._turns = turns
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        work = self._work
        failure: BaseException | None = None
        try:
            while True:
                with self._turns.step():
                    try:
                        waits = work.send(None) if failure is None else work.throw(failure)
                    except StopIteration as end:
                        result: T = end.value
                        return result
                failure = None
                try:
                    yield waits
                    yield from self._turns.go_on()
                except BaseException as error:  # noqa: BLE001 - it is the coroutine's
                    failure = error
        finally:
            work.close()


def _go(may_go: asyncio.Future[None]) -> bool:
    if may_go.done():
        return False
    may_go.set_result(None)
    return True


def _call_soon(callback: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_soon(callback)


def _call_later(seconds: float, callback: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, callback)
