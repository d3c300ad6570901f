"""Reconciler of resources: a task for each, which runs on changes and periodically.

What a look does is to have things be as the resource says, from what is seen anew each time. So it
does not matter how often it looks, nor whether the operator was restarted in between. One task
looks at one resource, so looks at it never overlap.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final, NamedTuple, Protocol

from headrace_operator.expected_error import ExpectedError
from headrace_operator.metrics import Metrics

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


class Handler(Protocol):
    """Handler of the resources of one kind."""

    async def reconcile(self, key: Key) -> float:
        """Reconcile a resource; return the seconds until the next reconcile, or NEVER."""

    async def fail(self, key: Key, error: Exception) -> None:
        """Report a failed reconcile."""

    def forget(self, key: Key) -> None:
        """Forget the state of a deleted resource."""


class _Kept:
    """A resource that is looked after."""

    def __init__(self, marks: Body) -> None:
        self.marks = marks
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Reconciler:
    """Reconciles all resources of one kind.

    Args:
        kind: of the resources.
        handler: of the kind.
        metrics: where looks are counted.
    """

    def __init__(self, kind: str, handler: Handler, metrics: Metrics) -> None:
        self._kind = kind
        self._handler = handler
        self._metrics = metrics
        self._kept: dict[Key, _Kept] = {}
        metrics.resources(kind, lambda: len(self._kept))

    def seen(self, key: Key, body: Body) -> bool:
        """Note that a resource is there; return whether it is new or has changed.

        It is reconciled then.
        """
        marks, kept = _marks(body), self._kept.get(key)
        if kept is None or (kept.task is not None and kept.task.done()):
            self._handler.forget(key)
            kept = self._kept[key] = _Kept(marks)
            kept.task = asyncio.create_task(self._keep(key, kept), name=f"{self._kind} {key.name}")
            return True
        if kept.marks != marks:
            if kept.marks["uid"] != marks["uid"]:  # another one of the same name
                self._handler.forget(key)
            kept.marks = marks
            kept.wake.set()
            return True
        return False

    def wake(self, key: Key) -> None:
        """Reconcile a resource now, if it exists."""
        kept = self._kept.get(key)
        if kept is not None:
            kept.wake.set()

    def wake_all(self) -> None:
        """Reconcile every resource now."""
        for kept in self._kept.values():
            kept.wake.set()

    def gone(self, key: Key) -> None:
        """Note that a resource was deleted."""
        kept = self._kept.pop(key, None)
        if kept is not None and kept.task is not None:
            kept.task.cancel()
        self._handler.forget(key)

    async def stop(self) -> None:
        """Stop reconciling."""
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
                    self._metrics.count("reconciles", "kind", self._kind)
                    delay = await self._handler.reconcile(key)
                failures = 0
            except Exception as error:  # noqa: BLE001 - the outermost loop: told, and tried again
                failures += 1
                self._metrics.count("reconcile_failures", "kind", self._kind)
                delay = min(RETRY_SECONDS_MIN * 2 ** min(failures - 1, 16), RETRY_SECONDS_MAX)
                await self._failed(key, error, delay)
            if delay == NEVER:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await kept.wake.wait()

    async def _failed(self, key: Key, error: Exception, delay: float) -> None:
        """Log a failure and tell people; what fails in this is logged, and no more."""
        foreseen = isinstance(error, ExpectedError | TimeoutError)
        text = f"{self._kind} {key.namespace}/{key.name}: {str(error) or type(error).__name__}"
        log.warning("%s; again in %.0f s", text, delay, exc_info=None if foreseen else error)
        try:
            async with asyncio.timeout(RETRY_SECONDS_MAX):
                await self._handler.fail(key, error)
        except Exception as again:  # noqa: BLE001 - likewise
            log.warning("%s: its status cannot be written: %s", text, again)


def _marks(body: Body) -> Body:
    """Return marks of a resource's changes: of its status only the parts that others wait for."""
    meta = body.get("metadata", {})
    names = ("uid", "generation", "deletionTimestamp", "annotations", "labels")
    formed = (body.get("status") or {}).get("formed")
    return {"formed": formed, **{name: meta.get(name) for name in names}}
