"""The service Export, in front of the logs of two nodes on disks in memory."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import grpc

from headrace_broker.codecs.column_block import INT64, UTF8, Schema, encode_columns
from headrace_broker.gateways.grpc.export.exporting import ExportService
from headrace_broker.gateways.grpc.server.call import Admission
from headrace_broker.gateways.grpc.server.server import GrpcServer
from headrace_broker.model.limits import MESSAGE_BYTES_MAX
from headrace_broker.runtime.telemetry.client import TelemetryClient
from headrace_broker.runtime.telemetry.node_log import NodeLog, Nodes
from headrace_broker.runtime.telemetry.shard_log import Bounds
from headrace_broker.runtime.telemetry.store import Place, TelemetryStore
from headrace_protos.broker.v1 import export_pb2 as pb
from headrace_protos.broker.v1.export_pb2_grpc import ExportStub
from headrace_protos.cluster.v1.cluster_pb2 import ClusterPayload
from headrace_raftlog.storage.disk.memory_files import MemoryFiles

LOG = pb.EXPORT_LOG_FLOW_SAMPLES
SCHEMA = Schema(1, (("number", INT64), ("text", UTF8)))
NAMES = {1: "n1", 2: "n2"}
BOUNDS = Bounds(16 << 20, 1 << 40)


class World:
    """Two nodes; clients talk to n1. Rows have their indexes as numbers."""

    def __init__(self, broker: Any, guest: Any) -> None:
        self.broker = broker
        self.guest = guest
        self.clock_ms = 1_000_000
        self.disks = {node: MemoryFiles() for node in NAMES}
        self.stores = {node: self._store(node) for node in NAMES}
        self.couriers = {node: self._courier(node) for node in NAMES}
        self.cut = False
        self.rows = dict.fromkeys(NAMES, 0)
        nodes = Nodes("n1", NAMES, self.stores[1].answer, self.couriers[1])
        admission = Admission(broker, lambda: "")
        self.service = ExportService({LOG: NodeLog("samples", nodes)}, admission)
        self.server = GrpcServer([self.service], lambda: "", MESSAGE_BYTES_MAX, admission)

    def _store(self, node: int) -> TelemetryStore:
        place = Place(NAMES[node], f"host{node}:7672")
        schemas, bounds = {"samples": SCHEMA}, {"samples": BOUNDS}
        files = self.disks[node]
        return TelemetryStore(place, "/t", schemas, bounds, files, lambda: self.clock_ms)

    def _courier(self, node: int) -> TelemetryClient:
        def send(peer: int, data: bytes) -> bool:
            if not self.cut:
                asyncio.get_running_loop().call_soon(self._deliver, node, peer, data)
            return not self.cut

        return TelemetryClient(send, lambda question: self.stores[node].answer(question))

    def _deliver(self, source: int, target: int, data: bytes) -> None:
        payload = ClusterPayload.FromString(data)
        if payload.HasField("export_question"):
            self.couriers[target].receive_question(source, payload.export_question)
        else:
            self.couriers[target].receive_answer(payload.export_answer)

    async def __aenter__(self) -> World:
        for store in self.stores.values():
            await store.start()
        [port] = await self.server.start(("127.0.0.1:0", None))
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self.stub = ExportStub(self.channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close(None)
        await self.server.stop()
        for courier in self.couriers.values():
            await courier.stop()
        for store in self.stores.values():
            await store.stop()

    async def note(self, node: int, *counts: int, text: str = "x") -> None:
        """Append blocks of so many rows."""
        for count in counts:
            first = self.rows[node]
            self.rows[node] += count
            numbers = list(range(first, first + count))
            block = encode_columns(SCHEMA, [numbers, [f"{text} {each}" for each in numbers]])
            await self.stores[node].note(self.clock_ms, partial(dict, samples=[block]))

    def call(self, method: str, request: Any, login: Any = None) -> Any:
        return getattr(self.stub, method)(request, metadata=login or self.guest)

    async def shard(self, node: int = 1) -> pb.ExportShard:
        listed = await self.call("ListShards", pb.ListShardsRequest(log=LOG))
        found: pb.ExportShard = listed.shards[node - 1]
        return found

    async def read(self, node: int = 1, **fields: Any) -> list[pb.ReadExportResponse]:
        shard = await self.shard(node)
        request: dict[str, Any] = {
            "log": LOG,
            "shard": shard.shard,
            "incarnation": shard.incarnation,
            "start": shard.first_index,
            "end": shard.next_index,
        }
        call = self.call("Read", pb.ReadExportRequest(**(request | fields)))
        return [response async for response in call]

    async def nobody_reads(self) -> None:
        """Wait until no call reads."""
        while self.service.reads:  # noqa: ASYNC110  (the service tells nobody)
            await asyncio.sleep(0)

    async def open(self, request_id: str = "a", node: int = 1, group: str = "job") -> Any:
        name = pb.ExportGroupName(log=LOG, shard=NAMES[node], group=group)
        request = pb.OpenExportGroupRequest(name=name, request_id=request_id)
        return (await self.call("OpenGroup", request)).group

    async def commit(self, up_to: int, epoch: int = 1, node: int = 1, **fields: Any) -> Any:
        name = pb.ExportGroupName(log=LOG, shard=NAMES[node], group="job")
        shard = await self.shard(node)
        values = {"incarnation": shard.incarnation, "epoch": epoch, "up_to": up_to} | fields
        return (await self.call("Commit", pb.CommitExportRequest(name=name, **values))).group
