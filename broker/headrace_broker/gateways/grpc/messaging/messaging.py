"""The service Messaging: publishing and consuming."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc

from headrace_broker.catalog.access import Caller as User
from headrace_broker.catalog.access import entrance_refusal
from headrace_broker.gateways.grpc.messaging.consuming import ConsumeCall, check_reads, find_queue
from headrace_broker.gateways.grpc.messaging.getting import get, get_cause
from headrace_broker.gateways.grpc.messaging.publishing import PublishCall, opened_at_ms
from headrace_broker.gateways.grpc.server.authentication import Caller
from headrace_broker.gateways.grpc.server.call import Admission
from headrace_broker.gateways.grpc.server.errors import CallError, Context, bad_field
from headrace_broker.gateways.grpc.server.lookup import check_name
from headrace_broker.gateways.grpc.server.request_parser import parsed_opening
from headrace_broker.gateways.grpc.server.standing import WhileAllowed
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import (
    GET_MESSAGES_MAX,
    NAME_BYTES_MAX,
    STREAM_OPEN_SECONDS,
    STREAMS_MAX,
)
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import ConnectionInfo
from headrace_protos.broker.v1.messaging_pb2 import (
    DESCRIPTOR,
    ConsumeRequest,
    GetRequest,
    GetResponse,
    PublishRequest,
)
from headrace_protos.broker.v1.messaging_pb2_grpc import (
    MessagingServicer,
    add_MessagingServicer_to_server,
)


class MessagingService(MessagingServicer):
    """Publishes and consumes for clients."""

    name = DESCRIPTOR.services_by_name["Messaging"].full_name

    def __init__(self, broker: Broker, admission: Admission, address: str) -> None:
        self._broker = broker  # the node
        self._admission = admission  # lets calls in
        self._address = address  # where the node serves gRPC, for listings
        self._numbers = itertools.count(1)
        self._infos: set[ConnectionInfo] = set()
        self._unopened = 0  # streams of which nothing has come yet

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register with a server."""
        add_MessagingServicer_to_server(self, server)

    async def stop(self, reason: str) -> None:
        """End all streams."""
        for info in list(self._infos):
            if info.control is not None:
                info.control.shut_down(reason)

    async def Publish(  # type: ignore[override]  # noqa: N802  (reads and writes by itself)
        self, request_iterator: AsyncIterator[PublishRequest], context: Context
    ) -> None:
        """Publish messages."""
        async with self._admission.call(context) as caller:
            opening = await self._opening(context, PublishRequest)
            info = self._enter(caller, opening)
            try:
                await PublishCall(self._broker, context, caller, info, opening).run()
            finally:
                self._infos.discard(info)

    async def Consume(  # type: ignore[override]  # noqa: N802  (likewise)
        self, request_iterator: AsyncIterator[ConsumeRequest], context: Context
    ) -> None:
        """Consume from a queue."""
        async with self._admission.call(context) as caller:
            opening = await self._opening(context, ConsumeRequest)
            tag = opening.consumer_tag
            if len(tag.encode()) > NAME_BYTES_MAX:
                raise bad_field("open.consumer_tag", f"must have at most {NAME_BYTES_MAX} bytes")
            info = self._enter(caller, opening)
            try:
                queue = await find_queue(
                    self._broker, caller.user, opening.vhost, opening.queue, "open.queue"
                )
                with self._while_reading(caller, queue):
                    call = ConsumeCall(self._broker, context, info, opening, queue)
                    del opening  # the call keeps what it needs
                    await call.run()
            finally:
                self._infos.discard(info)

    async def Get(  # noqa: N802  (the generated base names it)
        self, request: GetRequest, context: Context
    ) -> GetResponse:
        """Take messages that wait."""
        async with self._admission.call(context) as caller:
            check_vhost(self._broker, caller.who, request.vhost)
            if request.messages_max > GET_MESSAGES_MAX:
                raise bad_field("messages_max", f"must be at most {GET_MESSAGES_MAX}")
            broker = self._broker
            queue = await find_queue(broker, caller.user, request.vhost, request.queue)
            info = self._info(caller, request.vhost)
            cause = get_cause(info.id, info.name, broker.node_name, caller.user, request.vhost)
            with self._while_reading(caller, queue):
                return await get(broker, cause, queue, request.messages_max or 1)
        raise AssertionError("the call was ended")

    def _while_reading(self, caller: Caller, queue: Queue) -> WhileAllowed:
        """Return the event that ends a call when its user loses the read permission."""
        return self._admission.while_allowed(
            caller, queue.vhost, partial(check_reads, self._broker, queue)
        )

    async def _opening(self, context: Any, kind: type[Any]) -> Any:
        """Read the first request of a stream, which counts as open meanwhile.

        Raises:
            CallError: INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED.
        """
        self._check_room()
        self._unopened += 1
        try:
            async with asyncio.timeout(STREAM_OPEN_SECONDS):
                data = await context.read()
        except TimeoutError:
            text = f"the stream was not opened within {STREAM_OPEN_SECONDS} s"
            code = grpc.StatusCode.DEADLINE_EXCEEDED
            raise CallError(code, "NOT_OPENED", text) from None
        finally:
            self._unopened -= 1
        return parsed_opening(data, kind)

    def _enter(self, caller: Caller, opening: Any) -> ConnectionInfo:
        """Let a stream into its vhost, as one more connection.

        Raises:
            CallError: RESOURCE_EXHAUSTED.
            AmqpError: ACCESS_REFUSED, NOT_FOUND.
        """
        check_vhost(self._broker, caller.who, opening.vhost, "open.vhost")
        self._check_room()
        too_many = self._broker.client_counts.connection_refusal(caller.user, opening.vhost)
        if too_many:
            raise CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CONNECTIONS", too_many)
        if len(opening.name.encode()) > NAME_BYTES_MAX:
            raise bad_field("open.name", f"must have at most {NAME_BYTES_MAX} bytes")
        info = self._info(caller, opening.vhost)
        if opening.name:
            info.client_properties = {"connection_name": opening.name}
        self._infos.add(info)
        return info

    def _check_room(self) -> None:
        count = len(self._infos) + self._unopened
        if count >= STREAMS_MAX:
            text = f"{count} streams are open, which is the maximum of a node"
            raise CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS", text)

    def _info(self, caller: Caller, vhost: str) -> ConnectionInfo:
        broker = self._broker
        stream_id = f"{broker.node_name}/{broker.boot}/g{next(self._numbers)}"
        peer = f"{caller.host}:{caller.port}"
        info = ConnectionInfo(stream_id, f"{peer} -> {self._address}", peer, opened_at_ms())
        info.user = caller.user
        info.vhost = vhost
        info.mechanism = "PLAIN"
        return info


def check_vhost(broker: Broker, who: User, vhost: str, field: str = "vhost") -> None:
    """Refuse a vhost that is not there, or where the user has no permission.

    Raises:
        CallError: INVALID_ARGUMENT naming the field.
        AmqpError: ACCESS_REFUSED, NOT_FOUND to who may know which vhosts there are.
    """
    check_name(field, vhost)
    enters = broker.permissions.may_enter(who.name, vhost)
    refusal = entrance_refusal(who, vhost, broker.vhost_exists(vhost), enters)
    if refusal is not None:
        raise refusal
