"""One picture of stopped connections and queues in the cluster, for all watchers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextvars import Context

from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.limits import WATCH_LOOK_MS
from headrace_broker.runtime.explain.flow_collector import FlowCollector, FlowSnapshot, Key
from headrace_broker.runtime.explain.flow_report import FlowReport

log = logging.getLogger("headrace.node")


class WatchFailedError(Exception):
    """The watch ended by an error; a new watcher starts it again."""


class FlowWatch:
    """The newest picture, collected only while there are watchers.

    Watchers compare it with what they have told, so nobody has a backlog, however slow they are.
    """

    def __init__(
        self,
        report: FlowReport,
        view: CatalogView,
        look_ms: int = WATCH_LOOK_MS,  # milliseconds between looks
        patience_ms: int = WATCH_LOOK_MS,  # milliseconds that a look waits for answers
    ) -> None:
        self._report = report  # asks the nodes
        self._view = view
        self._look_s = look_ms / 1000
        self._patience_s = patience_ms / 1000
        self._watchers = 0
        self._task: asyncio.Task[None] | None = None
        self._picture: FlowSnapshot | None = None
        self._news = asyncio.Event()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Hold a picture within; WatchFailedError where there cannot be one."""
        self._watchers += 1
        try:
            if self._task is None or self._task.done():
                self._picture = None
                self._task = asyncio.create_task(
                    self._look_forever(),
                    name="flow-watch",
                    context=Context(),  # for all who watch
                )
            while self._picture is None:
                await self._news.wait()
                self._check()
            yield
        finally:
            self._watchers -= 1
            if self._watchers == 0 and self._task is not None:
                self._task.cancel()
                self._task = None

    @property
    def picture(self) -> FlowSnapshot:
        """The newest picture, while one watches; WatchFailedError where no newer one will come."""
        self._check()
        assert self._picture is not None, "only asked within `watching`"
        return self._picture

    @property
    def news(self) -> asyncio.Event:
        """Event that is set when the current picture is replaced."""
        return self._news

    def _check(self) -> None:
        if self._task is None or self._task.done():
            raise WatchFailedError("flow control cannot be looked at on this node")

    async def _look_forever(self) -> None:
        lookout = FlowCollector(self._report, self._view, self._patience_s)
        try:
            while True:
                self._show(await lookout.poll())
                await asyncio.sleep(self._look_s)
        except Exception:
            log.exception("flow control sample failed")
            asyncio.get_running_loop().call_soon(self._tell)  # once this task is done
        finally:
            lookout.close()

    def _show(self, picture: FlowSnapshot) -> None:
        before, self._picture = self._picture, picture
        if before is None or _marks(before) != _marks(picture):
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def _marks(
    picture: FlowSnapshot,
) -> tuple[dict[Key, tuple[str, str, int, str]], tuple[str, ...], int]:
    marks = {key: state.mark for key, state in picture.states.items()}
    return marks, picture.missing, picture.left_out
