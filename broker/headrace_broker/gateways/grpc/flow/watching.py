"""Common part of streams that report changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import grpc

from headrace_broker.catalog.access import Caller, check_manages
from headrace_broker.catalog.view import CatalogView
from headrace_broker.gateways.grpc.server.errors import RETRY_MS, CallError
from headrace_broker.model.limits import WATCHES_MAX


class Watches:
    """Counts a node's watchers, and ends them when it stops."""

    def __init__(self, view: CatalogView) -> None:
        self._view = view
        self._count = 0
        self._stopping = asyncio.Event()
        self._reason = ""

    @contextlib.contextmanager
    def one_more(self) -> Iterator[asyncio.Event]:
        """Count a watcher within, and give what is set when this node's clients are to go.

        Raises:
            CallError: RESOURCE_EXHAUSTED, there are too many.
        """
        if self._count >= WATCHES_MAX:
            text = f"{self._count} clients watch this node already, which is the maximum"
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            raise CallError(code, "TOO_MANY_WATCHES", text, retry_ms=RETRY_MS)
        self._count += 1
        try:
            yield self._stopping
        finally:
            self._count -= 1

    def stop(self, reason: str) -> None:
        """End all watches, and say why; there may be others later."""
        self._reason = reason
        self._stopping.set()
        self._stopping = asyncio.Event()

    def caller(self, name: str) -> Caller:
        """Return a watcher as the catalog knows them by now.

        Raises:
            CallError: UNAUTHENTICATED, there is no such user any more.
            AmqpError: ACCESS_REFUSED.
        """
        user = self._view.user(name)
        if user is None:
            text = f"user '{name}' is not there any more"
            raise CallError(grpc.StatusCode.UNAUTHENTICATED, "NOT_AUTHORIZED", text)
        found = Caller(user.name, user.tags)
        check_manages(found)
        return found

    async def wait(self, news: asyncio.Event, stopping: asyncio.Event, due: float) -> bool:
        """Wait until there are news, or a heartbeat is due, and return whether that is.

        Args:
            news: set when there are some.
            stopping: of the watcher: its stop may come while it does not wait.
            due: when a heartbeat is, on the clock of the loop.

        Raises:
            CallError: UNAVAILABLE, this node's clients are to go.
        """
        loop = asyncio.get_running_loop()
        seconds = max(due - loop.time(), 0.0)
        waiting = [asyncio.ensure_future(each.wait()) for each in (news, stopping)]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        if stopping.is_set():
            text = self._reason
            code = grpc.StatusCode.UNAVAILABLE
            raise CallError(code, "NOT_READY", text, retry_ms=RETRY_MS)
        return loop.time() >= due or not news.is_set()
