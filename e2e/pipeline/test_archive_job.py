"""Archives into tables: each row once, with killed processes, and compaction keeps them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pika
import pytest
from click.testing import CliRunner
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.spark_job import SparkJob

from headrace_client.blocking import Client
from headrace_client.export import Shard
from headrace_pipeline.cli import main
from headrace_pipeline.schema.archive import ARCHIVE_MESSAGES
from headrace_pipeline.schema.log import ARCHIVE
from headrace_pipeline.sources.log.partition import Range
from headrace_pipeline.sources.log.rows import read_range
from headrace_pipeline.tables import open_table
from headrace_pipeline.tables.file_rows import file_rows
from headrace_pipeline.tables.sink_table import Format

pytestmark = pytest.mark.full  # each starts Spark several times, half a minute each

PROGRAM: Final = Path(main.__file__)
MOVE_SECONDS: Final = 900.0  # for a whole run; a loaded machine starts a JVM in a minute
QUEUES: Final = ("in.acked", "in.dead", "in.dropped", "in.expired", "in.purged", "in.rejected")
OUTCOMES: Final = {
    "in.acked": "acked",
    "in.dead": "dead-lettered",
    "in.dropped": "dropped",
    "in.expired": "expired",
    "in.purged": "purged",
    "in.rejected": "rejected",
}

Row = dict[str, Any]
Key = tuple[str, int, int]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes on fresh data, beside those of other tests."""
    with Cluster(tmp_path / "data") as started:
        yield started
        started.close_connections()


def endpoints(cluster: Cluster) -> str:
    return ",".join(node.grpc for node in cluster.local.nodes)


def declare(cluster: Cluster) -> Any:
    """Declare a queue for each outcome; policies archive their messages."""
    with Client.connect(endpoints(cluster)) as client:
        client.topology.declare_queue("dead", arguments={"x-queue-type": "quorum"})
    body = {"pattern": r"^in\.", "definition": {"archive": "full"}, "apply-to": "quorum_queues"}
    answer = cluster.node("n1").api.request("PUT", "/api/policies/%2F/keep", body)
    assert answer.status in (200, 201, 204), answer
    channel = cluster.connect("n1").channel()
    channel.confirm_delivery()
    for queue in QUEUES:
        own: dict[str, Any] = {"x-queue-type": "quorum"}
        if queue == "in.dead":
            own |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        if queue == "in.dropped":
            own |= {"x-max-length": 0}
        channel.queue_declare(queue, durable=True, arguments=own)
    return channel


def settle(cluster: Cluster, channel: Any, first: int, count: int) -> None:
    """Bring `count` messages to each end."""
    with Client.connect(endpoints(cluster)) as client:
        for queue in QUEUES:
            if queue not in ("in.expired",):
                with client.publisher(routing_key=queue) as publisher:
                    bodies = [b"%s %d" % (queue.encode(), first + each) for each in range(count)]
                    publisher.publish_many(bodies)
    for number in range(first, first + count):
        about = pika.BasicProperties(
            expiration="0", message_id=f"m{number}", headers={"n": number}, priority=number % 5
        )
        channel.basic_publish("", "in.expired", b"in.expired %d" % number, about)
    channel.basic_ack(take(channel, "in.acked", count), multiple=True)
    channel.basic_nack(take(channel, "in.rejected", count), multiple=True, requeue=False)
    channel.basic_nack(take(channel, "in.dead", count), multiple=True, requeue=False)
    channel.queue_purge("in.purged")
    with Client.connect(endpoints(cluster)) as client:
        wait_for("all to be settled", lambda: all_have(shards(client), first + count))


def take(channel: Any, queue: str, count: int) -> int:
    """Get messages and leave them unsettled; return the last one's delivery tag."""
    tag = 0
    for _ in range(count):
        method, _, _ = channel.basic_get(queue)
        assert method is not None
        tag = method.delivery_tag
    return tag


def shards(client: Client) -> list[Shard]:
    return [each for each in client.export.shards("archive").shards if each.queue in QUEUES]


def all_have(found: list[Shard], count: int) -> bool:
    return len(found) == len(QUEUES) and all(each.next_index >= count for each in found)


def keep(cluster: Cluster) -> None:
    """Make the brokers keep all rows for this test, whatever else reads them."""
    with Client.connect(endpoints(cluster)) as client:
        wait_for("archives", lambda: all_have(shards(client), 0))
        for each in shards(client):
            client.export.open_group("archive", each.name, "test", "this test")


def archived(cluster: Cluster) -> dict[Key, Row]:
    """All rows that the brokers have, read without Spark."""
    found = {}
    with Client.connect(endpoints(cluster)) as client:
        for each in shards(client):
            part = Range(each.name, each.incarnation, each.first_index, each.next_index)
            for batch in read_range(client, "archive", ARCHIVE, part, True):
                found.update({key_of(row): row for row in batch.to_pylist()})
    return found


def key_of(row: Row) -> Key:
    return row["shard"], row["incarnation"], row["archive_index"]


def job(cluster: Cluster, folder: Path, form: Format, rows: int) -> SparkJob:
    arguments = ["run", "archive", "--endpoints", endpoints(cluster)]
    arguments += ["--table", str(folder / "table"), "--format", form]
    arguments += ["--events-table", str(folder / "events")]
    arguments += ["--checkpoint", str(folder / "checkpoint"), "--queue", "in.*"]
    arguments += ["--rows-per-batch", str(rows), "--every", "0.01", "--master", "local[2,4]"]
    arguments += ["--conf", "spark.driver.memory=1g", "--app-name", "archive under test"]
    return SparkJob(PROGRAM, arguments, folder / "job.log")


def table_rows(folder: Path, form: Format) -> list[Row]:
    sink = open_table(str(folder / "table"), ARCHIVE_MESSAGES, form)
    return [
        row
        for file in sink.files()
        for batch in file_rows(sink.place.path(file.path), file, sink.table)
        for row in batch.to_pylist()
    ]


def version(folder: Path, form: Format) -> int:
    found = open_table(str(folder / "table"), ARCHIVE_MESSAGES, form).log.snapshot()
    return -1 if found is None else found.version


def row_count(folder: Path, form: Format) -> int:
    sink = open_table(str(folder / "table"), ARCHIVE_MESSAGES, form)
    return sum(file.rows for file in sink.files())


def check_rows(found: list[Row], wanted: dict[Key, Row]) -> None:
    """The table has each row of the archive once, with all that is in it."""
    assert Counter(map(key_of, found)).most_common(1)[0][1] == 1
    by_key = {key_of(row): {name: row[name] for name in ARCHIVE.names} for row in found}
    assert by_key == wanted
    assert {row["queue"]: row["outcome"] for row in found} == OUTCOMES
    assert all(row["day"] == row["settled_at"].date() for row in found)


def compact(folder: Path, *options: str) -> str:
    arguments = ["compact", "--table", str(folder / "table"), *options]
    result = CliRunner().invoke(main.make_group(), arguments)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("form", "count", "rows"),
    [
        ("delta", 60, 120),
        pytest.param("parquet", 60, 120, marks=pytest.mark.full),
        pytest.param("delta", 5_000, 4_000, marks=pytest.mark.full),
    ],
)
def test_archives_are_in_the_table_once_though_the_driver_is_killed_twice(
    cluster: Cluster, tmp_path: Path, form: Format, count: int, rows: int
) -> None:
    channel = declare(cluster)
    keep(cluster)
    settle(cluster, channel, 0, count)
    with job(cluster, tmp_path, form, rows) as driver:
        driver.start()
        for part in (1, 2):
            before = version(tmp_path, form)
            driver.wait_for(
                "more batches",
                lambda least=before + 2: version(tmp_path, form) >= least,
                MOVE_SECONDS,
            )
            driver.kill()
            settle(cluster, channel, part * count, count)
            driver.start()
        total = 3 * count * len(QUEUES)
        driver.wait_for("all rows", lambda: row_count(tmp_path, form) >= total, MOVE_SECONDS)
        assert driver.stop() == 0, driver.text
    wanted = archived(cluster)
    assert len(wanted) == total
    check_rows(table_rows(tmp_path, form), wanted)
    check_compaction(tmp_path, form, wanted)


def check_compaction(folder: Path, form: Format, wanted: dict[Key, Row]) -> None:
    before = len(open_table(str(folder / "table"), ARCHIVE_MESSAGES, form).files())
    assert "would become fewer" in compact(folder, "--dry-run")
    assert len(open_table(str(folder / "table"), ARCHIVE_MESSAGES, form).files()) == before
    assert "became 1" in compact(folder)
    after = open_table(str(folder / "table"), ARCHIVE_MESSAGES, form).files()
    assert len(after) == len({json.dumps(file.partition) for file in after}) < before
    check_rows(table_rows(folder, form), wanted)


def test_a_second_driver_stops_the_first_and_both_write_rows_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    channel = declare(cluster)
    keep(cluster)
    settle(cluster, channel, 0, 30)
    with (
        job(cluster, tmp_path, "delta", 90) as first,
        job(cluster, tmp_path, "delta", 90) as second,
    ):
        first.start()
        first.wait_for("a batch", lambda: version(tmp_path, "delta") >= 1, MOVE_SECONDS)
        total = 30 * len(QUEUES)
        first.wait_for("all rows", lambda: row_count(tmp_path, "delta") >= total, MOVE_SECONDS)
        before = last_epoch(cluster)
        second.start()
        second.wait_for("its group", lambda: first_epoch(cluster) > before, MOVE_SECONDS)
        settle(cluster, channel, 30, 30)
        total *= 2
        second.wait_for("all rows", lambda: row_count(tmp_path, "delta") >= total, MOVE_SECONDS)
        wait_for("the first one's end", lambda: first.has_ended, MOVE_SECONDS)
        assert second.stop() == 0, second.text
    assert "another query reads with group 'archive'" in first.text
    check_rows(table_rows(tmp_path, "delta"), archived(cluster))


def epochs(cluster: Cluster) -> list[int]:
    """Return how often the job's group was opened, at each shard; 0 for never."""
    with Client.connect(endpoints(cluster)) as client:
        groups = [client.export.groups("archive", each.name) for each in shards(client)]
    return [
        max((found.epoch for found in each.groups if found.name == "archive"), default=0)
        for each in groups
    ]


def last_epoch(cluster: Cluster) -> int:
    return max(epochs(cluster))


def first_epoch(cluster: Cluster) -> int:
    return min(epochs(cluster))
