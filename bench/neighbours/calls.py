"""Clients that make calls over gRPC and HTTP as often as a node lets them."""

from __future__ import annotations

import asyncio
import base64
import http.client
import itertools
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc

from headrace_broker.cli.local_cluster import GRPC_OFFSET, HTTP_OFFSET
from headrace_protos.broker.v1 import flow_pb2, messaging_pb2, topology_pb2
from headrace_protos.broker.v1.flow_pb2_grpc import FlowStub
from headrace_protos.broker.v1.message_pb2 import Message
from headrace_protos.broker.v1.messaging_pb2_grpc import MessagingStub
from headrace_protos.broker.v1.topology_pb2_grpc import TopologyStub

QUEUES: Final = 3000  # that expensive calls list
CALLS_AT_ONCE: Final = 64  # of a connection over gRPC
LARGE_BYTES: Final = 16 << 20
LOGIN: Final = "Basic " + base64.b64encode(b"guest:guest").decode()
METADATA: Final = (("authorization", LOGIN),)
QUEUE: Final = "hostile-calls"

Run = Callable[[int], None]
Call = Callable[[grpc.aio.Channel], Awaitable[Any]]


def declare_many(port: int, count: int = QUEUES) -> None:
    """Declare queues without replicas, which are quick to make."""
    queue = {"vhost": "/", "durable": False, "auto_delete": False}
    queues = [{"name": f"many-{at}", **queue, "arguments": {}} for at in range(count)]
    client = http.client.HTTPConnection("127.0.0.1", port + HTTP_OFFSET, timeout=300)
    headers = {"Authorization": LOGIN, "Content-Type": "application/json"}
    client.request("POST", "/api/definitions", json.dumps({"queues": queues}), headers)
    answer = client.getresponse()
    assert answer.status < 300, answer.read()
    client.close()


# gRPC


def grpc_calls(call: Call, at_once: int = CALLS_AT_ONCE, many: bool = False) -> Run:
    """Return what makes a call on one connection, so many at once, without end."""

    async def one(channel: grpc.aio.Channel) -> None:
        while True:
            try:
                await call(channel)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0)

    async def run(port: int) -> None:
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        address = f"127.0.0.1:{port + GRPC_OFFSET}"
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            await _declare(channel)
            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(one(channel))

    def start(port: int) -> None:
        if many:
            declare_many(port)
        asyncio.run(run(port))

    return start


async def _declare(channel: grpc.aio.Channel) -> None:
    request = topology_pb2.DeclareQueueRequest(vhost="/", name=QUEUE)
    await TopologyStub(channel).DeclareQueue(request, metadata=METADATA)


async def _describe(channel: grpc.aio.Channel) -> None:
    request = topology_pb2.DescribeQueueRequest(vhost="/", name=QUEUE)
    await TopologyStub(channel).DescribeQueue(request, metadata=METADATA)


async def _list(channel: grpc.aio.Channel) -> None:
    page = topology_pb2.PageRequest(size=1000)
    request = topology_pb2.ListQueuesRequest(vhost="/", page=page)
    await TopologyStub(channel).ListQueues(request, metadata=METADATA)


async def _why(channel: grpc.aio.Channel) -> None:
    request = flow_pb2.WhyRequest(queue=QUEUE, vhost="/")
    await FlowStub(channel).Why(request, metadata=METADATA)


async def _get(channel: grpc.aio.Channel) -> None:
    request = messaging_pb2.GetRequest(vhost="/", queue=QUEUE)
    await MessagingStub(channel).Get(request, metadata=METADATA)


async def _large(channel: grpc.aio.Channel) -> None:
    request = topology_pb2.DescribeQueueRequest(vhost="/", name="x" * LARGE_BYTES)
    await TopologyStub(channel).DescribeQueue(request, metadata=METADATA)


async def _streams(channel: grpc.aio.Channel) -> None:
    stub: Any = MessagingStub(channel)  # the stated types know requests of an iterator only
    call = stub.Consume(metadata=METADATA)
    opening = messaging_pb2.ConsumeOpen(vhost="/", queue=QUEUE)
    await call.write(messaging_pb2.ConsumeRequest(open=opening))
    await call.read()
    call.cancel()


async def _publish(channel: grpc.aio.Channel) -> None:
    """Publish messages without bytes, each in a batch of its own, whatever the window says."""

    async def requests() -> AsyncIterator[Any]:
        opening = messaging_pb2.PublishOpen(vhost="/", routing_key=QUEUE)
        yield messaging_pb2.PublishRequest(open=opening)
        for number in itertools.count(1):
            batch = messaging_pb2.PublishBatch(first_sequence=number, messages=[Message()])
            yield messaging_pb2.PublishRequest(batch=batch)

    async for _ in MessagingStub(channel).Publish(requests(), metadata=METADATA):
        pass


async def _credit(channel: grpc.aio.Channel) -> None:
    async def requests() -> AsyncIterator[Any]:
        opening = messaging_pb2.ConsumeOpen(vhost="/", queue=QUEUE)
        yield messaging_pb2.ConsumeRequest(open=opening)
        while True:
            yield messaging_pb2.ConsumeRequest(credit=messaging_pb2.Credit(messages=1))

    async for _ in MessagingStub(channel).Consume(requests(), metadata=METADATA):
        pass


describe = grpc_calls(_describe)
list_queues = grpc_calls(_list, at_once=8, many=True)
why = grpc_calls(_why)
get = grpc_calls(_get)
large = grpc_calls(_large, at_once=8)
streams = grpc_calls(_streams)
publish = grpc_calls(_publish, at_once=16)
credit = grpc_calls(_credit, at_once=16)


# HTTP


def http_requests(path: str, method: str = "GET", body: Any = None, many: bool = False) -> Run:
    """Return what sends a request on one connection, many ahead of their answers, without end."""
    data = json.dumps(body).encode() if body is not None else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {LOGIN}\r\n"
    head += f"Content-Length: {len(data)}\r\n\r\n"
    once = head.encode() + data

    def run(port: int) -> None:
        if many:
            declare_many(port)
        with socket.create_connection(("127.0.0.1", port + HTTP_OFFSET)) as client:
            threading.Thread(target=_drop, args=(client,), daemon=True).start()
            while True:
                client.sendall(once * max(1, 16384 // len(once)))

    return run


def _drop(client: socket.socket) -> None:
    while client.recv(1 << 20):
        pass
