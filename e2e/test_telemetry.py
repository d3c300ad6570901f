"""Telemetry of a real cluster: a blocked publisher, its cause, and the rows of it."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc
import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.publisher import Publisher
from tests.broker.codecs.column_reader import decode_columns

from headrace_broker.codecs.column_block import ColumnBlock, Schema
from headrace_protos.broker.v1 import export_pb2 as pb
from headrace_protos.broker.v1.export_pb2_grpc import ExportStub

ENDLESS: Final = 1 << 30  # messages; until it is told to stop
LOGIN: Final = (("authorization", f"Basic {base64.b64encode(b'guest:guest').decode()}"),)

LOGS: Final = (
    pb.EXPORT_LOG_FLOW_EVENTS,
    pb.EXPORT_LOG_FLOW_SAMPLES,
    pb.EXPORT_LOG_DEBT_EDGES,
    pb.EXPORT_LOG_QUEUE_EVENTS,
)

Row = dict[str, Any]


class Reader:
    """Reads what logs of a cluster say from now on, through one of its nodes."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._stub = ExportStub(self._channel)
        self._begin = {log: self._ends(log) for log in LOGS}

    def _ends(self, log: pb.ExportLog.ValueType) -> dict[str, int]:
        return {shard.shard: shard.next_index for shard in self.shards(log)}

    def close(self) -> None:
        self._channel.close()

    def shards(self, log: pb.ExportLog.ValueType) -> list[pb.ExportShard]:
        listed = self._stub.ListShards(pb.ListShardsRequest(log=log), metadata=LOGIN)
        return list(listed.shards)

    def rows(self, log: pb.ExportLog.ValueType) -> list[Row]:
        """All rows of all nodes since this was made."""
        return [row for shard in self.shards(log) for row in self._rows_of(log, shard)]

    def _rows_of(self, log: pb.ExportLog.ValueType, shard: pb.ExportShard) -> Iterator[Row]:
        request = pb.ReadExportRequest(
            log=log,
            shard=shard.shard,
            incarnation=shard.incarnation,
            start=max(self._begin[log].get(shard.shard, 0), shard.first_index),
            end=shard.next_index,
            compressed=True,
        )
        schema = Schema(0, ())
        for response in self._stub.Read(request, metadata=LOGIN):
            if response.HasField("schema"):
                columns = ((each.name, int(each.type)) for each in response.schema.columns)
                schema = Schema(response.schema.version, tuple(columns))
            for block in response.blocks:
                body = zlib.decompress(block.body) if block.compression else block.body
                columns_of = ColumnBlock(block.rows, tuple(block.buffer_octets), body)
                names = [name for name, _ in schema.columns]
                rows = zip(*decode_columns(schema, columns_of), strict=True)
                for index, values in enumerate(rows, block.first_index):
                    if request.start <= index < request.end:
                        yield dict(zip(names, values, strict=True))


@pytest.fixture
def reader(shared_cluster: Cluster) -> Iterator[Reader]:
    made = Reader(shared_cluster.node("n1").grpc)
    yield made
    made.close()


def test_blocked_publisher_gives_a_paired_event_and_edges_that_name_the_culprit(
    shared_cluster: Cluster, queue_name: Callable[[str], str], reader: Reader
) -> None:
    queue = queue_name("orders")
    channel = shared_cluster.connect("n1").channel()
    channel.queue_declare(
        queue, durable=True, arguments={"x-high-watermark": 50, "x-low-watermark": 10}
    )
    leader = shared_cluster.leader(queue)
    other = next(node for node in ("n1", "n2", "n3") if node != leader)

    def events(kind: str) -> list[Row]:
        found = reader.rows(pb.EXPORT_LOG_FLOW_EVENTS)
        return [row for row in found if row["event"] == kind and row["queue"] == queue]

    with Publisher([shared_cluster.port(other)], queue, ENDLESS, 1000, 400, "culprit"):
        [saturated] = wait_for("the queue to be saturated", lambda: events("saturated"))
        blocked = wait_for("the publisher to be blocked", lambda: events("blocked"))[0]
    wait_for("the queue to be drained", lambda: _drained(channel, queue))
    ended = wait_for(
        "the end to be told",
        lambda: [row for row in events("unblocked") if row["episode"] == blocked["episode"]],
    )
    assert (saturated["node"], blocked["node"]) == (leader, other)
    assert (ended[0]["account"], ended[0]["started_at"]) == (
        blocked["account"],
        blocked["started_at"],
    )
    assert ended[0]["duration_ms"] == ended[0]["at"] - blocked["started_at"] > 0
    cleared = wait_for("the queue to be well", lambda: events("saturation_cleared"))
    assert saturated["episode"] in [row["episode"] for row in cleared]
    edges = wait_for(
        "the second in which it published to be told", lambda: _edges_of(reader, queue)
    )
    by_account: dict[str, int] = {}
    for edge in edges:
        by_account[edge["origin_account"]] = (
            by_account.get(edge["origin_account"], 0) + edge["copies"]
        )
    assert max(by_account, key=lambda account: by_account[account]) == blocked["account"]
    assert {edge["node"] for edge in edges if edge["origin_account"] == blocked["account"]} == {
        other
    }

    def blocked_samples() -> list[Row]:
        rows = reader.rows(pb.EXPORT_LOG_FLOW_SAMPLES)
        return [
            row
            for row in rows
            if row["kind"] == "connection"
            and row["blocked_queue"] == queue
            and row["blocked_ms"] > 0
        ]

    wait_for("a second in which it was blocked to be told", blocked_samples)


def _edges_of(reader: Reader, queue: str) -> list[Row]:
    return [row for row in reader.rows(pb.EXPORT_LOG_DEBT_EDGES) if row["queue"] == queue]


def _drained(channel: Any, queue: str) -> bool:
    channel.queue_purge(queue)
    return bool(channel.queue_declare(queue, passive=True).method.message_count == 0)


def test_every_node_tells_of_itself_and_what_became_of_a_queue_is_told_once(
    shared_cluster: Cluster, queue_name: Callable[[str], str], reader: Reader
) -> None:
    queue = queue_name("gone")
    channel = shared_cluster.connect("n2").channel()
    channel.queue_declare(queue, durable=True)
    channel.queue_purge(queue)
    channel.queue_delete(queue)

    def told() -> list[str]:
        rows = reader.rows(pb.EXPORT_LOG_QUEUE_EVENTS)
        return [row["event"] for row in rows if row["queue"] == queue]

    wait_for("the deletion to be told", lambda: {"deleted", "purged"} <= set(told()))
    assert sorted(told()) == ["declared", "deleted", "leader_elected", "purged"]
    shards = reader.shards(pb.EXPORT_LOG_FLOW_SAMPLES)
    assert [shard.shard for shard in shards] == ["n1", "n2", "n3"]
    assert [shard.address for shard in shards] == [
        shared_cluster.node(name).grpc for name in ("n1", "n2", "n3")
    ]

    def beating() -> set[str]:
        rows = reader.rows(pb.EXPORT_LOG_FLOW_SAMPLES)
        return {row["id"] for row in rows if row["kind"] == "node"}

    wait_for("a beat of every node", lambda: beating() == {"n1", "n2", "n3"})
