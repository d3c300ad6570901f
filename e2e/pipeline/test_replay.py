"""Archived messages that are replayed on a real cluster: all of them, as they were, and once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from e2e.harness.cluster import Cluster, wait_for
from pyspark.sql import DataFrame, SparkSession

from headrace_client import PERSISTENT, TRANSIENT, Properties, blocking
from headrace_pipeline.error import PipelineError
from headrace_pipeline.jobs.replay import SKIP, Replay, archive_rows, look, run
from headrace_pipeline.options.connection import Connection
from headrace_pipeline.schema.archive import ARCHIVE_MESSAGES
from headrace_pipeline.tables import open_table
from headrace_pipeline.transforms.archive import archive_messages
from headrace_pipeline.transforms.replay import Selection, Target

pytestmark = pytest.mark.full  # an archive is made first, and each replay starts Spark

MANY = 300
SECONDS = 420  # Spark starts slowly where others compute

HEADERS = {
    "boolean": True,
    "long": -(1 << 40),
    "text": "grün",
    "octets": b"\x00\xff",
    "time": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "decimal": Decimal("3.14"),
    "none": None,
    "table": {"in": [1 << 40, "x", {"deep": [b"\xfe", 0.5]}]},
}
ALL = Properties(
    content_type="application/x",
    content_encoding="gzip",
    headers=HEADERS,
    delivery_mode=TRANSIENT,
    priority=7,
    correlation_id="c",
    reply_to="r",
    expiration=timedelta(days=1),
    message_id="m",
    timestamp=datetime(2026, 1, 31, 12, tzinfo=UTC),
    type="t",
    user_id="guest",
    app_id="a",
    cluster_id="k",
)
# A content type that is no UTF-8, and headers with one name twice and bytes as a text.
NOT_UTF_8 = (
    b"\xa0\x00\x02\xff\xfe\x00\x00\x00\x11\x01aS\x00\x00\x00\x01\xff\x01aS\x00\x00\x00\x02\xc3\x28"
)


def as_published() -> list[tuple[bytes, Properties]]:
    found = [
        (b"\x00\xff\xc3\x28", ALL),
        (b"", Properties(delivery_mode=PERSISTENT)),
        (b"raw", Properties(encoded=NOT_UTF_8)),
    ]
    return found + [(b"%d" % each, Properties(message_id=f"m{each}")) for each in range(MANY)]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("replay") / "data") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def connection(nodes: Cluster) -> Connection:
    return Connection(",".join(node.grpc for node in nodes.local.nodes))


@pytest.fixture(scope="module")
def client(connection: Connection) -> Iterator[blocking.Client]:
    with blocking.Client.connect(connection.endpoints) as client:
        yield client


def declare(client: blocking.Client, name: str, **arguments: Any) -> str:
    client.topology.declare_queue(name, arguments={"x-queue-type": "quorum", **arguments})
    return name


def drained(client: blocking.Client, queue: str) -> list[tuple[bytes, Properties]]:
    """All that waits in a queue, which has none of it then."""
    found = []
    with client.consumer(queue, prefetch=500, until_empty=True) as consumer:
        for delivery in consumer:
            found.append((delivery.body, delivery.properties))
            delivery.accept()
    return found


def settled(client: blocking.Client, queue: str, kind: str) -> list[tuple[bytes, Properties]]:
    """Settle messages in a queue with an archive; return them as they were delivered."""
    declare(client, queue, **{"x-archive": kind})
    messages = as_published()
    with client.publisher(routing_key=queue) as publisher:
        for body, properties in messages:
            publisher.publish(body, properties=properties)
        publisher.flush(SECONDS)
    found = drained(client, queue)
    assert len(found) == len(messages)

    def archived() -> bool:
        shards = client.export.shards("archive", "/", queue).shards
        return bool(shards) and shards[0].next_index >= len(messages)

    wait_for("the archive", archived, SECONDS)
    return found


def key(messages: list[tuple[bytes, Properties]]) -> Counter[str]:
    return Counter(repr(each) for each in messages)


@pytest.fixture(scope="module")
def orders(client: blocking.Client) -> list[tuple[bytes, Properties]]:
    return settled(client, "orders", "full")


def replaying(connection: Connection, name: str, to: str, **more: Any) -> Replay:
    chosen = Selection("/", ("orders",), **more)
    return Replay(name, connection, chosen, Target("", to))


@pytest.fixture(scope="module")
def kept(spark: SparkSession, connection: Connection, orders: Any) -> DataFrame:
    """Rows that brokers keep."""
    return archive_rows(spark, replaying(connection, "look", "x"), None).cache()


def test_messages_that_came_are_those_that_were_published(orders: Any) -> None:
    assert dict(orders)[b"\x00\xff\xc3\x28"] == ALL
    assert dict(orders)[b"raw"].encoded == NOT_UTF_8


def test_every_property_and_payload_comes_back_and_nothing_twice(
    spark: SparkSession,
    connection: Connection,
    client: blocking.Client,
    orders: Any,
    kept: DataFrame,
    tmp_path: Path,
) -> None:
    table = open_table(str(tmp_path / "archive"), ARCHIVE_MESSAGES)
    table.write_batch(archive_messages(kept), "test", 0)
    queue = declare(client, "again")
    replay = replaying(connection, "one", queue)
    report = run(archive_rows(spark, replay, str(tmp_path / "archive")), replay)
    assert (report.published, report.refused) == (len(orders), 0)
    assert key(drained(client, queue)) == key(orders)
    # Again from the table, from the brokers, and with another number of tasks.
    run(archive_rows(spark, replay, str(tmp_path / "archive")), replay)
    report = run(kept, replay._replace(tasks=1))
    assert report.published == len(orders)
    assert drained(client, queue) == []
    run(kept, replay._replace(name="two"))
    assert key(drained(client, queue)) == key(orders)


def test_a_selection_is_replayed_to_where_it_came_from(
    connection: Connection, client: blocking.Client, orders: Any, kept: DataFrame
) -> None:
    replay = replaying(connection, "chosen", "x", where="message_id in ('m3', 'm5')")
    replay = replay._replace(target=Target())
    seen = look(kept, replay)
    assert (seen.selected, len(seen.samples), seen.published) == (2, 2, 0)
    assert {each.routing_key for each in seen.samples} == {"orders"}
    assert client.get("orders") == []
    assert run(kept, replay).published == 2
    assert sorted(body for body, _ in drained(client, "orders")) == [b"3", b"5"]


def test_a_replay_has_a_name_in_listings_and_a_rate(
    nodes: Cluster, connection: Connection, client: blocking.Client, kept: DataFrame
) -> None:
    queue = declare(client, "slowly")
    replay = replaying(connection, "slow", queue)._replace(rate=20.0, tasks=1)
    thread = threading.Thread(target=run, args=(kept, replay))
    thread.start()
    try:

        def is_listed() -> bool:
            rows = nodes.local.nodes[0].api.get("/api/connections")[1]
            names = [row["client_properties"].get("connection_name") for row in rows]
            return "replay:slow" in names

        wait_for("its connection", is_listed, SECONDS)
        explained = client.why(connection="replay:slow")
        assert "replay:slow" in explained.sentence
    finally:
        thread.join()
    assert len(drained(client, queue)) == MANY + 3


def test_rows_without_payload_are_refused_or_skipped(
    spark: SparkSession, connection: Connection, client: blocking.Client
) -> None:
    settled(client, "heads", "headers")
    queue = declare(client, "heads-again")
    replay = Replay("h", connection, Selection("/", ("heads",)), Target("", queue))
    rows = archive_rows(spark, replay, None)
    with pytest.raises(PipelineError, match=r"303 of 303 rows have no payload.* in heads: "):
        run(rows, replay)
    report = run(rows, replay._replace(headers_only=SKIP))
    assert (report.published, report.skipped) == (0, MANY + 3)
    assert drained(client, queue) == []
