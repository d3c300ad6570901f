"""A thread with an event loop, for those who block."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="headrace-client", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; nothing may be under way."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        with contextlib.closing(self._loop):
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the loop, and wait for it.

        When the thread that waits is interrupted, the work is cancelled.

        Raises:
            RuntimeError: it is called in the loop's own thread, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this is the client's own thread: use the asyncio client here")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Call something in the loop without waiting; calls keep their order."""
        self._loop.call_soon_threadsafe(callback, *args)


class SharedThread:
    """One thread for all blocking clients of a process, as long as there are some."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._users = 0

    def acquire(self) -> LoopThread:
        """Return the thread, which is started for the first user."""
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread()
            self._users += 1
            return self._thread

    def release(self) -> None:
        """Stop the thread when this was the last user."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._thread is not None:
                self._thread.stop()
                self._thread = None


SHARED = SharedThread()
