# ruff: noqa: N802  (names of gRPC methods)
"""Logs that are read, in memory: as brokers have them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import grpc

from headrace_broker.codecs import column_block as codec
from headrace_protos.broker.v1 import export_pb2 as pb
from headrace_protos.broker.v1.export_pb2_grpc import ExportServicer

Refusal = tuple[Any, ...]
CODE = grpc.StatusCode
FIRST_MS = 1_700_000_000_000  # Unix time of the first row; one follows each second

TELEMETRY = codec.Schema(
    1,
    (
        ("at", codec.TIMESTAMP_MS),
        ("elapsed_ms", codec.INT64),
        ("node", codec.UTF8),
        ("kind", codec.UTF8),
        ("saturated", codec.BOOL),
    ),
)
ARCHIVE = codec.Schema(
    1,
    (
        ("archive_index", codec.INT64),
        ("vhost", codec.UTF8),
        ("queue", codec.UTF8),
        ("priority", codec.INT32),
        ("headers", codec.UTF8),
        ("payload", codec.BINARY),
        ("settled_at", codec.TIMESTAMP_MS),
    ),
)


@dataclass
class FakeShard:
    """A shard.

    Attributes:
        columns: makes the columns of rows [start, end).
        block_rows: in a block.
        ahead_ms: by which its clock is wrong.
    """

    name: str
    schema: codec.Schema
    incarnation: int = 7
    first: int = 0
    following: int = 0
    byte_count: int = 0
    block_rows: int = 4
    ahead_ms: int = 0
    queue: str = ""
    address: str = ""
    first_ms: int = FIRST_MS
    groups: dict[str, pb.ExportGroup] = field(default_factory=dict)
    openers: dict[str, int] = field(default_factory=dict)

    def at(self, index: int) -> int:
        return self.first_ms + 1000 * index + self.ahead_ms

    def columns(self, indexes: range) -> list[list[Any]]:
        values: dict[str, Any] = {
            "at": self.at,
            "settled_at": self.at,
            "elapsed_ms": lambda index: 1000,
            "node": lambda index: self.name,
            "kind": lambda index: "node",
            "saturated": lambda index: None if index % 3 == 0 else index % 2 == 0,
            "archive_index": lambda index: index,
            "vhost": lambda index: "/",
            "queue": lambda index: self.queue,
            "priority": lambda index: index % 10,
            "headers": lambda index: "{}",
            "payload": lambda index: b"%d" % index,
        }
        return [
            [values.get(name, lambda index: None)(index) for index in indexes]
            for name, _ in self.schema.columns
        ]

    def block(self, index: int, compressed: bool) -> pb.ExportBlock:
        """The block with a row."""
        start = max(index // self.block_rows * self.block_rows, self.first)
        end = min(start // self.block_rows * self.block_rows + self.block_rows, self.following)
        found = codec.encode_columns(self.schema, self.columns(range(start, end)))
        body = zlib.compress(found.body) if compressed else found.body
        return pb.ExportBlock(
            first_index=start,
            rows=found.rows,
            buffer_octets=found.buffer_bytes,
            body_octets=len(found.body),
            compression=pb.EXPORT_COMPRESSION_ZLIB if compressed else 0,  # type: ignore[arg-type]
            body=body,
        )

    def message(self) -> pb.ExportShard:
        some = self.following > self.first
        return pb.ExportShard(
            shard=self.name,
            incarnation=self.incarnation,
            first_index=self.first,
            next_index=self.following,
            octets=self.byte_count,
            first_ms=self.at(self.first) if some else 0,
            last_ms=self.at(self.following - 1) if some else 0,
            node=self.name,
            address=self.address,
            vhost="/" if self.queue else "",
            queue=self.queue,
        )

    def refusal(self, incarnation: int, start: int, end: int) -> Refusal | None:
        """Return the error of a read."""
        if incarnation != self.incarnation:
            now = {"incarnation": str(self.incarnation)}
            return CODE.FAILED_PRECONDITION, "another one", "OTHER_INCARNATION", (), now
        if start < self.first:
            first = {"first_index": str(self.first)}
            return CODE.OUT_OF_RANGE, "dropped", "DATA_GONE", (), first
        if end > self.following:
            following = {"next_index": str(self.following)}
            return CODE.OUT_OF_RANGE, "not yet", "NOT_YET", (), following
        return None


class Logs:
    """Shared state of the nodes of a cluster.

    Attributes:
        shards: by log and name.
        missing: nodes that do not answer.
        down: names of shards that nobody can reach.
    """

    def __init__(self) -> None:
        self.shards: dict[int, dict[str, FakeShard]] = {}
        self.missing: list[str] = []
        self.down: set[str] = set()

    def add(self, log: int, shard: FakeShard) -> FakeShard:
        self.shards.setdefault(log, {})[shard.name] = shard
        return shard

    def find(self, log: int, name: str) -> FakeShard | Refusal:
        if name in self.down:
            return CODE.UNAVAILABLE, f"node '{name}' does not answer", "NODE_DOWN"
        found = self.shards.get(log, {}).get(name)
        return found or (CODE.NOT_FOUND, f"no shard '{name}'", "UNKNOWN_SHARD")


class FakeExports(ExportServicer):
    """The service of one node.

    Attributes:
        logs: what it shares with other nodes.
        breaks_after: blocks after which a read breaks off, and what with; one each time.
        reads: requests.
        commits: (shard, group, up to).
    """

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self.logs = Logs()
        self.breaks_after: list[tuple[int, Refusal]] = []
        self.reads: list[pb.ReadExportRequest] = []
        self.commits: list[tuple[str, str, int]] = []

    async def _shard(self, log: int, name: str, context: Any) -> FakeShard:
        found = self.logs.find(log, name)
        if isinstance(found, tuple):
            await self._broker.refuse(context, *found)
        assert isinstance(found, FakeShard)
        return found

    async def ListShards(self, request: Any, context: Any) -> Any:
        await self._broker.unary("ListShards", request, context)
        found = self.logs.shards.get(request.log, {})
        shards = [
            shard.message()
            for name, shard in sorted(found.items())
            if name not in self.logs.missing and request.queue in ("", shard.queue)
        ]
        return pb.ListShardsResponse(shards=shards, missing_nodes=self.logs.missing)

    async def Read(self, request: Any, context: Any) -> None:  # type: ignore[override]
        await self._broker.admit(context)
        self.reads.append(request)
        shard = await self._shard(request.log, request.shard, context)
        breaks = self.breaks_after.pop(0) if self.breaks_after else None
        index, byte_count, count = request.start, 0, 0
        while index < request.end:
            refusal = shard.refusal(request.incarnation, index, request.end)
            if breaks is not None and count == breaks[0]:
                refusal = breaks[1]
            if refusal is not None:
                await self._broker.refuse(context, *refusal)
            block = shard.block(index, request.compressed)
            answer = pb.ReadExportResponse(blocks=[block])
            if count == 0:
                answer.schema.version = shard.schema.version
                for name, kind in shard.schema.columns:
                    answer.schema.columns.add(name=name, type=pb.ExportType.ValueType(kind))
            await context.write(answer)
            index, count, byte_count = (
                block.first_index + block.rows,
                count + 1,
                byte_count + len(block.body),
            )
            if 0 < request.octets_max <= byte_count:
                return

    async def OpenGroup(self, request: Any, context: Any) -> Any:
        await self._broker.unary("OpenExportGroup", request, context)
        shard = await self._shard(request.name.log, request.name.shard, context)
        epoch = shard.openers.setdefault(request.request_id, len(shard.openers) + 1)
        name = request.name.group
        group = shard.groups.setdefault(
            name, pb.ExportGroup(shard=shard.name, group=name, committed=shard.first)
        )
        group.epoch = epoch
        return pb.OpenExportGroupResponse(group=self._told(shard, group))

    def _told(self, shard: FakeShard, group: pb.ExportGroup) -> pb.ExportGroup:
        group.incarnation = shard.incarnation
        group.first_index, group.next_index = shard.first, shard.following
        return group

    async def Commit(self, request: Any, context: Any) -> Any:
        await self._broker.unary("CommitExport", request, context)
        shard = await self._shard(request.name.log, request.name.shard, context)
        group = shard.groups.get(request.name.group)
        if group is None:
            await self._broker.refuse(context, CODE.NOT_FOUND, "no such group", "UNKNOWN_GROUP")
        assert group is not None
        if group.epoch != request.epoch:
            await self._broker.refuse(context, CODE.ABORTED, "somebody else", "FENCED")
        group.committed = max(group.committed, request.up_to)
        self.commits.append((shard.name, group.group, request.up_to))
        return pb.CommitExportResponse(group=self._told(shard, group))

    async def DescribeGroups(self, request: Any, context: Any) -> Any:
        await self._broker.unary("DescribeExportGroups", request, context)
        shards = self.logs.shards.get(request.name.log, {}).values()
        groups = [
            self._told(shard, group)
            for shard in shards
            for name, group in sorted(shard.groups.items())
            if request.name.shard in ("", shard.name) and request.name.group in ("", name)
        ]
        return pb.DescribeExportGroupsResponse(groups=groups, missing_nodes=self.logs.missing)

    async def CloseGroup(self, request: Any, context: Any) -> Any:
        await self._broker.unary("CloseExportGroup", request, context)
        shard = await self._shard(request.name.log, request.name.shard, context)
        shard.groups.pop(request.name.group, None)
        return pb.CloseExportGroupResponse()
