"""A gRPC server of a node in memory, on a free port of loopback, and a client of it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest

from headrace_broker.gateways.grpc.lease.leasing import LeaseService
from headrace_broker.gateways.grpc.messaging.messaging import MessagingService
from headrace_broker.gateways.grpc.server.call import Admission
from headrace_broker.gateways.grpc.server.server import GrpcServer, Service
from headrace_broker.model.limits import MESSAGE_BYTES_MAX
from headrace_broker.runtime.metrics.requests import GrpcMeter
from headrace_protos.broker.v1.lease_pb2_grpc import LeaseStub
from headrace_protos.broker.v1.messaging_pb2_grpc import MessagingStub


def basic(user: str, password: str) -> tuple[tuple[str, str], ...]:
    """Metadata of a call."""
    text = base64.b64encode(f"{user}:{password}".encode()).decode()
    return (("authorization", f"Basic {text}"),)


class Served:
    """A running server and a channel to it.

    Attributes:
        not_ready: why the node is not ready.
        meter: counts the calls of the messaging service.
    """

    GUEST = basic("guest", "guest")
    basic = staticmethod(basic)

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.not_ready = ""
        self.meter = GrpcMeter()
        admission = Admission(broker, self._reason, meter=self.meter)
        self.messaging_service = MessagingService(broker, admission, "127.0.0.1:1")
        self.lease_service = LeaseService(broker, Admission(broker, self._reason))
        services: list[Service] = [self.messaging_service, self.lease_service]
        self.server = GrpcServer(services, self._reason, MESSAGE_BYTES_MAX, admission)

    def _reason(self) -> str:
        return self.not_ready

    async def __aenter__(self) -> Served:
        [port] = await self.server.start(("127.0.0.1:0", None))
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        # Or a window that grows with the pace of the link lets in megabytes that nobody reads.
        options.append(("grpc.http2.bdp_probe", 0))
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
        self.messaging = MessagingStub(self.channel)
        self.lease = LeaseStub(self.channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close(None)
        await self.server.stop()


Scenario = Callable[[Served], Coroutine[Any, Any, None]]


@pytest.fixture
def serve(broker: Any) -> Callable[[Scenario], None]:
    """Runs a scenario against a server."""

    async def run(scenario: Scenario) -> None:
        async with asyncio.timeout(20), Served(broker) as served:
            await scenario(served)

    return lambda scenario: asyncio.run(run(scenario))
