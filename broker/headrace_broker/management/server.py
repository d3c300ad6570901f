"""The HTTP listener: health checks for anybody, everything else for users with a tag for it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from aiohttp import web
from typing_extensions import override

from headrace_broker.management.definitions.definitions import DefinitionEndpoints
from headrace_broker.management.http.answer import json_answer
from headrace_broker.management.http.body import LargeBodies
from headrace_broker.management.http.connection import HttpPlaces
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.guard import Guard
from headrace_broker.management.http.headers import protect_prepared
from headrace_broker.management.http.hosts import Hosts
from headrace_broker.management.http.listener import HttpListener
from headrace_broker.management.http.login_service import LoginService
from headrace_broker.management.http.openapi import document
from headrace_broker.management.http.route import NOBODY, Route, got
from headrace_broker.management.page.server import Page
from headrace_broker.management.resources.advice import AdviceEndpoints
from headrace_broker.management.resources.alarms import AlarmEndpoints
from headrace_broker.management.resources.archives import ArchiveEndpoints
from headrace_broker.management.resources.bindings import BindingEndpoints
from headrace_broker.management.resources.clients import ClientEndpoints
from headrace_broker.management.resources.cluster import ClusterEndpoints
from headrace_broker.management.resources.exchanges import ExchangeEndpoints
from headrace_broker.management.resources.flow import FlowEndpoints
from headrace_broker.management.resources.flow_limits import FlowLimitEndpoints
from headrace_broker.management.resources.health import HealthEndpoints, State
from headrace_broker.management.resources.leases import LeaseEndpoints
from headrace_broker.management.resources.log_level import LogLevelEndpoints
from headrace_broker.management.resources.members import MemberEndpoints
from headrace_broker.management.resources.messages import MessageEndpoints
from headrace_broker.management.resources.metrics import MetricEndpoints
from headrace_broker.management.resources.nodes import NodeEndpoints
from headrace_broker.management.resources.overview import OverviewEndpoints
from headrace_broker.management.resources.parameters import ParameterEndpoints
from headrace_broker.management.resources.permissions import PermissionEndpoints
from headrace_broker.management.resources.policies import OperatorPolicyEndpoints, PolicyEndpoints
from headrace_broker.management.resources.publishing import PublishEndpoints
from headrace_broker.management.resources.queues import QueueEndpoints
from headrace_broker.management.resources.topic_permissions import TopicPermissionEndpoints
from headrace_broker.management.resources.user_limits import UserLimitEndpoints
from headrace_broker.management.resources.users import UserEndpoints
from headrace_broker.management.resources.vhosts import VhostEndpoints
from headrace_broker.model.limits import REQUEST_BODY_BYTES_MAX
from headrace_broker.runtime.administration.administration import NodeAdministration
from headrace_broker.runtime.administration.status import NodeStatusSource
from headrace_broker.runtime.calls.gate import CallGate
from headrace_broker.runtime.security.tls import ServerTls

SHUTDOWN_S_MAX: Final = 2.0  # seconds that open requests get at stop

LIVE: Final = "/api/health/live"
READY: Final = "/api/health/ready"


PARTS: Final[tuple[type[Endpoints], ...]] = (
    AdviceEndpoints,
    AlarmEndpoints,
    ArchiveEndpoints,
    BindingEndpoints,
    ClientEndpoints,
    ClusterEndpoints,
    ExchangeEndpoints,
    FlowEndpoints,
    FlowLimitEndpoints,
    HealthEndpoints,
    LeaseEndpoints,
    LogLevelEndpoints,
    MemberEndpoints,
    MessageEndpoints,
    MetricEndpoints,
    NodeEndpoints,
    OperatorPolicyEndpoints,
    OverviewEndpoints,
    ParameterEndpoints,
    PermissionEndpoints,
    PolicyEndpoints,
    QueueEndpoints,
    TopicPermissionEndpoints,
    UserEndpoints,
    UserLimitEndpoints,
    VhostEndpoints,
)


class ManagementServer(Endpoints):
    """Serves the API of one node."""

    def __init__(
        self,
        source: NodeStatusSource,
        node: NodeAdministration,
        hosts: Hosts | None = None,
        calls: CallGate | None = None,
    ) -> None:
        super().__init__(source=source, node=node)
        self._hosts = hosts
        self._calls = calls  # has requests take turns on the loop
        self._entrance = LoginService(source, node.view)
        self._page = Page(node, source)
        self._entrance.page = self._page.caller
        self._bodies = LargeBodies()
        self._runner: web.AppRunner | None = None
        self._places = HttpPlaces()
        self._listeners: list[HttpListener] = []
        self._sampler: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int, tls: ServerTls | None = None) -> int:
        """Listen, here too; return the port (a free one for 0). Raises OSError: nothing is left."""
        first = self._runner is None
        if self._runner is None:
            self._runner = web.AppRunner(self.application(), shutdown_timeout=SHUTDOWN_S_MAX)
            await self._runner.setup()
        self._entrance.tls = tls or self._entrance.tls
        server = self._runner.server
        assert server is not None, "it is there once the runner is set up"
        listener = HttpListener(server, tls, self._places)
        try:
            bound = await listener.start(host, port)
        except OSError:
            if first:
                await self.stop()
            raise
        self._listeners.append(listener)
        self.begin_sampling()
        return bound

    def begin_sampling(self) -> None:
        """Take samples from now until `stop`, which other nodes ask for too."""
        if self._sampler is None:
            sampling = self._node.stats.sample_forever()
            self._sampler = asyncio.create_task(sampling, name="management-stats")

    async def stop(self) -> None:
        """Stop listening; a server that was not started is left alone."""
        if self._sampler is not None:
            self._sampler.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sampler
        self._sampler = None
        for listener in self._listeners:
            await listener.stop()
        self._listeners.clear()
        await self._page.stop()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    @override
    def routes(self) -> list[Route]:
        """Return everything that is answered, but by the web page."""
        place = (self._node, self._source)
        parts = [
            *(kind(*place) for kind in PARTS),
            DefinitionEndpoints(*place, self._bodies),
            PublishEndpoints(*place, self._bodies),
        ]
        return [*super().routes(), *(row for part in parts for row in part.routes())]

    def application(self) -> web.Application:
        """Return the routes, without a listener."""
        guard = Guard(self._entrance, self._node.metrics.http, self._hosts, self._calls)
        app = web.Application(middlewares=[guard.handle], client_max_size=REQUEST_BODY_BYTES_MAX)
        app.on_response_prepare.append(protect_prepared)
        rows = self.routes()
        # With a slash at the end, too: some clients of RabbitMQ ask so.
        also = [row._replace(path=f"{row.path}/") for row in rows if row.role != NOBODY]
        for row in [*rows, *also, *self._page.routes()]:
            handler = guard.guarded(row)
            if row.method == "GET":
                app.router.add_get(row.path, handler)  # and HEAD
            else:
                app.router.add_route(row.method, row.path, handler)
        return app

    @got(LIVE, "Whether the node's process lives.", State, NOBODY, unpaced=True)
    async def _live(self, request: web.Request) -> web.Response:
        return json_answer({"status": "ok"})

    @got(READY, "Whether clients may come.", State, NOBODY, codes=(503,), unpaced=True)
    async def _ready(self, request: web.Request) -> web.Response:
        reason = self._source.not_ready_reason()
        if reason:
            return json_answer({"status": "failed", "reason": reason}, status=503)
        return json_answer({"status": "ok"})

    @got("/api/openapi.json", "This document.", dict[str, Any], NOBODY)
    async def _openapi(self, request: web.Request) -> web.Response:
        return json_answer(document(self.routes()))
