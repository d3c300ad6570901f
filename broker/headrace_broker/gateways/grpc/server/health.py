"""The standard health service: every service of a node is as ready as the node.

Source: https://github.com/grpc/grpc/blob/master/doc/health-checking.md
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer, add_HealthServicer_to_server

from headrace_broker.gateways.grpc.errors import CallError, Context, abort
from headrace_broker.model.limits import HEALTH_LOOK_MS, HEALTH_WATCHES_MAX

NAME = "grpc.health.v1.Health"


class HealthService(HealthServicer):  # type: ignore[misc]  # grpc_health has no types
    """Answers for the node as a whole ("") and for each of its services, to anybody.

    Args:
        not_ready_reason: returns why clients should not be sent here now, "" when they may.
        services: full names of what the server serves.
    """

    name = NAME

    def __init__(self, not_ready_reason: Callable[[], str], services: Collection[str]) -> None:
        self._not_ready_reason = not_ready_reason
        self._services = frozenset({"", NAME, *services})
        self._watches = 0

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register with a server."""
        add_HealthServicer_to_server(self, server)

    async def Check(  # noqa: N802  (the generated base names it)
        self, request: Any, context: Context
    ) -> Any:
        """Say how it stands with a service."""
        if request.service not in self._services:
            text = f"service: there is no {request.service!r}"
            await abort(context, CallError(grpc.StatusCode.NOT_FOUND, "UNKNOWN_SERVICE", text))
        return HealthCheckResponse(status=self._status(request.service))

    async def Watch(  # noqa: N802  (the generated base names it)
        self, request: HealthCheckRequest, context: Context
    ) -> AsyncIterator[Any]:
        """Say it now and at each change."""
        if self._watches >= HEALTH_WATCHES_MAX:
            text = f"{self._watches} clients watch already, which is the maximum"
            error = CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_WATCHES", text)
            await abort(context, error)
        self._watches += 1
        try:
            told = None
            while True:
                status = self._status(request.service)
                if status != told:
                    yield HealthCheckResponse(status=status)
                    told = status
                await asyncio.sleep(HEALTH_LOOK_MS / 1000)
        finally:
            self._watches -= 1

    def _status(self, service: str) -> Any:
        if service not in self._services:
            return HealthCheckResponse.SERVICE_UNKNOWN
        if self._not_ready_reason():
            return HealthCheckResponse.NOT_SERVING
        return HealthCheckResponse.SERVING
