"""A job that reads one shard of a log of Export, and tries the nodes in turn."""

from __future__ import annotations

from typing import Any

from e2e.harness.node_driver import NodeDriver
from tests.broker.codecs.column_reader import decode_columns

from headrace_broker.codecs.column_block import ColumnBlock, Schema
from headrace_protos.broker.v1 import export_pb2 as pb
from headrace_protos.broker.v1.export_pb2_grpc import ExportStub


class ExportDriver(NodeDriver):
    """Works for one group.

    Args:
        addresses: of the nodes, HOST:PORT for gRPC.
        log: which one.
        group: its name.
    """

    def __init__(
        self, addresses: list[str], log: pb.ExportLog.ValueType, group: str = "job"
    ) -> None:
        super().__init__(addresses, ExportStub, "Read")
        self._group = group
        self.log = log
        self.epoch = 0

    def shards(self, vhost: str = "", queue: str = "") -> list[pb.ExportShard]:
        """List what there is."""
        request = pb.ListShardsRequest(log=self.log, vhost=vhost, queue=queue)
        return list(self.call("ListShards", request).shards)

    def read(self, shard: pb.ExportShard, start: int, end: int) -> list[dict[str, Any]]:
        """Read rows `start` to `end` - 1."""
        request = pb.ReadExportRequest(
            log=self.log, shard=shard.shard, incarnation=shard.incarnation, start=start, end=end
        )
        rows: list[dict[str, Any]] = []
        names: list[str] = []
        schema = Schema(0, ())
        for answer in self.call("Read", request):
            if answer.HasField("schema"):
                names = [column.name for column in answer.schema.columns]
                columns = tuple((each.name, int(each.type)) for each in answer.schema.columns)
                schema = Schema(answer.schema.version, columns)
            for block in answer.blocks:
                found = ColumnBlock(block.rows, tuple(block.buffer_octets), block.body)
                values = zip(*decode_columns(schema, found), strict=True)
                numbered = enumerate(values, block.first_index)
                rows += [
                    dict(zip(names, row, strict=True)) for at, row in numbered if start <= at < end
                ]
        return rows

    def open(self, shard: pb.ExportShard, request_id: str) -> pb.ExportGroup:
        """Open the group, and work for it from now on."""
        name = pb.ExportGroupName(log=self.log, shard=shard.shard, group=self._group)
        request = pb.OpenExportGroupRequest(name=name, request_id=request_id)
        group: pb.ExportGroup = self.call("OpenGroup", request).group
        self.epoch = group.epoch
        return group

    def commit(self, shard: pb.ExportShard, up_to: int) -> pb.ExportGroup:
        """Commit the position."""
        request = pb.CommitExportRequest(
            name=pb.ExportGroupName(log=self.log, shard=shard.shard, group=self._group),
            epoch=self.epoch,
            incarnation=shard.incarnation,
            up_to=up_to,
        )
        group: pb.ExportGroup = self.call("Commit", request).group
        return group
