"""Who looks after resources: a task for each, which looks when it changes and now and then.

What a look does is to have things be as the resource says, from what is seen anew each time. So it
does not matter how often it looks, nor whether the operator was restarted in between. One task
looks at one resource, so looks at it never overlap.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from headrace_operator.foreseen import ForeseenError

LOOK_SECONDS_MAX: Final = 300.0  # a look that takes longer is given up, and begun anew
RETRY_SECONDS_MIN: Final = 1.0  # after a look that failed; doubled with each that fails again
RETRY_SECONDS_MAX: Final = 60.0
NEVER: Final = -1.0  # of a look: there is nothing more to look after

log = logging.getLogger(__name__)


class Key(NamedTuple):
    """Which resource."""

    namespace: str
    name: str


Body = dict[str, Any]
Look = Callable[[Key], Awaitable[float]]  # returns the seconds until the next one, or NEVER
Fail = Callable[[Key, Exception], Awaitable[None]]


class _Kept:
    """A resource that is looked after."""

    def __init__(self, marks: object) -> None:
        self.marks = marks
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Keeper:
    """Looks after all resources of one kind.

    Args:
        kind: of the resources, for the log.
        look: has things be as a resource says.
        fail: tells people that a look has failed.
    """

    def __init__(self, kind: str, look: Look, fail: Fail) -> None:
        self._kind = kind
        self._look = look
        self._fail = fail
        self._kept: dict[Key, _Kept] = {}

    def seen(self, key: Key, body: Body) -> None:
        """Note that a resource is there; it is looked at if it is new or has changed."""
        marks, kept = _marks(body), self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(marks)
            kept.task = asyncio.create_task(self._keep(key, kept), name=f"{self._kind} {key.name}")
        elif kept.marks != marks:
            kept.marks = marks
            kept.wake.set()

    def wake(self, key: Key) -> None:
        """Have a resource looked at now, if there is one."""
        kept = self._kept.get(key)
        if kept is not None:
            kept.wake.set()

    def wake_all(self) -> None:
        """Have every resource looked at now."""
        for kept in self._kept.values():
            kept.wake.set()

    def gone(self, key: Key) -> None:
        """Note that a resource is not there any more."""
        kept = self._kept.pop(key, None)
        if kept is not None and kept.task is not None:
            kept.task.cancel()

    async def stop(self) -> None:
        """Look after nothing any more."""
        tasks = [kept.task for kept in self._kept.values() if kept.task is not None]
        self._kept.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, key: Key, kept: _Kept) -> None:
        failures = 0
        while True:
            kept.wake.clear()
            try:
                async with asyncio.timeout(LOOK_SECONDS_MAX):
                    delay = await self._look(key)
                failures = 0
            except Exception as error:  # noqa: BLE001 - the outermost loop: told, and tried again
                failures += 1
                delay = min(RETRY_SECONDS_MIN * 2 ** min(failures - 1, 16), RETRY_SECONDS_MAX)
                await self._failed(key, error, delay)
            if delay == NEVER:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await kept.wake.wait()

    async def _failed(self, key: Key, error: Exception, delay: float) -> None:
        """Log a failure and tell people; what fails in this is logged, and no more."""
        foreseen = isinstance(error, ForeseenError | TimeoutError)
        text = f"{self._kind} {key.namespace}/{key.name}: {str(error) or type(error).__name__}"
        log.warning("%s; again in %.0f s", text, delay, exc_info=None if foreseen else error)
        try:
            async with asyncio.timeout(RETRY_SECONDS_MAX):
                await self._fail(key, error)
        except Exception as again:  # noqa: BLE001 - likewise
            log.warning("%s: its status cannot be written: %s", text, again)


def _marks(body: Body) -> object:
    """Return what tells whether a resource has changed, but for its status."""
    meta = body.get("metadata", {})
    names = ("uid", "generation", "deletionTimestamp", "annotations", "labels")
    return {name: meta.get(name) for name in names}
