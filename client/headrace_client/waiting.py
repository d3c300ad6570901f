"""Methods that wait for what asynchronous ones do."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from headrace_client.loop_thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")


class Blocking(Generic[A]):
    """The blocking form of an asynchronous object."""

    def __init__(self, thread: LoopThread, inner: A) -> None:
        self._thread = thread
        self._inner = inner


def waiting(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that waits for what an asynchronous one does."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        thread: LoopThread = self._thread
        return thread.run(method(self._inner, *args, **kwargs))

    return call


def waiting_for(
    kind: Callable[[LoopThread, R], T], method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]
) -> Callable[Concatenate[Any, P], T]:
    """As `waiting`; the method returns the blocking form of what the asynchronous one returns."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return kind(self._thread, self._thread.run(method(self._inner, *args, **kwargs)))

    return call


def waiting_for_all(
    kind: Callable[[LoopThread, R], T],
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, list[R]]],
) -> Callable[Concatenate[Any, P], list[T]]:
    """As `waiting_for`, of each thing in a list."""

    def every(thread: LoopThread, found: list[R]) -> list[T]:
        return [kind(thread, each) for each in found]

    return waiting_for(every, method)


def listing(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """Return a method with a blocking iterator; leaving it early ends the asynchronous one."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        rows = method(self._inner, *args, **kwargs)

        async def following() -> list[T]:
            async for row in rows:
                return [row]
            return []

        try:
            while found := self._thread.run(following()):
                yield from found
        finally:
            if isinstance(rows, AsyncGenerator):
                self._thread.run(rows.aclose())

    return call
