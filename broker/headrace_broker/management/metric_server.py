"""A listener for Prometheus alone."""

from __future__ import annotations

from aiohttp import web

from headrace_broker.management.http.administration import Administration
from headrace_broker.management.http.connection import HttpPlaces
from headrace_broker.management.http.guard import Guard
from headrace_broker.management.http.headers import protect_prepared
from headrace_broker.management.http.hosts import Hosts
from headrace_broker.management.http.listener import HttpListener
from headrace_broker.management.http.login_service import LoginService
from headrace_broker.management.http.route import MONITORING, NOBODY
from headrace_broker.management.http.status_source import StatusSource
from headrace_broker.management.resources.metrics import MetricEndpoints
from headrace_broker.model.limits import METRIC_CONNECTIONS_MAX, METRIC_CONNECTIONS_OF_ADDRESS
from headrace_broker.runtime.calls.gate import CallGate


class MetricServer:
    """Serves the metrics of one node, in the clear.

    Args:
        source: what the node tells of itself.
        node: whose metrics.
        anonymous: no log-in is required.
        hosts: the names by which the node may be asked.
        calls: has requests take turns on the loop.
    """

    def __init__(
        self,
        source: StatusSource,
        node: Administration,
        anonymous: bool,
        hosts: Hosts | None = None,
        calls: CallGate | None = None,
    ) -> None:
        role = NOBODY if anonymous else MONITORING
        guard = Guard(LoginService(source, node.view), node.metrics.http, hosts, calls)
        app = web.Application(middlewares=[guard.handle])
        app.on_response_prepare.append(protect_prepared)
        for row in MetricEndpoints(node.metrics, source, role).routes():
            app.router.add_get(row.path, guard.guarded(row))
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        self._listener: HttpListener | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port (the one asked for, or a free one when that was 0).

        Raises:
            OSError: the address cannot be bound; nothing is left open.
        """
        await self._runner.setup()
        assert self._runner.server is not None, "it is there once the runner is set up"
        listener = HttpListener(
            self._runner.server,
            places=HttpPlaces(METRIC_CONNECTIONS_MAX, METRIC_CONNECTIONS_OF_ADDRESS),
        )
        try:
            bound = await listener.start(host, port)
        except OSError:
            await self.stop()
            raise
        self._listener = listener
        return bound

    async def stop(self) -> None:
        """Stop listening; one that was not started is left alone."""
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None
        await self._runner.cleanup()
