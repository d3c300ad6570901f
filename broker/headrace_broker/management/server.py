"""The HTTP listener: health checks for anybody, everything else for users with a tag for it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from headrace_broker.management.access import CALLER, TAGS, Caller, monitor
from headrace_broker.management.administration import Administration
from headrace_broker.management.alarms import AlarmEndpoints
from headrace_broker.management.answer import ApiError, amqp_refusal, error_answer, json_answer
from headrace_broker.management.bindings import BindingEndpoints
from headrace_broker.management.clients import ClientEndpoints
from headrace_broker.management.exchanges import ExchangeEndpoints
from headrace_broker.management.flow import FlowEndpoints
from headrace_broker.management.flow_limits import FlowLimitEndpoints
from headrace_broker.management.listener import HttpListener
from headrace_broker.management.messages import MessageEndpoints
from headrace_broker.management.metrics import MetricEndpoints
from headrace_broker.management.policies import PolicyEndpoints
from headrace_broker.management.queues import QueueEndpoints
from headrace_broker.management.rate import SAMPLE_INTERVAL_S, RateMeter
from headrace_broker.management.rendering import render_nodes, render_overview
from headrace_broker.management.status_source import StatusSource
from headrace_broker.management.users import UserEndpoints
from headrace_broker.management.vhosts import VhostEndpoints
from headrace_broker.model.limits import HTTP_IDLE_SECONDS_MAX
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.authenticator import is_loopback
from headrace_broker.runtime.basic_credentials import parse_basic
from headrace_broker.runtime.tls import ServerTls

OPEN_PATHS: Final = frozenset({"/api/health/live", "/api/health/ready"})
REQUEST_BYTES_MAX: Final = 64 << 10  # octets of a request's body; nothing here takes a large one
SHUTDOWN_S_MAX: Final = 2.0  # seconds that open requests get at stop

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ManagementServer:
    """Serves the API of one node.

    Args:
        source: what the node tells of itself; asked at each request.
        node: what is looked at and changed through it.
        clock: seconds of a clock that never goes back.
    """

    def __init__(
        self,
        source: StatusSource,
        node: Administration,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._node = node
        self._clock = clock
        self._meter = RateMeter()
        self._runner: web.AppRunner | None = None
        self._listeners: list[HttpListener] = []
        self._sampler: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int, tls: ServerTls | None = None) -> int:
        """Listen, and return the port (the one asked for, or a free one when that was 0).

        May be called again, to listen elsewhere too.

        Args:
            host: address to bind.
            port: 0 for any free one.
            tls: serve TLS so, None to serve in the clear.

        Raises:
            OSError: the address cannot be bound; nothing of this call is left.
        """
        first = self._runner is None
        if self._runner is None:
            self._runner = web.AppRunner(
                self.application(),
                access_log=None,
                shutdown_timeout=SHUTDOWN_S_MAX,
                keepalive_timeout=HTTP_IDLE_SECONDS_MAX,
            )
            await self._runner.setup()
        server = self._runner.server
        assert server is not None, "it is there once the runner is set up"
        listener = HttpListener(server, tls)
        try:
            bound = await listener.start(host, port)
        except OSError:
            if first:
                await self.stop()
            raise
        self._listeners.append(listener)
        if self._sampler is None:
            self._sampler = asyncio.create_task(self._sample_forever(), name="management-rates")
        return bound

    async def stop(self) -> None:
        """Stop listening; a server that was not started is left alone."""
        if self._sampler is not None:
            self._sampler.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sampler
        for listener in self._listeners:
            await listener.stop()
        self._listeners.clear()
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
        for endpoints in (
            AlarmEndpoints(self._source),
            BindingEndpoints(self._node),
            ClientEndpoints(self._node),
            ExchangeEndpoints(self._node),
            FlowEndpoints(self._node),
            FlowLimitEndpoints(self._node, self._source),
            MessageEndpoints(self._node),
            MetricEndpoints(self._node.flow_report, self._source),
            PolicyEndpoints(self._node, operator=False),
            PolicyEndpoints(self._node, operator=True),
            QueueEndpoints(self._node, self._source),
            UserEndpoints(self._node),
            VhostEndpoints(self._node),
        ):
            app.router.add_routes(endpoints.routes())
        return app

    async def _sample_forever(self) -> None:
        while True:
            self._meter.sample(self._clock(), self._source.overview().counters)
            await asyncio.sleep(SAMPLE_INTERVAL_S)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Ask for a log-in, and answer in JSON whatever goes wrong."""
        if request.path not in OPEN_PATHS:
            user = await self._user(request)
            if user is None:
                headers = {"WWW-Authenticate": 'Basic realm="Headrace"'}
                reason = "log in with a user of the broker"
                return error_answer(401, "not_authorized", reason, headers)
            if not TAGS.intersection(user.tags):
                allowed = ", ".join(sorted(TAGS))
                return error_answer(403, "access_refused", f"tags: must have one of {allowed}")
            CALLER.set(user)
        try:
            return await handler(request)
        except ApiError as error:
            return error_answer(error.status, error.error, error.reason)
        except AmqpError as error:
            refusal = amqp_refusal(error)
            return error_answer(refusal.status, refusal.error, refusal.reason)
        except web.HTTPRequestEntityTooLarge:
            reason = f"body: must have at most {REQUEST_BYTES_MAX} octets"
            return error_answer(413, "payload_too_large", reason)
        except web.HTTPMethodNotAllowed as error:
            allow = {"Allow": error.headers["Allow"]}
            return error_answer(405, "method_not_allowed", f"allowed: {allow['Allow']}", allow)
        except web.HTTPNotFound:
            return error_answer(404, "not_found", f"there is no {request.path}")

    async def _user(self, request: web.Request) -> Caller | None:
        """Return who asks, None unless the log-in is right."""
        login = parse_basic(request.headers.get("Authorization", ""))
        if login is None:
            return None
        if not await self._source.authenticate(*login, is_loopback(request.remote)):
            return None
        user = self._node.view.user(login[0])
        return Caller(user.name, user.tags) if user is not None else None

    async def _live(self, request: web.Request) -> web.Response:
        return json_answer({"status": "ok"})

    async def _ready(self, request: web.Request) -> web.Response:
        reason = self._source.not_ready_reason()
        if reason:
            return json_answer({"status": "failed", "reason": reason}, status=503)
        return json_answer({"status": "ok"})

    async def _overview(self, request: web.Request) -> web.Response:
        return json_answer(render_overview(self._source.overview(), self._meter.rates()))

    async def _nodes(self, request: web.Request) -> web.Response:
        monitor()
        return json_answer(render_nodes(self._source.overview().nodes))
