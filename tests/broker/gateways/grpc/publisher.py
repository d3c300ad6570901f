"""A publish stream as a client has it, and what tests ask of it."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status

from headrace_broker.codecs.batch import message_body
from headrace_protos.broker.v1.message_pb2 import Message
from headrace_protos.broker.v1.messaging_pb2 import PublishBatch, PublishOpen, PublishRequest


class Stream:
    """A publish stream as a client has it."""

    def __init__(self, served, **opening) -> None:
        self.call = served.messaging.Publish(metadata=served.GUEST)
        self.opening = PublishOpen(**{"vhost": "/", **opening})
        self.sequence = 1

    async def open(self):
        await self.call.write(PublishRequest(open=self.opening))
        self.opened = (await self.call.read()).opened
        return self

    async def send(self, *messages, first=None):
        batch = PublishBatch(first_sequence=first or self.sequence, messages=messages)
        self.sequence += len(messages)
        await self.call.write(PublishRequest(batch=batch))

    async def answer(self, kind):
        """The next answer, which is of this kind; windows that only grow are passed over."""
        while True:
            response = await self.call.read()
            found = response.WhichOneof("kind")
            if found != kind and found == "window" and not response.window.HasField("stop"):
                continue
            assert found == kind, response
            return getattr(response, kind)

    async def end(self):
        """Close this side; the answers that were still due."""
        await self.call.done_writing()
        rest = []
        while (response := await self.call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            if response.WhichOneof("kind") != "window":
                rest.append(response)
        assert await self.call.code() is grpc.StatusCode.OK
        return rest

    async def failure(self):
        return await failed(self.call)


async def failed(call):
    """Status, ErrorInfo and violated fields of a call that the broker ends."""
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await exhaust(call)
    info, request = ErrorInfo(), BadRequest()
    details = rpc_status.from_call(failure.value).details  # type: ignore[arg-type]
    assert details[0].Unpack(info)
    fields = []
    if len(details) > 1 and details[1].Unpack(request):
        fields = [each.field for each in request.field_violations]
    return failure.value, info, fields


def message(body=b"m", **more):
    return Message(body=body, **more)


def pairs(ranges):
    return [(each.first, each.last) for each in ranges]


def bodies(queue):
    return [message_body(each.blob, 0, each.position) for each in queue.ready]


async def exhaust(call):
    while await call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
        pass


async def until(condition):
    """Wait until a condition holds, one turn of the loop after the other."""
    while not condition():  # noqa: ASYNC110  (the server is in this loop)
        await asyncio.sleep(0)
