"""A client that consumes over gRPC, and what fills and reads its queue."""

from __future__ import annotations

from headrace_broker.model.message import Publish
from headrace_broker.runtime.contract.port import ACCEPT
from headrace_protos.broker.v1.message_pb2 import Range
from headrace_protos.broker.v1.messaging_pb2 import (
    ConsumeOpen,
    ConsumeRequest,
    Credit,
    Delivery,
    Outcome,
    Settle,
)


class Consumer:
    """A consume stream as a client has it."""

    def __init__(self, served, **opening) -> None:
        self.call = served.messaging.Consume(metadata=served.GUEST)
        self.opening = ConsumeOpen(**{"vhost": "/", "queue": "q", **opening})

    async def open(self):
        await self.send(open=self.opening)
        self.opened = (await self.call.read()).opened
        assert self.opened.node == "n1"
        return self

    async def send(self, **request):
        await self.call.write(ConsumeRequest(**request))

    async def credit(self, messages, byte_count=0, drain=False):
        await self.send(credit=Credit(messages=messages, octets=byte_count, drain=drain))

    async def settle(self, *ranges, outcome=Outcome.ACCEPT, **more):
        rows = [Range(first=first, last=last) for first, last in ranges]
        await self.send(settle=Settle(ranges=rows, outcome=outcome, **more))

    async def answer(self, kind):
        response = await self.call.read()
        assert response.WhichOneof("kind") == kind, response
        return getattr(response, kind)

    async def receive(self, count):
        """Receive that many deliveries, in however many responses."""
        found: list[Delivery] = []
        while len(found) < count:
            found += (await self.answer("deliveries")).deliveries
        assert len(found) == count
        return found


def publish(queue, *bodies, properties=b"\0\0"):
    queue.enqueue([Publish(1, b"\x01e\x01k", False, False, properties, body) for body in bodies])
    queue.dispatch()


def bodies(deliveries):
    return [each.body for each in deliveries]


def accepted(queue):
    return [number for operation, number in queue.settled if operation == ACCEPT]
