# ruff: noqa: N802  (names of gRPC methods)
"""The service Backup: points of queues are read, and messages put back."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import grpc

from headrace_broker.catalog.access import Caller as User
from headrace_broker.catalog.access import check_administers, check_not_exclusive, refused
from headrace_broker.catalog.access_backup import check_copies
from headrace_broker.catalog.permission import READ, WRITE
from headrace_broker.catalog.permission_watch import ANYWHERE, taken_away
from headrace_broker.gateways.grpc.backup.restoring import RestoreCall, check_opening
from headrace_broker.gateways.grpc.messaging.messaging import check_vhost
from headrace_broker.gateways.grpc.messaging.publishing import opened_at_ms
from headrace_broker.gateways.grpc.server.authentication import Caller
from headrace_broker.gateways.grpc.server.call import Admission, send
from headrace_broker.gateways.grpc.server.errors import (
    RETRY_MS,
    CallError,
    Context,
    bad_field,
    check_chunk,
    number_in,
)
from headrace_broker.gateways.grpc.server.request_parser import parsed_opening
from headrace_broker.gateways.grpc.server.unary import unary
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import (
    BACKUP_CHUNK_BYTES,
    BACKUP_CHUNK_BYTES_MAX,
    BACKUP_CHUNK_MESSAGES_MAX,
    BACKUP_READS_MAX,
    BACKUP_TTL_MS_MAX,
    BACKUP_TTL_MS_MIN,
    STREAMS_MAX,
)
from headrace_broker.model.reply_code import NOT_FOUND, AmqpError
from headrace_broker.runtime.backup.chunk import HEAD_BYTES, last_id
from headrace_broker.runtime.backup.client import BackupClient
from headrace_broker.runtime.backup.points import (
    DENIED,
    LOST,
    NO_REPLICA,
    OK,
    TOO_MANY,
    UNKNOWN_POINT,
)
from headrace_broker.runtime.backup.question import BackupAnswer, ClosePoint, KeepPoint, ReadPoint
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import ConnectionInfo
from headrace_broker.runtime.rpc.leader import QueueGoneError
from headrace_broker.runtime.rpc.protocol import RpcError
from headrace_broker.runtime.security import audit
from headrace_protos.broker.v1 import backup_pb2 as pb
from headrace_protos.broker.v1.backup_pb2_grpc import BackupServicer, add_BackupServicer_to_server

NUMBER_MAX: Final = (1 << 62) - 1  # of ids and numbers
_POINT: Final = re.compile(r"([1-9][0-9]{0,9})-([1-9][0-9]{0,18})")
_CODE: Final = grpc.StatusCode
_REFUSALS: Final = {
    NO_REPLICA: (_CODE.UNAVAILABLE, "NO_REPLICA"),
    UNKNOWN_POINT: (_CODE.NOT_FOUND, "UNKNOWN_POINT"),
    LOST: (_CODE.FAILED_PRECONDITION, "POINT_LOST"),
    TOO_MANY: (_CODE.RESOURCE_EXHAUSTED, "TOO_MANY_POINTS"),
}


class BackupService(BackupServicer):
    """Reads points for administrators, and takes messages of backups."""

    name = pb.DESCRIPTOR.services_by_name["Backup"].full_name

    def __init__(
        self, broker: Broker, admission: Admission, client: BackupClient, address: str
    ) -> None:
        self._broker = broker  # the node
        self.admission = admission  # lets calls in
        self._client = client  # asks the nodes that have the points
        self._address = address  # where the node serves gRPC, for listings
        self._numbers = itertools.count(1)
        self._infos: set[ConnectionInfo] = set()
        self.reads = 0  # how many calls read points now

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register with a server."""
        add_BackupServicer_to_server(self, server)

    async def stop(self, reason: str) -> None:
        """End streams that put messages back."""
        for info in list(self._infos):
            if info.control is not None:
                info.control.shut_down(reason)

    @unary
    async def Open(self, who: User, request: pb.OpenPointRequest) -> pb.OpenPointResponse:
        """Open a point."""
        check_administers(who)
        check_vhost(self._broker, who, request.vhost)
        self._judge(READ, request.vhost, request.queue, who)
        ttl_ms = _ttl(request.ttl_ms)
        queue = await self._queue(request.vhost, request.queue)
        with _errors():
            opened = await self._client.open(queue, ttl_ms, who.name)
        answer = _checked(opened.answer)
        point = f"{opened.node}-{answer.point}"
        target = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        audit.record("backup", target, point=point, messages=answer.messages)
        return pb.OpenPointResponse(
            point=point,
            node=str(opened.node),
            applied_index=answer.applied_index,
            time_ms=answer.time_ms,
            messages=answer.messages,
            octets=answer.byte_count,
            last_id=answer.last_id,
        )

    async def Read(  # type: ignore[override]  # writes by itself
        self, request: pb.ReadPointRequest, context: Context
    ) -> None:
        """Send messages of a point."""
        async with self.admission.call(context) as caller:
            check_administers(caller.who)
            node, point = _point(request.point)
            _check_read(request)
            if self.reads >= BACKUP_READS_MAX:
                text = f"{BACKUP_READS_MAX} backups are being read through this node"
                raise CallError(_CODE.RESOURCE_EXHAUSTED, "TOO_MANY_READS", text, retry_ms=RETRY_MS)
            self.reads += 1
            try:
                with self.admission.while_allowed(caller, ANYWHERE, check_administers), _errors():
                    await self._send(node, point, request, context, caller.user)
            finally:
                self.reads -= 1

    @unary
    async def Keep(self, who: User, request: pb.KeepPointRequest) -> pb.KeepPointResponse:
        """Put the end of a point off."""
        check_administers(who)
        node, point = _point(request.point)
        ttl_ms = _ttl(request.ttl_ms) if request.ttl_ms else 0
        done = number_in("done_id", request.done_id, 0, NUMBER_MAX)
        with _errors():
            asked = KeepPoint(point, who.name, ttl_ms, done)
            _checked(await self._client.ask(node, asked))
        return pb.KeepPointResponse()

    @unary
    async def Close(self, who: User, request: pb.ClosePointRequest) -> pb.ClosePointResponse:
        """Give a point up."""
        check_administers(who)
        node, point = _point(request.point)
        with _errors():
            _checked(await self._client.ask(node, ClosePoint(point, who.name)))
        return pb.ClosePointResponse()

    async def Restore(  # type: ignore[override]  # reads and writes by itself
        self, request_iterator: AsyncIterator[pb.RestoreRequest], context: Any
    ) -> None:
        """Put messages into a queue."""
        async with self.admission.call(context) as caller:
            check_administers(caller.who)
            opening = parsed_opening(await context.read(), pb.RestoreRequest)
            check_opening(opening)
            check_vhost(self._broker, caller.who, opening.vhost, "open.vhost")
            self._judge(WRITE, opening.vhost, opening.queue, caller.who)
            queue = await self._queue(opening.vhost, opening.queue, "open.")
            info = self._enter(caller, opening)
            try:
                with _errors():
                    answer = _checked(await self._client.probe(queue, opening.restore_id.encode()))
                if answer.next_number == 1 and answer.messages and not opening.append:
                    text = f"queue '{queue.name}' holds {answer.messages} messages"
                    raise CallError(_CODE.FAILED_PRECONDITION, "NOT_EMPTY", text)
                target = f"queue '{queue.name}' in vhost '{queue.vhost}'"
                audit.record("restore", target, number=answer.next_number)
                call = RestoreCall(
                    self._broker, context, caller, info, opening, queue, answer.next_number
                )
                judge = partial(self._judge, WRITE, opening.vhost, opening.queue)
                with self.admission.while_allowed(caller, opening.vhost, judge):
                    await call.run()
            finally:
                self._infos.discard(info)

    # Inner

    def _judge(self, operation: str, vhost: str, queue: str, who: User) -> None:
        """Refuse the bodies of a queue before it is said whether there is one, and as of now.

        Raises:
            AmqpError: ACCESS_REFUSED.
        """
        check_copies(who, self._broker.permissions, operation, vhost, queue)

    async def _queue(self, vhost: str, name: str, within: str = "") -> Queue:
        broker = self._broker
        if broker.queue(vhost, name) is None:
            await broker.catch_up()
        queue = broker.queue(vhost, name)
        if queue is None:
            text = f"no queue '{name}' in vhost '{vhost}'"
            raise AmqpError(NOT_FOUND, text, f"{within}queue")
        check_not_exclusive(queue)
        return queue

    def _enter(self, caller: Caller, opening: pb.RestoreOpen) -> ConnectionInfo:
        """Note a stream as one more connection.

        Raises:
            CallError: RESOURCE_EXHAUSTED.
        """
        broker = self._broker
        if len(self._infos) >= STREAMS_MAX:
            text = f"{len(self._infos)} streams are open, which is the maximum of a node"
            raise CallError(_CODE.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS", text)
        too_many = broker.client_counts.connection_refusal(caller.user, opening.vhost)
        if too_many:
            raise CallError(_CODE.RESOURCE_EXHAUSTED, "TOO_MANY_CONNECTIONS", too_many)
        stream_id = f"{broker.node_name}/{broker.boot}/b{next(self._numbers)}"
        peer = f"{caller.host}:{caller.port}"
        info = ConnectionInfo(stream_id, f"{peer} -> {self._address}", peer, opened_at_ms())
        info.user = caller.user
        info.vhost = opening.vhost
        info.mechanism = "PLAIN"
        if opening.name:
            info.client_properties = {"connection_name": opening.name}
        self._infos.add(info)
        return info

    async def _send(
        self, node: int, point: int, request: pb.ReadPointRequest, context: Any, user: str
    ) -> None:
        """Send chunks until all that was asked for is sent."""
        after, left = request.after_id, request.messages_max or NUMBER_MAX
        most = request.chunk_messages or BACKUP_CHUNK_MESSAGES_MAX
        byte_count = request.chunk_octets or BACKUP_CHUNK_BYTES
        while left > 0:
            asked = ReadPoint(point, user, after, min(most, left), byte_count)
            answer = _checked(await self._client.ask(node, asked))
            if not answer.heads:
                return
            check_chunk(len(answer.batch))
            after = last_id(answer.heads)
            count = len(answer.heads) // HEAD_BYTES
            left -= count
            response = pb.ReadPointResponse(
                last_id=after, messages=count, heads=answer.heads, batch=answer.batch
            )
            await send(context, response)


@contextmanager
def _errors() -> Iterator[None]:
    """Translate errors between nodes into errors of the call."""
    try:
        yield
    except RpcError as error:
        raise CallError(_CODE.UNAVAILABLE, "NODE_SILENT", str(error), retry_ms=RETRY_MS) from error
    except QueueGoneError as error:
        raise AmqpError(NOT_FOUND, str(error), "queue") from error


def _checked(answer: BackupAnswer) -> BackupAnswer:
    """Return an answer that is none of refusal."""
    if answer.status == OK:
        return answer
    if answer.status == DENIED:  # the point could be opened: its owner had the permission then
        raise taken_away(refused(answer.text))
    code, reason = _REFUSALS[answer.status]
    retry_ms = RETRY_MS if code is _CODE.UNAVAILABLE else 0
    raise CallError(code, reason, answer.text, retry_ms=retry_ms)


def _point(name: str) -> tuple[int, int]:
    """Return node and number of a point."""
    found = _POINT.fullmatch(name)
    if found is None or int(found[2]) > NUMBER_MAX or int(found[1]) >= 1 << 32:
        raise bad_field("point", "must be the name that Open gave")
    return int(found[1]), int(found[2])


def _ttl(ttl_ms: int) -> int:
    return number_in("ttl_ms", ttl_ms, BACKUP_TTL_MS_MIN, BACKUP_TTL_MS_MAX)


def _check_read(request: pb.ReadPointRequest) -> None:
    """Refuse to read what no point can have.

    Raises:
        CallError: INVALID_ARGUMENT.
    """
    number_in("after_id", request.after_id, 0, NUMBER_MAX)
    number_in("messages_max", request.messages_max, 0, NUMBER_MAX)
    if request.chunk_messages > BACKUP_CHUNK_MESSAGES_MAX:
        raise bad_field("chunk_messages", f"must be at most {BACKUP_CHUNK_MESSAGES_MAX}")
    if request.chunk_octets > BACKUP_CHUNK_BYTES_MAX:
        raise bad_field("chunk_octets", f"must be at most {BACKUP_CHUNK_BYTES_MAX}")
