"""The call Messaging.Consume: its requests into a stream, and deliveries out of it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc

from headrace_broker.catalog.access import QUEUE, check_allowed
from headrace_broker.catalog.access import Caller as User
from headrace_broker.catalog.permission import READ
from headrace_broker.gateways.consuming.consumer_argument import (
    PRIORITY,
    attachment,
    check_arguments,
)
from headrace_broker.gateways.consuming.server_name import server_name
from headrace_broker.gateways.grpc.messaging.consume_control import ConsumeControl
from headrace_broker.gateways.grpc.messaging.consume_stream import ConsumeStream, Ready
from headrace_broker.gateways.grpc.messaging.credit import CreditOverflowError
from headrace_broker.gateways.grpc.messaging.deliveries import DeliveryWriter
from headrace_broker.gateways.grpc.messaging.stream_control import cut_off_later
from headrace_broker.gateways.grpc.server.errors import CallError, Context, bad_field, from_amqp
from headrace_broker.gateways.grpc.server.lookup import check_name
from headrace_broker.gateways.grpc.server.request_parser import RequestParser
from headrace_broker.gateways.grpc.values.argument_table import read_table
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import CONNECTION, Cause
from headrace_broker.model.limits import (
    GET_PIPELINE,
    STREAM_ANSWERS_MAX,
    STREAM_DELIVERIES_BYTES,
    STREAM_DELIVERIES_MAX,
    STREAM_PREFETCH_MAX,
)
from headrace_broker.model.reply_code import NOT_FOUND, RESOURCE_LOCKED, AmqpError
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.calls.gate import turns_of_call
from headrace_broker.runtime.contract.port import (
    ACCEPT,
    MODIFY_FAILED,
    REJECT,
    RELEASE,
    Attachment,
    ConnectionInfo,
)
from headrace_broker.runtime.replica.filter_argument import X_FILTER
from headrace_protos.broker.v1.message_pb2 import Range
from headrace_protos.broker.v1.messaging_pb2 import (
    Cancelled,
    ConsumeOpen,
    ConsumeOpened,
    ConsumeRequest,
    ConsumeResponse,
    Credit,
    Deliveries,
    Drained,
    Outcome,
    Settle,
    Settled,
)

PROTOCOL: Final = "gRPC Consume"
_PARSE: Final = RequestParser(ConsumeRequest.FromString)

_OPERATIONS: Final = {Outcome.ACCEPT: ACCEPT, Outcome.RELEASE: RELEASE, Outcome.REJECT: REJECT}


class ConsumeCall:
    """Serves one call.

    Raises:
        AmqpError: an argument is wrong.
        CallError: likewise.
    """

    def __init__(
        self,
        broker: Broker,
        context: Context,
        info: ConnectionInfo,
        opening: ConsumeOpen,
        queue: Queue,  # what is consumed
    ) -> None:
        self._broker = broker  # the node
        self._context: Any = context  # of the call
        self._info = info  # for listings; `vhost` is set
        self._arguments = read_table(opening.arguments, "open.arguments")
        opening = _without_arguments(opening)
        self._opening = opening  # the first request
        check_arguments(queue, self._arguments)
        self.tag = opening.consumer_tag or server_name("amq.ctag-")
        info.protocol = PROTOCOL
        info.channels = 1
        cause = Cause(info.id, CONNECTION, info.name, broker.node_name)
        cause.user, cause.vhost = info.user, info.vhost
        cause.client_name = info.client_name()
        info.account = self._account = broker.ledger.open(cause)
        self._turns = turns_of_call()
        self._changed = asyncio.Event()
        self._readable = asyncio.Event()
        self._stream = ConsumeStream(
            broker, queue, self._account, opening.no_ack, self._attachment, self._changed.set
        )
        info.control = ConsumeControl(
            info, self._stream, opening, self.tag, queue.name, self._arguments, self._end
        )
        self._writer = DeliveryWriter()
        self._draining = False
        self._cancelled = False  # by the client
        self._no_more = False  # the client has closed its side
        self._settling: list[Range] = []  # with the queue, which has not answered
        self._settled: list[Range] = []  # not told
        self._settles = asyncio.Event()
        self._failure: CallError | None = None
        self._task = asyncio.current_task()
        self._cut_off: asyncio.TimerHandle | None = None

    def _attachment(self, credit: int) -> Attachment:
        opening = self._opening
        prefetch = min(credit, STREAM_PREFETCH_MAX)
        arguments = self._arguments
        if opening.priority:
            arguments = {PRIORITY: opening.priority, **arguments}
        return attachment(self.tag, prefetch, opening.exclusive, opening.no_ack, arguments)

    async def run(self) -> None:
        """Serve the call to its end.

        Raises:
            CallError: the client broke a rule, or the broker has to end the call.
            AmqpError: the queue is in exclusive use, gone, or does not answer.
        """
        self._broker.connection_opened(self._info)
        try:
            if self._opening.HasField("credit"):
                self._credit(self._opening.credit)
            if self._stream.should_attach and not self._draining:
                await self._stream.attach()
            await self._context.send_initial_metadata(())  # see `RequestGate`
            opened = ConsumeOpened(node=self._broker.node_name, consumer_tag=self.tag)
            await self._context.write(ConsumeResponse(opened=opened))
            await self._serve()
        finally:
            self._stream.close()
            self._broker.connection_closed(self._info)
            self._broker.ledger.close(self._account)
            if self._cut_off is not None:
                self._cut_off.cancel()
        if self._failure is not None:
            raise self._failure

    async def _serve(self) -> None:
        refusal: AmqpError | None = None
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._read()), group.create_task(self._watch_settles())]
            try:
                await self._write()
            except AmqpError as error:
                refusal = error
            finally:
                for task in tasks:
                    task.cancel()
        if refusal is not None:
            raise refusal

    # Requests

    async def _read(self) -> None:
        try:
            while True:
                while len(self._settling) + len(self._settled) >= STREAM_ANSWERS_MAX:
                    self._readable.clear()
                    await self._readable.wait()
                data = await self._context.read()
                if data is grpc.aio.EOF:  # type: ignore[attr-defined]
                    break
                await self._turns.request()
                with self._turns.step():
                    self._take(_PARSE(data))
                del data
        except CallError as error:
            self._end(error)
        self._no_more = True
        self._changed.set()

    def _take(self, request: ConsumeRequest) -> None:
        kind = request.WhichOneof("kind")
        if kind == "credit":
            self._credit(request.credit)
        elif kind == "settle":
            self._settle(request.settle)
        elif kind == "cancel":
            self._cancelled = True
        else:
            rule = "only the first request opens the stream" if kind == "open" else "must be set"
            raise bad_field(kind or "kind", rule)
        self._changed.set()

    def _credit(self, credit: Credit) -> None:
        if credit.drain and X_FILTER in self._arguments:
            raise bad_field("credit.drain", "must not be asked for with x-filter")
        try:
            self._stream.credit.add(credit.messages, credit.octets)
        except CreditOverflowError as error:
            field, _, rule = str(error).partition(": ")
            raise bad_field(field, rule) from None
        self._draining = self._draining or credit.drain

    def _settle(self, settle: Settle) -> None:
        operation = _operation(settle)
        if len(settle.ranges) > STREAM_ANSWERS_MAX:
            raise bad_field("settle.ranges", f"must be at most {STREAM_ANSWERS_MAX}")
        for index, each in enumerate(settle.ranges):
            field = f"settle.ranges[{index}]"
            if not 1 <= each.first <= each.last:
                raise bad_field(field, "must have a first from 1 and a last not below it")
            if not self._stream.settle(each.first, each.last, operation):
                error = bad_field(field, f"{each.first} to {each.last} are not all unsettled")
                error.reason = "UNKNOWN_DELIVERY"
                raise error
        self._stream.flush()
        self._settling += settle.ranges
        self._settles.set()

    async def _watch_settles(self) -> None:
        """Tell the client of settles that its queue has applied."""
        while True:
            await self._settles.wait()
            self._settles.clear()
            count = len(self._settling)
            try:
                await self._stream.applied()
            except AmqpError as error:
                self._end(from_amqp(error))
                return
            self._settled += self._settling[:count]
            del self._settling[:count]
            self._changed.set()

    # Responses

    async def _write(self) -> None:
        """Write pending answers, and make the queue serve the credit."""
        stream = self._stream
        told_cancelled = False
        while self._failure is None:
            self._changed.clear()
            if not self._cancelled:
                await self._adjust()
            elif not told_cancelled:
                await stream.detach()
                told_cancelled = True
                await self._context.write(ConsumeResponse(cancelled=Cancelled()))
            busy = await self._deliver() if not self._cancelled else False
            await self._tell_settled()
            if busy:
                continue
            if stream.ended and not told_cancelled:
                await self._context.write(ConsumeResponse(cancelled=self._lost()))
                return
            if self._no_more and not (self._settling or self._settled):
                return
            await self._changed.wait()

    async def _adjust(self) -> None:
        stream = self._stream
        if self._draining:
            await self._drain()
        elif stream.should_detach:
            await stream.detach()
        elif stream.should_attach:
            await stream.attach()

    async def _deliver(self) -> bool:
        """Send as many as there is credit for; False if there were none."""
        try:
            taken = self._stream.take(STREAM_DELIVERIES_MAX, STREAM_DELIVERIES_BYTES)
        except CallError as error:
            self._end(error)
            return False
        if not taken:
            return False
        await self._context.write(ConsumeResponse(deliveries=self._rendered(taken)))
        self._stream.sent(taken)
        return True

    def _rendered(self, taken: list[Ready]) -> Deliveries:
        write = self._writer.write
        return Deliveries(
            deliveries=[
                write(ready.run, index, ready.first_id + index - ready.start)
                for ready in taken
                for index in range(ready.start, ready.stop)
            ]
        )

    async def _drain(self) -> None:
        """Send what waits as far as credit goes, then forget the rest of that."""
        stream = self._stream
        await stream.detach()
        more = True
        while more and stream.credit.is_left and self._failure is None:
            wanted = 1 if stream.credit.is_limited else min(stream.credit.messages, GET_PIPELINE)
            more = await stream.fetch(wanted)
            while await self._deliver():
                pass
        stream.give_back()  # the client has made its credit one of bytes meanwhile
        self._draining = False
        drained = Drained(messages=stream.credit.forget())
        await self._context.write(ConsumeResponse(drained=drained))

    async def _tell_settled(self) -> None:
        if self._settled:
            settled, self._settled = self._settled, []
            await self._context.write(ConsumeResponse(settled=Settled(ranges=settled)))
            self._readable.set()

    def _lost(self) -> Cancelled:
        """The queue has ended the consumer."""
        timed_out = self._stream.timed_out
        code = grpc.StatusCode.DEADLINE_EXCEEDED if timed_out else grpc.StatusCode.NOT_FOUND
        return Cancelled(reason=self._stream.ended, code=code.value[0])

    def _end(self, error: CallError) -> None:
        """End the call with an error."""
        if self._failure is None:
            self._failure = error
            self._cut_off = cut_off_later(self._task)
        self._changed.set()


def _operation(settle: Settle) -> int:
    """Return the operation for deliveries."""
    if settle.outcome == Outcome.MODIFY:
        if settle.undeliverable_here:
            return REJECT
        return MODIFY_FAILED if settle.delivery_failed else RELEASE
    operation = _OPERATIONS.get(settle.outcome)
    if operation is None:
        raise bad_field("settle.outcome", "must be ACCEPT, RELEASE, REJECT or MODIFY")
    if settle.delivery_failed or settle.undeliverable_here:
        raise bad_field("settle.outcome", "must be MODIFY with delivery_failed, undeliverable_here")
    return operation


def _without_arguments(opening: ConsumeOpen) -> ConsumeOpen:
    """Return the needed parts of an opening while its stream lasts; their objects take the most."""
    opening.ClearField("arguments")
    kept = ConsumeOpen()
    kept.CopyFrom(opening)
    return kept


def check_reads(broker: Broker, queue: Queue, user: User) -> None:
    """Refuse a queue to a user who may not read it.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    check_allowed(broker.permissions, user.name, queue.vhost, READ, QUEUE, queue.name)


async def find_queue(
    broker: Broker, user: str, vhost: str, name: str, field: str = "queue"
) -> Queue:
    """Return a queue that a user may read, wherever it was declared a moment ago.

    Args:
        broker: the node.
        user: who asks.
        vhost: where.
        name: of the queue.
        field: of the request, that names it.

    Raises:
        CallError: INVALID_ARGUMENT, no queue can have that name.
        AmqpError: ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED for a connection's exclusive queue,
            INTERNAL_ERROR when that is not known.
    """
    check_name(field, name)
    check_allowed(broker.permissions, user, vhost, READ, QUEUE, name)
    queue = broker.queue(vhost, name)
    if queue is None:
        await broker.catch_up()
        queue = broker.queue(vhost, name)
    if queue is None:
        raise AmqpError(NOT_FOUND, f"no queue '{name}' in vhost '{vhost}'")
    if queue.exclusive:
        text = f"cannot obtain exclusive access to locked queue '{name}' in vhost '{vhost}'"
        raise AmqpError(RESOURCE_LOCKED, f"{text}, which belongs to a connection")
    return queue
