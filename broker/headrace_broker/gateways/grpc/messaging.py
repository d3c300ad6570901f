"""The service Messaging: publishing and consuming."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NoReturn

import grpc

from headrace_broker.gateways.grpc.call import Admission
from headrace_broker.gateways.grpc.errors import CallError, Context
from headrace_broker.gateways.grpc.pb.messaging_pb2 import (
    DESCRIPTOR,
    ConsumeRequest,
    GetRequest,
    GetResponse,
    PublishRequest,
)
from headrace_broker.gateways.grpc.pb.messaging_pb2_grpc import (
    MessagingServicer,
    add_MessagingServicer_to_server,
)
from headrace_broker.runtime.port import Broker


class MessagingService(MessagingServicer):
    """Publishes and consumes for clients.

    Args:
        broker: the node.
        admission: lets calls in.
    """

    name = DESCRIPTOR.services_by_name["Messaging"].full_name

    def __init__(self, broker: Broker, admission: Admission) -> None:
        self._broker = broker
        self._admission = admission

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register with a server."""
        add_MessagingServicer_to_server(self, server)

    async def stop(self) -> None:
        """End what calls do by themselves; they are cut off soon after."""

    async def Publish(  # type: ignore[override]  # noqa: N802  (reads and writes by itself)
        self, request_iterator: AsyncIterator[PublishRequest], context: Context
    ) -> None:
        """Publish messages."""
        await self._missing(context)

    async def Consume(  # type: ignore[override]  # noqa: N802  (likewise)
        self, request_iterator: AsyncIterator[ConsumeRequest], context: Context
    ) -> None:
        """Consume from a queue."""
        await self._missing(context)

    async def Get(  # noqa: N802  (the generated base names it)
        self, request: GetRequest, context: Context
    ) -> GetResponse:
        """Take messages that wait."""
        await self._missing(context)

    async def _missing(self, context: Context) -> NoReturn:
        async with self._admission.call(context):
            raise CallError(
                grpc.StatusCode.UNIMPLEMENTED, "NOT_IMPLEMENTED", "this version cannot do it yet"
            )
        raise AssertionError("the call was ended")
