"""The call Messaging.Publish: its requests into a stream, and answers out of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

import grpc

from headrace_broker.core.queue.messages.publisher import SEQUENCE_MAX, check_publisher
from headrace_broker.flow.activity import Activity
from headrace_broker.gateways.grpc.messaging.batch_reader import BatchReader
from headrace_broker.gateways.grpc.messaging.publish_stream import PublishStream, Refusal
from headrace_broker.gateways.grpc.messaging.stream_control import StreamControl, cut_off_later
from headrace_broker.gateways.grpc.server.authentication import Caller
from headrace_broker.gateways.grpc.server.errors import CallError, Context, bad_field, from_amqp
from headrace_broker.gateways.grpc.server.request_parser import BatchParser, Parse
from headrace_broker.gateways.grpc.values.values import ValueProblemError
from headrace_broker.gateways.publishing.shell import Shell
from headrace_broker.model.flow import LIMIT_NAMES, STREAM
from headrace_broker.model.limits import (
    STREAM_ANSWERS_MAX,
    STREAM_BATCH_BYTES_MAX,
    STREAM_BATCH_MESSAGES_MAX,
)
from headrace_broker.model.message import Publisher
from headrace_broker.model.reply_code import CONTENT_TOO_LARGE, SYNTAX_ERROR, AmqpError
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.calls.gate import turns_of_call
from headrace_broker.runtime.contract.port import ConnectionInfo
from headrace_protos.broker.v1.message_pb2 import Range
from headrace_protos.broker.v1.messaging_pb2 import (
    Confirmed,
    PublishBatch,
    PublishOpen,
    PublishOpened,
    PublishRequest,
    PublishResponse,
    Refused,
    Returned,
    Stop,
    Window,
)

PROTOCOL: Final = "gRPC Publish"
QUEUE_REFUSED: Final = "QUEUE_REFUSED"
FENCED: Final = "FENCED"
NO_LEADER: Final = "NO_LEADER"
PARSE_BATCH: Final = BatchParser(PublishRequest.FromString, spine=(2, 2), body=4)
MAX_LENGTH: Final = "max-length"  # the limit by which queues refuse


class PublishCall(Shell):
    """Serves one call; as a shell it gives the stream its turns, timers and operations."""

    def __init__(
        self,
        broker: Broker,
        context: Context,
        caller: Caller,  # who publishes
        info: ConnectionInfo,
        opening: PublishOpen,  # the first request
    ) -> None:
        self._broker = broker  # the node
        self._context = context  # of the call
        self._info = info  # for listings; `vhost` is set
        info.kind = STREAM
        info.protocol = PROTOCOL
        info.flow = Activity(broker.clock_us(), broker.ledger.stops)
        info.channels = 1
        self._parse: Parse = PARSE_BATCH
        self._batches = reader_of(opening, broker.limits.whole_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._turns = turns_of_call()
        self._turn_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._group: asyncio.TaskGroup | None = None
        self._changed = asyncio.Event()  # there is something to write, or to end
        self._readable = asyncio.Event()
        self._next_sequence = 1
        self._no_more = False  # the client has closed its side
        self._failure: CallError | None = None
        self._task = asyncio.current_task()
        self._cut_off: asyncio.TimerHandle | None = None
        self._name = name_of(opening)
        self._stream = PublishStream(broker, self, info, opening.confirms, self._name)
        info.control = StreamControl(info, self._stream, self._end)

    async def run(self) -> None:
        """Serve the call to its end.

        Raises:
            CallError: the client broke a rule, or the broker has to end the call.
        """
        stream, broker = self._stream, self._broker
        cause = stream.output.admission.account.cause
        cause.user, cause.vhost = self._info.user, self._info.vhost
        cause.client_name = self._info.client_name()
        broker.connection_opened(self._info)
        try:
            stream.begin()
            await self._context.send_initial_metadata(())  # see `RequestGate`
            await self._context.write(PublishResponse(opened=self._opened()))
            async with asyncio.TaskGroup() as group:
                self._group = group
                reader = group.create_task(self._read())
                try:
                    await self._write()
                finally:
                    self._group = None
                    stream.close()
                    reader.cancel()
        finally:
            stream.close()
            broker.connection_closed(self._info)
            for timer in (self._timer, self._cut_off):
                if timer is not None:
                    timer.cancel()
        if self._failure is not None:
            raise self._failure

    def _opened(self) -> PublishOpened:
        self._stream.is_told = True
        return PublishOpened(
            node=self._broker.node_name,
            next_sequence=self._next_sequence,
            batch_messages_max=STREAM_BATCH_MESSAGES_MAX,
            batch_octets_max=STREAM_BATCH_BYTES_MAX,
            message_octets_max=self._broker.limits.whole_bytes_max,
            window=self._window(),
        )

    # Requests

    async def _read(self) -> None:
        """Read while the stream may be, until the client has nothing more or breaks a rule."""
        context: Any = self._context
        try:
            while True:
                await self._readable_again()
                data = await context.read()
                if data is grpc.aio.EOF:  # type: ignore[attr-defined]
                    break
                await self._turns.request()
                with self._turns.watched():
                    self._take(self._parse(data))
                del data  # the next one may take its time
        except CallError as error:
            self._end(error)
        self._no_more = True
        self._changed.set()

    async def _readable_again(self) -> None:
        while not self._may_read():
            self._readable.clear()
            await self._readable.wait()

    def _may_read(self) -> bool:
        stream = self._stream
        confirms = stream.confirms
        answers = len(confirms.confirmed) + len(confirms.refused) + len(confirms.fenced)
        answers += sum(map(len, confirms.unreached.values()))
        answers += len(stream.publisher.refusals) + len(stream.publisher.returned)
        return stream.may_read and answers < STREAM_ANSWERS_MAX

    def _take(self, request: PublishRequest) -> None:
        kind = request.WhichOneof("kind")
        if kind != "batch":
            rule = "only the first request opens the stream" if kind == "open" else "must be set"
            raise bad_field(kind or "kind", rule)
        batch = request.batch
        size = batch.ByteSize()
        self._check(batch, size)
        stream = self._stream
        count = len(batch.messages)
        stream.receive(count, size)
        groups = self._batches.read(batch.first_sequence, batch.messages)
        self._next_sequence = batch.first_sequence + count
        faults = self._batches.faults
        if faults:
            for fault in faults:
                code = CONTENT_TOO_LARGE if fault.too_large else SYNTAX_ERROR
                stream.publisher.refuse_range(
                    fault.sequence, fault.sequence, code, fault.text.lstrip(".")
                )
        for group in groups:
            stream.accept(group)
        stream.end_batch()

    def _check(self, batch: PublishBatch, size: int) -> None:
        count = len(batch.messages)
        if not count:
            raise bad_field("batch.messages", "must not be empty")
        behind = batch.first_sequence < self._next_sequence
        if behind or (batch.first_sequence > self._next_sequence and self._name is None):
            rule = f"must be {self._next_sequence}, the one that follows"
            if self._name is not None:
                rule = f"must be {self._next_sequence} or higher"
            error = bad_field("batch.first_sequence", rule)
            error.reason = "SEQUENCE_GAP"
            error.metadata["next_sequence"] = str(self._next_sequence)
            raise error
        if batch.first_sequence + count > SEQUENCE_MAX:
            raise bad_field(
                "batch.first_sequence", f"must be {SEQUENCE_MAX} at most with all of it"
            )
        if count > STREAM_BATCH_MESSAGES_MAX:
            raise bad_field("batch.messages", f"must be at most {STREAM_BATCH_MESSAGES_MAX}")
        if count > 1 and size > STREAM_BATCH_BYTES_MAX:
            rule = f"more than one message must have at most {STREAM_BATCH_BYTES_MAX} bytes"
            raise bad_field("batch", rule)

    # Responses

    async def _write(self) -> None:
        """Write answers, until the client is done and all of its messages are answered."""
        context: Any = self._context
        while True:
            self._changed.clear()
            for response in self._responses():
                await context.write(response)
            self._readable.set()
            if self._failure is not None or (self._no_more and self._stream.is_done):
                if not self._has_answers():
                    return
                continue
            await self._changed.wait()

    def _has_answers(self) -> bool:
        stream = self._stream
        confirms = stream.confirms
        answers = confirms.confirmed or confirms.refused or confirms.fenced or confirms.unreached
        return bool(answers or stream.publisher.refusals or stream.publisher.returned)

    def _responses(self) -> Iterator[PublishResponse]:
        """Return the pending answers: returns before their confirm, as in AMQP."""
        stream = self._stream
        confirms = stream.confirms
        returned, stream.publisher.returned = stream.publisher.returned, []
        for each in returned:
            told = Returned(sequence=each.sequence, code=each.code, text=each.text)
            yield PublishResponse(returned=told)
        refusals, stream.publisher.refusals = stream.publisher.refusals, []
        for refusal in refusals:
            yield PublishResponse(refused=refused(refusal))
        rows, confirms.fenced = confirms.fenced, []
        if rows:
            yield PublishResponse(refused=fenced(rows))
        rows, confirms.refused = confirms.refused, []
        if rows:
            yield PublishResponse(refused=overflowed(rows))
        unreached, confirms.unreached = confirms.unreached, {}
        for text, rows in unreached.items():
            yield PublishResponse(refused=leaderless(rows, text))
        rows, confirms.confirmed = confirms.confirmed, []
        if rows:
            yield PublishResponse(confirmed=Confirmed(ranges=ranges_of(rows)))
        if not stream.is_told:
            stream.is_told = True
            yield PublishResponse(window=self._window())

    def _window(self) -> Window:
        stream = self._stream
        window = Window(messages=int(stream.window.messages), octets=int(stream.window.byte_count))
        told = stream.told
        if told.is_on:
            queue = self._broker.queue_by_group(int(told.group))
            name = queue.name if queue is not None else ""
            limit = LIMIT_NAMES[int(told.limit)]
            stop = Stop(limit=limit, queue=name, node=told.node, text=told.reason)
            window.stop.CopyFrom(stop)
        return window

    # The end

    def _end(self, error: CallError) -> None:
        """End the call with an error, once all known answers were sent."""
        if self._failure is None:
            self._failure = error
            self._cut_off = cut_off_later(self._task)
        self._changed.set()

    # The stream's shell

    def wake(self) -> None:
        """See `Shell`."""
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        self._stream.flush()
        if self._stream.crashed:
            text = "a fault of the broker"
            self._end(CallError(grpc.StatusCode.INTERNAL, "BROKER_FAULT", text))
        self._changed.set()
        self._readable.set()

    def write(self, data: bytes) -> None:
        """See `Shell`."""
        raise AssertionError("a stream writes no bytes")

    def set_reading(self, reading: bool) -> None:
        """See `Shell`."""
        if reading:
            self._readable.set()

    def set_timer(self, seconds: float) -> None:
        """See `Shell`."""
        raise AssertionError("a stream has no heartbeat")

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """See `Shell`."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, callback)

    def backlog(self) -> int:
        """See `Shell`."""
        return 0

    def start(self, operation: Coroutine[Any, Any, None]) -> None:
        """See `Shell`."""
        if self._group is None:
            operation.close()
        else:
            self._group.create_task(operation)

    def disconnect(self) -> None:
        """See `Shell`."""
        self.abort()

    def abort(self) -> None:
        """See `Shell`."""
        text = "the broker has given the stream up"
        self._end(CallError(grpc.StatusCode.ABORTED, "STREAM_ABORTED", text))


def reader_of(opening: PublishOpen, body_bytes_max: int) -> BatchReader:
    """Return what reads the batches of a stream.

    Raises:
        CallError: a default is too long.
    """
    given = (opening.exchange, opening.routing_key, opening.mandatory)
    try:
        return BatchReader(*given, body_bytes_max)
    except ValueProblemError as problem:
        raise bad_field(f"open{problem.place}", problem.rule) from None


def name_of(opening: PublishOpen) -> Publisher | None:
    """Return the publisher, None for a stream without an id.

    Raises:
        CallError: a publisher id or an epoch cannot be one.
    """
    if not opening.publisher_id:
        if opening.epoch:
            raise bad_field("open.publisher_id", "must be there when there is an epoch")
        return None
    name = opening.publisher_id.encode()
    problem = check_publisher(name, min(opening.epoch, SEQUENCE_MAX + 1))
    if problem:
        raise bad_field("open.publisher_id", problem)
    return Publisher(name, opening.epoch)


def refused(refusal: Refusal) -> Refused:
    """Return the answer to messages that were not handed to queues."""
    error = from_amqp(AmqpError(refusal.code, refusal.text))
    return Refused(
        ranges=[Range(first=refusal.first, last=refusal.last)],
        code=error.code.value[0],
        reason=error.reason,
        text=error.text,
    )


def overflowed(rows: list[int]) -> Refused:
    """Return the answer to messages that a queue had no room for."""
    answer = Refused(ranges=ranges_of(rows), reason=QUEUE_REFUSED, limit=MAX_LENGTH)
    answer.code = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    answer.text = "a queue is full and takes no more"
    return answer


def leaderless(rows: list[int], text: str) -> Refused:
    """Return the answer to messages of which a queue without a leader may have none."""
    answer = Refused(ranges=ranges_of(rows), reason=NO_LEADER, text=text)
    answer.code = grpc.StatusCode.UNAVAILABLE.value[0]
    return answer


def fenced(rows: list[int]) -> Refused:
    """Return the answer to messages of a publisher that has a later epoch elsewhere."""
    answer = Refused(ranges=ranges_of(rows), reason=FENCED)
    answer.code = grpc.StatusCode.ABORTED.value[0]
    answer.text = "the publisher has published under a later epoch since"
    return answer


def ranges_of(rows: list[int]) -> list[Range]:
    """Return rows (see `Ranges.bounds`), in any order, as ranges that ascend."""
    pairs = sorted(zip(rows[::2], rows[1::2], strict=True))
    ranges: list[Range] = []
    for first, stop in pairs:
        if ranges and ranges[-1].last + 1 == first:
            ranges[-1].last = stop - 1
        else:
            ranges.append(Range(first=first, last=stop - 1))
    return ranges


def opened_at_ms() -> int:
    """Return the time for listings."""
    return time.time_ns() // 1_000_000
