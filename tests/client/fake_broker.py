# ruff: noqa: N802  (names of gRPC methods)
"""A broker in this process: the services that the client calls, with queues in memory.

What it does is only what tests of the client need; nothing of the real broker is in it.
"""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from tests.client.fake_exports import FakeExports
from tests.client.fake_leases import FakeLeases

from headrace_protos.broker.v1 import advice_pb2 as advice
from headrace_protos.broker.v1 import flow_pb2 as flow
from headrace_protos.broker.v1 import message_pb2 as message
from headrace_protos.broker.v1 import messaging_pb2 as messaging
from headrace_protos.broker.v1 import topology_pb2 as topology
from headrace_protos.broker.v1.advice_pb2_grpc import AdviceServicer, add_AdviceServicer_to_server
from headrace_protos.broker.v1.export_pb2_grpc import add_ExportServicer_to_server
from headrace_protos.broker.v1.flow_pb2_grpc import FlowServicer, add_FlowServicer_to_server
from headrace_protos.broker.v1.lease_pb2_grpc import add_LeaseServicer_to_server
from headrace_protos.broker.v1.messaging_pb2_grpc import (
    MessagingServicer,
    add_MessagingServicer_to_server,
)
from headrace_protos.broker.v1.topology_pb2_grpc import (
    TopologyServicer,
    add_TopologyServicer_to_server,
)

LOGIN = "Basic " + base64.b64encode(b"guest:guest").decode()
EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]


async def refuse(
    context: Any,
    code: grpc.StatusCode,
    text: str,
    reason: str = "",
    fields: Iterable[tuple[str, str]] = (),
    metadata: dict[str, str] | None = None,
    retry_s: int = 0,
) -> None:
    """End a call as the broker does."""
    details: list[Any] = [ErrorInfo(reason=reason, metadata=metadata or {})]
    violations = [BadRequest.FieldViolation(field=f, description=rule) for f, rule in fields]
    if violations:
        details.append(BadRequest(field_violations=violations))
    if retry_s:
        retry = RetryInfo()
        retry.retry_delay.seconds = retry_s
        details.append(retry)
    status = Status(code=code.value[0], message=text)
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    found = rpc_status.to_status(status)
    await context.abort(found.code, found.details, found.trailing_metadata)


class Closing:
    """Reads requests until the test has the broker end the stream."""

    def __init__(self) -> None:
        self._failure: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()

    def end(self, *failure: Any) -> None:
        forced = (grpc.StatusCode.ABORTED, "closed", "CONNECTION_FORCED")
        self._failure.set_result(failure or forced)

    async def read(self, context: Any) -> Any:
        reading = asyncio.ensure_future(context.read())
        await asyncio.wait({reading, self._failure}, return_when=asyncio.FIRST_COMPLETED)
        if not self._failure.done():
            return reading.result()
        reading.cancel()  # a broker that has ended a stream takes nothing of it any more
        await refuse(context, *self._failure.result())
        raise AssertionError("it was ended")


class Stream:
    """A publish stream that is open.

    Attributes:
        opening: its first request.
        sequences: of the messages that came, in order.
    """

    def __init__(self, context: Any, opening: Any) -> None:
        self.context = context
        self.opening = opening
        self.sequences: list[int] = []
        self.byte_count = 0
        self.ended = asyncio.Event()
        self._closing = Closing()
        self._write = asyncio.Lock()

    def end(self, *failure: Any) -> None:
        """End it by the broker: code, text, reason; CONNECTION_FORCED otherwise."""
        self._closing.end(*failure)

    async def read(self) -> Any:
        return await self._closing.read(self.context)

    async def write(self, **answer: Any) -> None:
        async with self._write:
            await self.context.write(messaging.PublishResponse(**answer))

    async def confirm(self, *numbers: int) -> None:
        ranges = [message.Range(first=each, last=each) for each in numbers]
        await self.write(confirmed=messaging.Confirmed(ranges=ranges))

    async def refuse(self, number: int, **why: Any) -> None:
        ranges = [message.Range(first=number, last=number)]
        await self.write(refused=messaging.Refused(ranges=ranges, **why))

    async def window(self, messages: int, byte_count: int = 1 << 30, stop: Any = None) -> None:
        await self.write(window=messaging.Window(messages=messages, octets=byte_count, stop=stop))


class FakeBroker(MessagingServicer, TopologyServicer, FlowServicer, AdviceServicer):
    """See the module.

    Attributes:
        queues: bodies by name.
        confirms: messages are confirmed as they come.
        window: messages that a new publish stream may send, and bytes.
        renews: the window is renewed as messages come.
        pushes: consumers with credit get what is published, not only what waits when they give it.
        refuses: bodies that no queue takes.
        refusal: what is said of them.
        streams: publish streams, the newest last; those that are over as well.
        consumes: consume streams, likewise.
        settles: what consumers settled: (outcome, first, last).
        credits: what consumers gave: (messages, bytes, drain).
        failure: what every call fails with, (code, text, reason).
        calls: names of unary methods that were called.
        answers: for unary methods, by name: an answer, or what to raise.
        beat_ms: between heartbeats of watches.
        alarms: that a watch begins with.
        leases: the service that leases messages.
    """

    def __init__(self, name: str = "n1") -> None:
        self.name = name
        self.port = 0
        self.queues: dict[str, deque[bytes]] = {}
        self.confirms = True
        self.window = (4096, 1 << 20)
        self.renews = True
        self.pushes = False
        self.refuses: set[bytes] = set()
        self.refusal: dict[str, Any] = {
            "code": 8, "reason": "QUEUE_REFUSED", "text": "a queue is full", "limit": "max-length"
        }  # fmt: skip
        self.streams: list[Stream] = []
        self.consumes: list[FakeConsume] = []
        self.settles: list[tuple[int, int, int]] = []
        self.credits: list[tuple[int, int, bool]] = []
        self.failure: tuple[Any, ...] | None = None
        self.calls: list[tuple[str, Any]] = []
        self.answers: dict[str, Any] = {}
        self.message_bytes_max = 1 << 20
        self.batch_messages_max = 4096
        self.next_sequence = 1
        self.beat_ms = 5000
        self.alarms: list[flow.Alarm] = []
        self.watches: list[asyncio.Queue[Any]] = []
        self.changed = asyncio.Condition()
        self.leases = FakeLeases(self)
        self.exports = FakeExports(self)
        self._server: grpc.aio.Server | None = None

    # Its life

    async def start(self, port: int = 0) -> FakeBroker:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add_MessagingServicer_to_server(self, server)
        add_TopologyServicer_to_server(self, server)
        add_FlowServicer_to_server(self, server)
        add_LeaseServicer_to_server(self.leases, server)
        add_ExportServicer_to_server(self.exports, server)
        add_AdviceServicer_to_server(self, server)
        self.port = server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        self._server = server
        return self

    async def stop(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(0)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def taken(self) -> list[int]:
        """Numbers of the publishes on the first stream, none before it is opened."""
        return self.streams[0].sequences if self.streams else []

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until something has come about."""
        async with self.changed:
            await self.changed.wait_for(condition)

    async def _news(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def refuse(self, context: Any, *refusal: Any) -> None:
        """End a call as the broker does."""
        await refuse(context, *refusal)

    async def admit(self, context: Any) -> None:
        metadata = dict(context.invocation_metadata() or ())
        if metadata.get("authorization") != LOGIN:
            await refuse(context, grpc.StatusCode.UNAUTHENTICATED, "log in", "NOT_AUTHORIZED")
        if self.failure is not None:
            await refuse(context, *self.failure)

    # Messaging

    async def Publish(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]
        await self.admit(context)
        stream = Stream(context, (await context.read()).open)
        messages, byte_count = self.window
        opened = messaging.PublishOpened(
            node=self.name,
            next_sequence=self.next_sequence,
            batch_messages_max=self.batch_messages_max,
            batch_octets_max=1 << 20,
            message_octets_max=self.message_bytes_max,
            window=messaging.Window(messages=messages, octets=byte_count),
        )
        await stream.write(opened=opened)
        self.streams.append(stream)
        await self._news()
        try:
            while (request := await stream.read()) is not EOF:
                await self._batch(stream, request.batch)
        finally:
            stream.ended.set()

    async def _batch(self, stream: Stream, batch: Any) -> None:
        stream.byte_count += batch.ByteSize()
        numbers = range(batch.first_sequence, batch.first_sequence + len(batch.messages))
        stream.sequences += numbers
        confirmed = []
        for number, each in zip(numbers, batch.messages, strict=True):
            if each.body in self.refuses:
                await stream.refuse(number, **self.refusal)
                continue
            route = each.routing_key if each.HasField("routing_key") else stream.opening.routing_key
            queue = self.queues.get(route)
            if queue is not None:
                queue.append(each.body)
            elif stream.opening.mandatory:
                told = messaging.Returned(sequence=number, code=312, text="NO_ROUTE")
                await stream.write(returned=told)
            confirmed.append(number)
        if self.pushes:
            for consume in self.consumes:
                if not consume.ended.is_set():
                    await consume.deliver()
        if self.confirms and stream.opening.confirms and confirmed:
            await stream.confirm(*confirmed)
        if self.renews:
            messages, byte_count = self.window
            await stream.window(len(stream.sequences) + messages, stream.byte_count + byte_count)
        await self._news()

    async def Consume(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]
        await self.admit(context)
        opening = (await context.read()).open
        if opening.queue not in self.queues:
            text = f"no queue '{opening.queue}'"
            await refuse(context, grpc.StatusCode.NOT_FOUND, text, "NOT_FOUND")
        consume = FakeConsume(self, context, opening)
        self.consumes.append(consume)
        await self._news()
        await consume.serve()

    async def Get(self, request: Any, context: Any) -> Any:
        await self.unary("Get", request, context)
        queue = self.queues.get(request.queue, deque())
        found = [queue.popleft() for _ in range(min(request.messages_max, len(queue)))]
        return messaging.GetResponse(
            deliveries=[messaging.Delivery(body=body) for body in found], messages_left=len(queue)
        )

    # Unary methods

    async def unary(self, name: str, request: Any, context: Any) -> Any:
        await self.admit(context)
        self.calls.append((name, request))
        context.set_trailing_metadata((("headrace-node", self.name),))
        await self._news()
        answer = self.answers.get(name)
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            answer = None
        if isinstance(answer, tuple):
            await refuse(context, *answer)
        return answer

    async def DescribeExchange(self, request: Any, context: Any) -> Any:
        answer = await self.unary("DescribeExchange", request, context)
        return answer or topology.ExchangeDescription(type="direct")

    # Watches

    async def WatchAlarms(self, request: Any, context: Any) -> None:  # type: ignore[override]
        await self.admit(context)
        answers: asyncio.Queue[Any] = asyncio.Queue()
        self.watches.append(answers)
        await self._news()
        if self.beat_ms:
            first = flow.WatchAlarmsResponse(
                alarms=self.alarms, snapshot_complete=True, heartbeat_ms=self.beat_ms
            )
            await context.write(first)
        while (answer := await answers.get()) is not None:
            await context.write(answer)

    async def WatchFlow(self, request: Any, context: Any) -> None:  # type: ignore[override]
        await self.admit(context)
        self.calls.append(("WatchFlow", request))
        answers: asyncio.Queue[Any] = asyncio.Queue()
        self.watches.append(answers)
        await self._news()
        while (answer := await answers.get()) is not None:
            await context.write(answer)


def _method(name: str) -> Any:
    async def call(self: FakeBroker, request: Any, context: Any) -> Any:
        return await self.unary(name, request, context)

    return call


for _service in (topology.DESCRIPTOR, flow.DESCRIPTOR, advice.DESCRIPTOR):
    for _descriptor in _service.services_by_name.values():
        for _each in _descriptor.methods:
            if not _each.server_streaming and _each.name not in vars(FakeBroker):
                setattr(FakeBroker, _each.name, _method(_each.name))


class FakeConsume:
    """A consume stream.

    Attributes:
        unsettled: bodies by delivery id.
    """

    def __init__(self, broker: FakeBroker, context: Any, opening: Any) -> None:
        self.opening = opening
        self.unsettled: dict[int, bytes] = {}
        self.credit = 0
        self.answers_settles = True
        self.ended = asyncio.Event()
        self._closing = Closing()
        self._broker = broker
        self._context = context
        self._next = 1
        self._draining = False
        self._write = asyncio.Lock()

    async def write(self, **answer: Any) -> None:
        async with self._write:
            await self._context.write(messaging.ConsumeResponse(**answer))

    def end(self, *failure: Any) -> None:
        """End it by the broker: code, text, reason; CONNECTION_FORCED otherwise."""
        self._closing.end(*failure)

    async def serve(self) -> None:
        broker = self._broker
        opened = messaging.ConsumeOpened(node=broker.name, consumer_tag="tag")
        await self.write(opened=opened)
        if self.opening.HasField("credit"):
            await self._give(self.opening.credit)
        try:
            while (request := await self._closing.read(self._context)) is not EOF:
                kind = request.WhichOneof("kind")
                if kind == "credit":
                    await self._give(request.credit)
                elif kind == "settle":
                    await self._settle(request.settle)
                elif kind == "cancel":
                    self.credit = 0
                    await self.write(cancelled=messaging.Cancelled())
                await broker._news()
        finally:
            queue = broker.queues.get(self.opening.queue)
            if queue is not None:
                queue.extendleft(reversed(self.unsettled.values()))
            self.ended.set()

    async def _give(self, credit: Any) -> None:
        self._broker.credits.append((credit.messages, credit.octets, credit.drain))
        self.credit += credit.messages
        self._draining = credit.drain
        await self.deliver()

    async def deliver(self) -> None:
        """Send what there is credit for."""
        queue = self._broker.queues.get(self.opening.queue, deque())
        found = []
        while queue and self.credit > 0:
            body = queue.popleft()
            found.append(
                messaging.Delivery(
                    delivery_id=self._next, body=body, routing_key=self.opening.queue
                )
            )
            if not self.opening.no_ack:
                self.unsettled[self._next] = body
            self._next += 1
            self.credit -= 1
        if found:
            await self.write(deliveries=messaging.Deliveries(deliveries=found))
        if self._draining:
            left, self.credit, self._draining = self.credit, 0, False
            await self.write(drained=messaging.Drained(messages=left))

    async def _settle(self, settle: Any) -> None:
        queue = self._broker.queues.setdefault(self.opening.queue, deque())
        for each in settle.ranges:
            self._broker.settles.append((settle.outcome, each.first, each.last))
            for number in range(each.first, each.last + 1):
                body = self.unsettled.pop(number)
                back = settle.outcome == messaging.RELEASE
                back = back or (
                    settle.outcome == messaging.MODIFY and not settle.undeliverable_here
                )
                if back:
                    queue.appendleft(body)
        if self.answers_settles:
            await self.write(settled=messaging.Settled(ranges=settle.ranges))


async def come(condition: Callable[[], Any]) -> None:
    """Wait until something on the client's side has come about."""
    while not condition():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
