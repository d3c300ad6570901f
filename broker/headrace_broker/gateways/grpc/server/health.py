"""The standard health service: every service of a node is as ready as the node.

Source: https://github.com/grpc/grpc/blob/master/doc/health-checking.md
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer, add_HealthServicer_to_server

from headrace_broker.gateways.grpc.server.authentication import parse_peer
from headrace_broker.gateways.grpc.server.errors import CallError, Context, abort
from headrace_broker.model.limits import (
    HEALTH_LOOK_MS,
    HEALTH_WATCHES_MAX,
    HEALTH_WATCHES_OF_ADDRESS,
)
from headrace_broker.runtime.calls.fair_places import FairPlaces
from headrace_broker.runtime.security.login_limit import site

NAME = "grpc.health.v1.Health"


class HealthService(HealthServicer):  # type: ignore[misc]  # grpc_health has no types
    """Answers for the node as a whole ("") and for each of its services, to anybody.

    Args:
        services: full names of what the server serves.
    """

    name = NAME

    def __init__(self, not_ready_reason: Callable[[], str], services: Collection[str]) -> None:
        # returns why clients should not be sent here now, "" when they may
        self._not_ready_reason = not_ready_reason
        self._services = frozenset({"", NAME, *services})
        self._watches = FairPlaces[asyncio.Event](HEALTH_WATCHES_MAX, HEALTH_WATCHES_OF_ADDRESS)

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
        address = site(parse_peer(context.peer())[0])
        lost = asyncio.Event()
        refusal = self._enter(address, lost)
        try:
            told = None
            while not refusal:
                status = self._status(request.service)
                if status != told:
                    yield HealthCheckResponse(status=status)
                    told = status
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HEALTH_LOOK_MS / 1000):
                        await lost.wait()
                    refusal = "another client, from where fewer watch, has the place of this one"
        finally:
            self._watches.leave(address, lost)
        error = CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_WATCHES", refusal)
        await abort(context, error)

    def _enter(self, address: str, lost: asyncio.Event) -> str:
        """Admit one more watch, or return why not.

        A place is taken from an address that still has more afterwards: who watches stays.

        Args:
            address: of who wants to.
            lost: is set when somebody else has the place.
        """
        watches = self._watches
        mine = watches.of(address)
        if mine >= HEALTH_WATCHES_OF_ADDRESS:
            return f"{mine} clients of this address watch already, which is the maximum"
        if watches.taken >= HEALTH_WATCHES_MAX and watches.most < mine + 2:
            return f"{watches.taken} clients watch already, which is the maximum"
        loser = watches.take(address, lost)
        if loser is not None:
            loser.set()
        return ""

    def _status(self, service: str) -> Any:
        if service not in self._services:
            return HealthCheckResponse.SERVICE_UNKNOWN
        if self._not_ready_reason():
            return HealthCheckResponse.NOT_SERVING
        return HealthCheckResponse.SERVING
