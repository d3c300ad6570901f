"""The stream of a log against a real cluster, asked as Spark would ask it; no Spark is needed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.harness.cluster import Cluster, wait_for

from headrace_client.blocking import Client
from headrace_pipeline.error import DataLossError, FencedError
from headrace_pipeline.options import reach
from headrace_pipeline.sources.log.source import LogSource
from headrace_pipeline.sources.log.stream import LogStreamReader

FULL = {"x-queue-type": "quorum", "x-archive": "full"}
Row = tuple[str, int]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes on fresh data, beside those of other tests."""
    with Cluster(tmp_path / "data") as started:
        yield started
        started.close_connections()


@pytest.fixture
def client(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client; those of readers are closed with it."""
    readers: dict[Any, Client] = {}
    monkeypatch.setattr(reach, "_clients", readers)
    with Client.connect(endpoints(cluster)) as client:
        yield client
    for each in readers.values():
        each.close()


def endpoints(cluster: Cluster) -> str:
    return ",".join(node.grpc for node in cluster.local.nodes)


def archive(client: Client, queue: str, start: int, end: int) -> None:
    """Make messages `start` to `end` - 1 rows: they are published, and purged."""
    with client.publisher(routing_key=queue) as publisher:
        publisher.publish_many(b"%d" % number for number in range(start, end))
        publisher.flush()
    client.topology.purge_queue(queue)


class Query:
    """A query with a checkpoint: what Spark does with a reader, batch by batch.

    Attributes:
        rows: shard and index of each row that came.
        payloads: of the archive.
    """

    def __init__(self, cluster: Cluster, log: str, **options: str) -> None:
        self._options = {"endpoints": endpoints(cluster), "log": log} | options
        self._options.setdefault("startingOffsets", "earliest")
        self.rows: Counter[Row] = Counter()
        self.payloads: list[bytes] = []
        self.reader = self._start()
        self.offset = self.reader.initialOffset()

    def _start(self) -> LogStreamReader:
        source = LogSource(self._options)
        return source.streamReader(source.schema())

    def restart(self, **options: str) -> None:
        """Begin another run on the same checkpoint."""
        self._options |= options
        self.reader = self._start()
        self.offset = json.loads(json.dumps(self.offset))

    def step(self) -> bool:
        """Run a batch, twice as after a crash; return whether there was one."""
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        if end == self.offset:
            return False
        once, again = self._read(end), self._read(end)
        assert once == again
        for batch in once:
            index = batch.column(2).to_pylist()
            self.rows.update(zip(batch["shard"].to_pylist(), index, strict=True))
            if "payload" in batch.schema.names:
                self.payloads += batch["payload"].to_pylist()
        self.offset = end
        return True

    def _read(self, end: dict[str, Any]) -> list[Any]:
        parts = self.reader.partitions(self.offset, end)
        return [batch for part in parts for batch in self.reader.read(part)]

    def until(self, what: str, condition: Any) -> None:
        """Run batches until something is so."""

        def look() -> bool:
            self.step()
            return bool(condition())

        wait_for(what, look)

    def check(self) -> None:
        """Each row came once, and none is missing."""
        assert set(self.rows.values()) <= {1}
        for shard in {shard for shard, _ in self.rows}:
            indexes = sorted(index for name, index in self.rows if name == shard)
            assert indexes == list(range(len(indexes)))


def test_archives_are_read_once_while_leaders_die_and_queues_come_and_go(
    cluster: Cluster, client: Client
) -> None:
    client.topology.declare_queue("in.a", arguments=FULL)
    archive(client, "in.a", 0, 3000)
    query = Query(cluster, "archive", queue="in.*", maxRowsPerTrigger="700", group="lake")
    assert query.step()
    cluster.kill(cluster.leader("in.a"))
    query.until("the first queue", lambda: len(query.rows) == 3000)
    cluster.start()
    client.topology.declare_queue("in.b", arguments=FULL)
    client.topology.declare_queue("out", arguments=FULL)
    archive(client, "in.b", 3000, 3500)
    archive(client, "out", 0, 10)
    query.until("the second queue", lambda: len(query.rows) == 3500)
    query.check()
    assert sorted(map(int, query.payloads)) == list(range(3500))
    query.until("commits", lambda: committed(client) == [500, 3000])
    client.topology.delete_queue("in.a")
    query.until("the queue to go", lambda: len(query.offset["shards"]) == 1)
    archive(client, "in.b", 3500, 3600)
    client.topology.delete_queue("in.b")
    query.restart()
    with pytest.raises(DataLossError, match="rows from 500 on are gone with the shard"):
        wait_for("the loss", query.step)
    query.restart(failOnDataLoss="false")
    query.until("nothing to be left", lambda: query.offset["shards"] == {})


def committed(client: Client) -> list[int]:
    return sorted(each.committed for each in client.export.groups("archive", group="lake").groups)


def test_rows_that_went_unread_end_a_query_or_are_skipped(cluster: Cluster, client: Client) -> None:
    client.topology.declare_queue("work", arguments=FULL | {"x-archive-max-messages": 200})
    archive(client, "work", 0, 200)
    query = Query(cluster, "archive", queue="work")
    query.until("the first rows", lambda: len(query.rows) == 200)
    archive(client, "work", 200, 800)
    wait_for("the rows", lambda: client.export.shards("archive").shards[0].next_index == 800)
    lost = "archive of queue 'work' .*: 400 rows, 200 to 599, were dropped before they were read"
    with pytest.raises(DataLossError, match=lost):
        query.step()
    query.restart(failOnDataLoss="false")
    assert query.step()
    assert sorted(map(int, query.payloads)) == [*range(200), *range(600, 800)]


def test_telemetry_of_a_node_that_dies_waits_until_it_is_back(
    cluster: Cluster, client: Client
) -> None:
    query = Query(cluster, "flow_samples", maxRowsPerTrigger="20", group="lake")
    query.until("rows of all", lambda: {name for name, _ in query.rows} == {"n1", "n2", "n3"})
    cluster.kill("n3")
    before = counts(query)
    query.until("rows of the others", lambda: counts(query)["n1"] > before["n1"] + 2)
    assert query.offset["shards"]["n3"]
    query.restart()
    cluster.start()
    held = counts(query)
    query.until("rows of all again", lambda: counts(query)["n3"] > held["n3"] + 2)
    query.check()
    first = query.reader
    query.restart()
    query.until("a commit", query.step)
    with pytest.raises(FencedError, match="another query reads with group 'lake'"):
        wait_for("the other to be fenced", lambda: first.commit(query.offset))


def counts(query: Query) -> Counter[str]:
    return Counter(name for name, _ in query.rows)
