"""The HTTP listener: health checks for anybody, status for users of the catalog."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from headrace_broker.management.authentication import parse_basic
from headrace_broker.management.rate import SAMPLE_INTERVAL_S, RateMeter
from headrace_broker.management.rendering import render_nodes, render_overview, render_queues
from headrace_broker.management.status_source import StatusSource
from headrace_broker.runtime.authenticator import is_loopback

OPEN_PATHS: Final = frozenset({"/api/health/live", "/api/health/ready"})
REQUEST_BYTES_MAX: Final = 64 << 10  # octets of a request's body; nothing here takes a large one
SHUTDOWN_S_MAX: Final = 2.0  # seconds that open requests get at stop

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ManagementServer:
    """Serves the API of one node.

    Args:
        source: the node; asked at each request.
        clock: seconds of a clock that never goes back.
    """

    def __init__(self, source: StatusSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._meter = RateMeter()
        self._runner: web.AppRunner | None = None
        self._sampler: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port (the one asked for, or a free one when that was 0).

        Raises:
            OSError: the address cannot be bound; nothing is left running.
        """
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=SHUTDOWN_S_MAX)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        self._sampler = asyncio.create_task(self._sample_forever(), name="management-rates")
        return int(runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening; a server that was not started is left alone."""
        if self._sampler is not None:
            self._sampler.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sampler
        if self._runner is not None:
            await self._runner.cleanup()
        self._sampler = self._runner = None

    def application(self) -> web.Application:
        """Return the routes, without a listener."""
        app = web.Application(middlewares=[self._guard], client_max_size=REQUEST_BYTES_MAX)
        app.router.add_get("/api/health/live", self._live)
        app.router.add_get("/api/health/ready", self._ready)
        app.router.add_get("/api/overview", self._overview)
        app.router.add_get("/api/nodes", self._nodes)
        app.router.add_get("/api/queues", self._queues)
        return app

    async def _sample_forever(self) -> None:
        while True:
            self._meter.sample(self._clock(), self._source.overview().counters)
            await asyncio.sleep(SAMPLE_INTERVAL_S)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Ask for a log-in, and answer in JSON whatever goes wrong."""
        if request.path not in OPEN_PATHS and not await self._knows(request):
            headers = {"WWW-Authenticate": 'Basic realm="Headrace"'}
            return _error(401, "not_authorized", "log in with a user of the broker", headers)
        try:
            return await handler(request)
        except web.HTTPMethodNotAllowed as error:
            allowed = {"Allow": error.headers["Allow"]}
            return _error(405, "method_not_allowed", f"allowed: {allowed['Allow']}", allowed)
        except web.HTTPNotFound:
            return _error(404, "not_found", f"there is no {request.path}")

    async def _knows(self, request: web.Request) -> bool:
        login = parse_basic(request.headers.get("Authorization", ""))
        if login is None:
            return False
        return await self._source.authenticate(*login, is_loopback(request.remote))

    async def _live(self, request: web.Request) -> web.Response:
        return _json({"status": "ok"})

    async def _ready(self, request: web.Request) -> web.Response:
        reason = self._source.not_ready_reason()
        if reason:
            return _json({"status": "failed", "reason": reason}, status=503)
        return _json({"status": "ok"})

    async def _overview(self, request: web.Request) -> web.Response:
        return _json(render_overview(self._source.overview(), self._meter.rates()))

    async def _nodes(self, request: web.Request) -> web.Response:
        return _json(render_nodes(self._source.overview().nodes))

    async def _queues(self, request: web.Request) -> web.Response:
        return _json(render_queues(self._source.queues()))


def _json(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body),
        status=status,
        content_type="application/json",
        headers=headers,
    )


def _error(
    status: int, error: str, reason: str, headers: dict[str, str] | None = None
) -> web.Response:
    return _json({"error": error, "reason": reason}, status, headers)
