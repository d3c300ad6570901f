"""Settled messages that are kept: read over gRPC, the same ones when the leader has died."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.export_driver import ExportDriver
from e2e.harness.lease_driver import LeaseDriver
from e2e.harness.node_driver import RefusedError

from headrace_protos.broker.v1 import export_pb2 as pb

FULL = {"x-queue-type": "quorum", "x-archive": "full"}
TTL_MS = 60_000


def reader(cluster: Cluster, *names: str) -> ExportDriver:
    """A job that talks to these nodes."""
    return ExportDriver([cluster.node(name).grpc for name in names], pb.EXPORT_LOG_ARCHIVE)


def declare(cluster: Cluster, queue: str, **arguments: Any) -> Any:
    """Declare a queue with an archive; return a channel that confirms."""
    told = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
    channel = cluster.connect("n1").channel()
    channel.queue_declare(queue, durable=True, arguments={**FULL, **told})
    channel.confirm_delivery()
    return channel


def publish(channel: Any, queue: str, body: bytes, **properties: Any) -> None:
    channel.basic_publish("", queue, body, pika.BasicProperties(**properties))


def get(channel: Any, queue: str) -> int:
    """Get a message and leave it unsettled; return its delivery tag."""
    method, _, _ = channel.basic_get(queue)
    assert method is not None
    return int(method.delivery_tag)


def shard_with(driver: ExportDriver, queue: str, rows: int) -> pb.ExportShard:
    """The shard of a queue once it has so many rows."""

    def look() -> pb.ExportShard | None:
        found = driver.shards("/", queue)
        return found[0] if found and found[0].next_index >= rows else None

    shard: pb.ExportShard = wait_for(f"{rows} rows", look)
    assert shard.next_index == rows
    return shard


def settle_in_every_way(
    cluster: Cluster, job: ExportDriver, queue: str
) -> list[tuple[str, str, str | None]]:
    """Bring messages to their ends; return body, outcome and reason in that order."""
    channel = declare(cluster, queue, delivery_limit=0, max_length=2)
    headers = {"trace": "a1", "n": 7}
    publish(channel, queue, b"acked", headers=headers, message_id="m1", content_type="text/plain")
    channel.basic_ack(get(channel, queue))
    shard_with(job, queue, 1)
    publish(channel, queue, b"rejected", priority=3, correlation_id="c", timestamp=1_700_000_000)
    channel.basic_reject(get(channel, queue), requeue=False)
    shard_with(job, queue, 2)
    publish(channel, queue, b"expired", expiration="0")
    shard_with(job, queue, 3)
    publish(channel, queue, b"failed")
    other = cluster.connect("n2")
    get(other.channel(), queue)
    other.close()  # which counts as a failed delivery
    shard_with(job, queue, 4)
    for body in (b"dropped", b"purged", b"purged too"):
        publish(channel, queue, body)
    channel.queue_purge(queue)
    publish(channel, queue, b"leased")
    with LeaseDriver([cluster.node("n3").grpc], queue) as leases:
        leases.open("once", TTL_MS)
        assert leases.lease(1, 10, TTL_MS).messages == 1
        assert leases.settle(1).messages == 1
    return [
        ("acked", "acked", None),
        ("rejected", "rejected", None),
        ("expired", "expired", None),
        ("failed", "dropped", "delivery_limit"),
        ("dropped", "dropped", "maxlen"),
        ("purged", "purged", None),
        ("purged too", "purged", None),
        ("leased", "acked", None),
    ]


def test_messages_that_end_in_every_way_are_read_before_and_after_the_leader_dies(
    cluster: Cluster,
) -> None:
    with reader(cluster, "n3", "n1", "n2") as job:
        wanted = settle_in_every_way(cluster, job, "work")
        shard = shard_with(job, "work", len(wanted))
        assert (shard.vhost, shard.queue, shard.first_index) == ("/", "work", 0)
        rows = job.read(shard, 0, len(wanted))
        told = [(row["payload"].decode(), row["outcome"], row["reason"]) for row in rows]
        assert told == wanted
        assert [row["archive_index"] for row in rows] == list(range(len(wanted)))
        check_fields(rows)
        job.open(shard, "before")
        cluster.kill(cluster.leader("work"))
        assert job.read(shard, 0, len(wanted)) == rows
        assert job.open(shard, "before").epoch == 1
        group = job.commit(shard, 5)
        assert (group.committed, group.next_index) == (5, len(wanted))
        assert job.read(shard, 5, len(wanted)) == rows[5:]
        with pytest.raises(RefusedError, match="DATA_GONE"):
            job.read(shard, 4, 5)
        with pytest.raises(RefusedError, match="NOT_YET"):
            job.read(shard, 5, len(wanted) + 1)
        cluster.start()


def check_fields(rows: list[dict[str, Any]]) -> None:
    acked, rejected = rows[:2]
    assert (acked["message_id"], acked["content_type"]) == ("m1", "text/plain")
    assert acked["headers"] == '{"trace":"a1","n":7}'
    assert (acked["exchange"], acked["routing_key"]) == ("", "work")
    assert (acked["acquired_count"], acked["delivery_count"]) == (1, 0)
    assert acked["enqueued_at"] <= acked["first_delivered_at"] <= acked["settled_at"]
    assert acked["origin_account"] is None
    assert (rejected["priority"], rejected["correlation_id"]) == (3, "c")
    assert rejected["published_at"] == 1_700_000_000_000
    assert rows[2]["first_delivered_at"] is None


def test_headers_are_read_without_bodies_and_an_archive_goes_with_its_queue(
    shared_cluster: Cluster, queue_name: Any
) -> None:
    queue = queue_name("work")
    channel = declare(shared_cluster, queue, archive="headers", archive_max_messages=3)
    for number in range(5):
        publish(channel, queue, b"x" * number, message_id=str(number))
    channel.queue_purge(queue)
    with reader(shared_cluster, "n2") as job:
        shard = shard_with(job, queue, 5)
        assert (shard.first_index, shard.octets) == (2, 9)
        rows = job.read(shard, 2, 5)
        told = [(row["message_id"], row["payload"], row["payload_bytes"]) for row in rows]
        assert told == [("2", None, 2), ("3", None, 3), ("4", None, 4)]
        channel.queue_delete(queue)
        with pytest.raises(RefusedError, match="UNKNOWN_SHARD"):
            job.read(shard, 2, 5)
        assert job.shards("/", queue) == []
