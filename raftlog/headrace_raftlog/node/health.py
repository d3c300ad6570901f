"""grpc.health.v1 on the server between nodes."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio  # type: ignore[attr-defined]  # the stubs leave it out

SERVICE_NAME: Final = "headrace.raftlog"
_SERVICES: Final = ("", SERVICE_NAME)


class NodeHealth:
    """Says SERVING while this node knows a leader of group 0 and its disk does not hang."""

    def __init__(self) -> None:
        self._servicer = aio.HealthServicer()
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving = True
        self._led = False
        self._stalled = False
        self.set_serving(False)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    def set_serving(self, serving: bool) -> None:
        """Note whether a leader is known."""
        self._led = serving
        self._answer()

    def set_stalled(self, stalled: bool) -> None:
        """Note whether the disk hangs."""
        self._stalled = stalled
        self._answer()

    def _answer(self) -> None:
        """Change the answer, and tell those that watch."""
        serving = self._led and not self._stalled
        if serving == self._serving:
            return
        self._serving = serving
        answer = health_pb2.HealthCheckResponse
        status = answer.SERVING if serving else answer.NOT_SERVING
        task = asyncio.create_task(self._set(status))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _set(self, status: int) -> None:
        for service in _SERVICES:
            await self._servicer.set(service, status)
