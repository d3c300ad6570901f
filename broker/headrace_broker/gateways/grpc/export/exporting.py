# ruff: noqa: N802  (names of gRPC methods)
"""The service Export: logs of the broker, for those who read them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import grpc

from headrace_broker.catalog.access import Caller, refused
from headrace_broker.catalog.permission_watch import ANYWHERE
from headrace_broker.gateways.grpc.export.answer import (
    block_message,
    export_errors,
    group_message,
    schema_message,
    shard_message,
)
from headrace_broker.gateways.grpc.server.call import Admission, send
from headrace_broker.gateways.grpc.server.errors import (
    RETRY_MS,
    CallError,
    Context,
    bad_field,
    number_in,
)
from headrace_broker.gateways.grpc.server.lookup import check_name
from headrace_broker.gateways.grpc.server.unary import unary
from headrace_broker.model.limits import (
    EXPORT_CHUNK_BYTES,
    EXPORT_OPENER_BYTES_MAX,
    EXPORT_READS_MAX,
    NAME_BYTES_MAX,
)
from headrace_broker.runtime.export.log import Block, ExportLog, UnknownShardError
from headrace_broker.runtime.telemetry.schema import (
    DEBT_EDGES,
    FLOW_EVENTS,
    FLOW_SAMPLES,
    QUEUE_EVENTS,
)
from headrace_protos.broker.v1 import export_pb2 as pb
from headrace_protos.broker.v1.export_pb2_grpc import ExportServicer, add_ExportServicer_to_server

INDEX_MAX: Final = (1 << 63) - 1  # of rows, incarnations and epochs


def export_logs(telemetry: Mapping[str, ExportLog], archives: ExportLog) -> dict[int, ExportLog]:
    """Return logs by their number in `ExportLog` of export.proto.

    Args:
        telemetry: by name.
        archives: of queues.
    """
    return {
        pb.EXPORT_LOG_ARCHIVE: archives,
        pb.EXPORT_LOG_QUEUE_EVENTS: telemetry[QUEUE_EVENTS],
        pb.EXPORT_LOG_FLOW_SAMPLES: telemetry[FLOW_SAMPLES],
        pb.EXPORT_LOG_FLOW_EVENTS: telemetry[FLOW_EVENTS],
        pb.EXPORT_LOG_DEBT_EDGES: telemetry[DEBT_EDGES],
    }


class ExportService(ExportServicer):
    """Serves logs.

    Args:
        logs: by their number in `ExportLog` of export.proto.
    """

    name = pb.DESCRIPTOR.services_by_name["Export"].full_name

    def __init__(self, logs: Mapping[int, ExportLog], admission: Admission) -> None:
        self._logs = dict(logs)
        self.admission = admission  # lets calls in
        self.reads = 0  # how many calls read rows now

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register with a server."""
        add_ExportServicer_to_server(self, server)

    async def stop(self, reason: str) -> None:
        """Calls have nothing that must end by itself."""

    @unary
    async def ListShards(self, who: Caller, request: pb.ListShardsRequest) -> pb.ListShardsResponse:
        """Say what shards there are."""
        log = self._log(request.log, "log")
        if request.queue and not request.vhost:
            raise bad_field("vhost", "must be given with a queue")
        for field in ("vhost", "queue"):
            check_name(field, getattr(request, field), low=0)
        log.check(who, "")
        found = await log.shards(who, request.vhost, request.queue)
        return pb.ListShardsResponse(
            shards=[shard_message(shard) for shard in found.shards], missing_nodes=found.missing
        )

    async def Read(  # type: ignore[override]  # writes by itself
        self, request: pb.ReadExportRequest, context: Context
    ) -> None:
        """Send rows of a shard."""
        async with self.admission.call(context) as caller:
            log = self._log(request.log, "log")
            _check_read(request)
            with export_errors(f"shard '{request.shard}'"):
                log.check(caller.who, request.shard)
                if self.reads >= EXPORT_READS_MAX:
                    text = f"{EXPORT_READS_MAX} shards are being read through this node"
                    code, reason = grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_READS"
                    raise CallError(code, reason, text, retry_ms=RETRY_MS)
                self.reads += 1
                judge = partial(_judge, log, request.shard)
                try:
                    with self.admission.while_allowed(caller, ANYWHERE, judge):
                        await self._send(log, request, context)
                finally:
                    self.reads -= 1

    async def _send(self, log: ExportLog, request: pb.ReadExportRequest, context: Any) -> None:
        """Send blocks, several in an answer where they are small."""
        answer = _Answer(request, context)
        blocks = log.read(request.shard, request.incarnation, request.start, request.end)
        async with aclosing(blocks):
            async for block in blocks:
                await answer.add(block)
                if answer.is_over:
                    break
        await answer.flush()

    @unary
    async def OpenGroup(
        self, who: Caller, request: pb.OpenExportGroupRequest
    ) -> pb.OpenExportGroupResponse:
        """Open a group."""
        name = request.name
        log = self._checked(name)
        opener = request.request_id.encode()
        if not 1 <= len(opener) <= EXPORT_OPENER_BYTES_MAX:
            raise bad_field("request_id", f"must have 1 to {EXPORT_OPENER_BYTES_MAX} bytes")
        with export_errors(_what(name)):
            log.check(who, name.shard)
            group = await log.open_group(name.shard, name.group, opener)
        return pb.OpenExportGroupResponse(group=group_message(group))

    @unary
    async def Commit(self, who: Caller, request: pb.CommitExportRequest) -> pb.CommitExportResponse:
        """Note how far a group has come."""
        name = request.name
        log = self._checked(name)
        epoch = number_in("epoch", request.epoch, 1, INDEX_MAX)
        incarnation = number_in("incarnation", request.incarnation, 1, INDEX_MAX)
        up_to = number_in("up_to", request.up_to, 0, INDEX_MAX)
        with export_errors(_what(name)):
            log.check(who, name.shard)
            group = await log.commit(name.shard, name.group, epoch, incarnation, up_to)
        return pb.CommitExportResponse(group=group_message(group))

    @unary
    async def DescribeGroups(
        self, who: Caller, request: pb.DescribeExportGroupsRequest
    ) -> pb.DescribeExportGroupsResponse:
        """Say how far groups have come."""
        name = request.name
        log = self._log(name.log, "name.log")
        check_name("name.shard", name.shard, low=0)
        check_name("name.group", name.group, low=0)
        with export_errors(_what(name)):
            log.check(who, name.shard)
            found = await log.groups(who, name.shard, name.group)
        return pb.DescribeExportGroupsResponse(
            groups=[group_message(group) for group in found.groups], missing_nodes=found.missing
        )

    @unary
    async def CloseGroup(
        self, who: Caller, request: pb.CloseExportGroupRequest
    ) -> pb.CloseExportGroupResponse:
        """Forget a group."""
        name = request.name
        log = self._checked(name)
        epoch = number_in("epoch", request.epoch, 0, INDEX_MAX)
        with export_errors(_what(name)):
            log.check(who, name.shard)
            await log.close_group(name.shard, name.group, epoch)
        return pb.CloseExportGroupResponse()

    # Inner

    def _log(self, number: int, field: str) -> ExportLog:
        log = self._logs.get(number)
        if log is None:
            names = ", ".join(pb.ExportLog.Name(each) for each in sorted(self._logs))  # type: ignore[arg-type]
            raise bad_field(field, f"must be one of {names}")
        return log

    def _checked(self, name: pb.ExportGroupName) -> ExportLog:
        """Return the log of a group with a valid name."""
        log = self._log(name.log, "name.log")
        check_name("name.shard", name.shard)
        check_name("name.group", name.group)
        return log


class _Answer:
    """Gathers blocks for one answer after the other."""

    def __init__(self, request: pb.ReadExportRequest, context: Any) -> None:
        self.is_over = False  # as much is sent as was asked for
        self._context = context
        self._compressed = request.compressed
        self._rows_left = request.rows_max or INDEX_MAX
        self._bytes_left = request.octets_max or INDEX_MAX
        self._start = request.start
        self._schema: Any = None
        self._byte_count = 0
        self._response = pb.ReadExportResponse()

    async def add(self, block: Block) -> None:
        """Take a block, and send those before it where there is no more room, or for its schema."""
        message = block_message(block, self._compressed)
        byte_count = len(message.body)
        if self._response.blocks and (
            block.schema != self._schema or self._byte_count + byte_count > EXPORT_CHUNK_BYTES
        ):
            await self.flush()
        if block.schema != self._schema:
            self._schema = block.schema
            self._response.schema.CopyFrom(schema_message(block.schema))
        self._response.blocks.append(message)
        self._byte_count += byte_count
        self._bytes_left -= byte_count
        self._rows_left -= block.end_index - max(block.first_index, self._start)
        self.is_over = self._rows_left <= 0 or self._bytes_left <= 0

    async def flush(self) -> None:
        """Send the gathered answers to a client that reads.

        Raises:
            CallError: it does not.
        """
        if not self._response.blocks:
            return
        response, self._response = self._response, pb.ReadExportResponse()
        self._byte_count = 0
        await send(self._context, response)


def _judge(log: ExportLog, shard: str, who: Caller) -> None:
    """Refuse a shard to a reader that has lost the permission.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    try:
        log.check(who, shard)
    except UnknownShardError as error:  # so is one answered that somebody may not know of
        raise refused(f"access to shard '{shard}' refused for user '{who.name}'") from error


def _what(name: pb.ExportGroupName) -> str:
    return f"group '{name.group}' of shard '{name.shard}'"


def _check_read(request: pb.ReadExportRequest) -> None:
    """Refuse to read what no shard can have.

    Raises:
        CallError: INVALID_ARGUMENT.
    """
    byte_count = len(request.shard.encode())
    if not 1 <= byte_count <= NAME_BYTES_MAX:
        raise bad_field("shard", f"must have 1 to {NAME_BYTES_MAX} bytes")
    number_in("incarnation", request.incarnation, 1, INDEX_MAX)
    number_in("start", request.start, 0, INDEX_MAX)
    number_in("end", request.end, 0, INDEX_MAX)
    if request.end < request.start:
        raise bad_field("end", "must not be less than start")
    number_in("rows_max", request.rows_max, 0, INDEX_MAX)
    number_in("octets_max", request.octets_max, 0, INDEX_MAX)
