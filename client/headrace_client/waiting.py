"""Methods that wait for what asynchronous ones do."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from headrace_client.loop_thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")


def waiting(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that waits for what an asynchronous one does."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        thread: LoopThread = self._thread
        return thread.run(method(self._inner, *args, **kwargs))

    return call


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
