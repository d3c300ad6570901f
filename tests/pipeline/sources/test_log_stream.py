"""Spark's calls of a log's stream, in their order; no Spark is needed."""

from __future__ import annotations

import logging
import time
from typing import Any

import grpc
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from tests.client.fake_exports import FIRST_MS
from tests.pipeline.sources.log_world import (
    ARCHIVES,
    archive,
    latest,
    open_reader,
    read,
    rows_of,
    samples,
)

from headrace_client import AccessRefusedError, ConnectFailedError, HeadraceError
from headrace_pipeline.error import DataLossError, OptionError, PipelineError, SchemaError
from headrace_pipeline.sources.log import rows as log_rows
from headrace_pipeline.sources.log import stream as log_stream
from headrace_pipeline.sources.log.source import LogSource


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle stream looks again at once."""
    monkeypatch.setattr(log_stream, "LOOK_SECONDS", 0.0)


# Reading


def test_all_rows_are_read_once_and_a_batch_may_be_read_again(broker: Any) -> None:
    samples(broker, "n1", 10)
    second = samples(broker, "n2", 5)
    reader = open_reader(broker)
    start = reader.initialOffset()
    end = latest(reader, start)
    wanted = rows_of("n1", 0, 10) + rows_of("n2", 0, 5)
    assert read(reader, start, end) == wanted
    assert latest(reader, end) == end
    assert reader.partitions(end, end) == []
    second.following = 9
    later = latest(reader, end)
    assert read(reader, end, later) == rows_of("n2", 5, 9)
    assert read(open_reader(broker), start, end) == wanted


def test_values_of_rows_are_those_of_the_broker_with_where_they_stand(broker: Any) -> None:
    shard = archive(broker, "12", "orders", 6, incarnation=99)
    reader = open_reader(broker, "archive", includeHeaders="true")
    start = reader.initialOffset()
    (part,) = reader.partitions(start, latest(reader, start))
    (batch,) = reader.read(part)
    row = batch.slice(5, 1).to_pylist()[0]
    assert (row["shard"], row["incarnation"], row["archive_index"]) == ("12", 99, 5)
    assert (row["queue"], row["payload"], row["headers"]) == ("orders", b"5", "{}")
    assert row["settled_at"].timestamp() * 1000 == shard.at(5)
    assert row["message_id"] is None
    assert "headers" not in open_reader(broker, "archive")._table.names


def test_small_blocks_become_large_batches_and_another_schema_begins_one(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = samples(broker, "n1", 40)
    reader = open_reader(broker)
    start = reader.initialOffset()
    end = latest(reader, start)
    (part,) = reader.partitions(start, end)
    assert [batch.num_rows for batch in reader.read(part)] == [40]
    monkeypatch.setattr(log_rows, "BATCH_ROWS", 10)
    assert [batch.num_rows for batch in reader.read(part)] == [12, 12, 12, 4]
    monkeypatch.setattr(log_rows, "BATCH_ROWS", 1000)
    monkeypatch.setattr(log_rows, "BATCH_BYTES", 1)
    assert [batch.num_rows for batch in reader.read(part)] == [4] * 10
    assert shard.following == 40


def test_columns_that_a_user_names_are_read_and_no_others(broker: Any) -> None:
    samples(broker, "n1", 3)
    source = LogSource({"endpoints": broker.endpoint, "log": "flow_samples"})
    fields = source.schema()
    picked = type(fields)([fields["node"], fields["at"]])
    reader = source.reader(picked)
    (part,) = reader.partitions()
    (batch,) = reader.read(part)
    assert batch.schema.names == ["node", "at"]
    with pytest.raises(SchemaError, match="no column nodes string; it has shard string, "):
        source.reader(type(fields)().add("nodes", "string"))
    with pytest.raises(SchemaError, match="no column at string"):
        source.streamReader(type(fields)().add("at", "string"))


# Where it begins


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("earliest", {"n1": [7, 2], "n2": [7, 0]}),
        ("latest", {"n1": [7, 10], "n2": [7, 5]}),
        ('{"n1": 4}', {"n1": [7, 4], "n2": [7, 0]}),
        ('{"n1": [7, 4], "n2": "latest"}', {"n1": [7, 4], "n2": [7, 5]}),
        ('{"n1": "earliest", "n2": 5}', {"n1": [7, 2], "n2": [7, 5]}),
    ],
)
def test_a_stream_begins_where_it_is_told(broker: Any, given: str, wanted: Any) -> None:
    samples(broker, "n1", 10, first=2)
    samples(broker, "n2", 5)
    reader = open_reader(broker, startingOffsets=given)
    assert reader.initialOffset() == {"version": 1, "log": "flow_samples", "shards": wanted}


def test_a_stream_begins_with_the_first_row_of_a_time(broker: Any) -> None:
    shard = samples(broker, "n1", 40, first=3)
    for index in range(-1, 42):
        since_ms = FIRST_MS + 1000 * index - 500
        reader = open_reader(broker, startingOffsets=None, startingTimestamp=since_ms)
        found = reader.initialOffset()
        assert found["shards"]["n1"] == [7, min(max(index, shard.first), 40)]


def test_a_start_that_cannot_be_is_told(broker: Any) -> None:
    samples(broker, "n1", 10)
    for given, text in (
        ('{"n9": 1}', "startingOffsets: there is no shard 'n9'; there are: n1"),
        ('{"n1": 11}', "shard n1 has no row 11 yet, the next is 10"),
        ('{"n1": [6, 1]}', "the incarnation of shard n1 is 7, not 6"),
    ):
        with pytest.raises(OptionError, match=text):
            open_reader(broker, startingOffsets=given).initialOffset()


def test_latest_means_so_for_a_node_that_was_away_as_well(broker: Any) -> None:
    samples(broker, "n1", 10)
    soon_ms = int(time.time() * 1000) + 3_600_000
    away = samples(broker, "n2", 5)
    broker.exports.logs.missing = ["n2"]
    reader = open_reader(broker, startingOffsets="latest")
    start = reader.initialOffset()
    assert list(start["shards"]) == ["n1"]
    broker.exports.logs.missing = []
    assert latest(reader, start) == start
    away.first_ms = soon_ms - 3000
    end = latest(reader, start)
    assert read(reader, start, end) == rows_of("n2", 0, 5)


def test_queues_that_are_named_must_have_an_archive_and_patterns_need_not(broker: Any) -> None:
    archive(broker, "1", "orders.in", 3)
    archive(broker, "2", "other", 3)
    with pytest.raises(OptionError, match="queue: there is no archive of a queue 'order' in vhost"):
        open_reader(broker, "archive", queue="order").initialOffset()
    broker.exports.logs.missing = ["n3"]
    with pytest.raises(PipelineError, match="n3 did not answer: try again"):
        open_reader(broker, "archive", queue="order,other").initialOffset()
    broker.exports.logs.missing = []
    for queue, shards in (("order.*", []), ("orders.*", ["1"]), ("other,orders.?n", ["1", "2"])):
        reader = open_reader(broker, "archive", queue=queue)
        assert list(reader.initialOffset()["shards"]) == shards


# How much


def test_bounds_of_a_trigger_hold_until_all_is_wanted(broker: Any) -> None:
    archive(broker, "1", "a", 100, byte_count=100 * 872)
    archive(broker, "2", "b", 10, byte_count=10 * 872)
    reader = open_reader(broker, "archive", maxRowsPerTrigger=30)
    assert reader.getDefaultReadLimit() == ReadMaxRows(30)
    start = reader.initialOffset()
    assert latest(reader, start)["shards"] == {"1": [7, 20], "2": [7, 10]}
    assert reader.latestOffset(start, ReadAllAvailable())["shards"] == {"1": [7, 100], "2": [7, 10]}
    both = open_reader(broker, "archive", maxRowsPerTrigger=30, maxBytesPerTrigger=10_000)
    assert latest(both, start)["shards"] == {"1": [7, 5], "2": [7, 5]}
    byte_count = open_reader(broker, "archive", maxBytesPerTrigger=10_000)
    assert byte_count.getDefaultReadLimit() == ReadMaxBytes(10_000)
    assert latest(byte_count, start)["shards"] == {"1": [7, 5], "2": [7, 5]}
    assert open_reader(broker).getDefaultReadLimit() == ReadAllAvailable()


def test_available_now_stops_where_the_log_ended_when_it_began(broker: Any) -> None:
    shard = samples(broker, "n1", 10)
    reader = open_reader(broker, maxRowsPerTrigger=6)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    shard.following = 100
    samples(broker, "n2", 100)
    offsets = [start]
    while (end := latest(reader, offsets[-1])) != offsets[-1]:
        offsets.append(end)
    assert [each["shards"] for each in offsets] == [{"n1": [7, 0]}, {"n1": [7, 6]}, {"n1": [7, 10]}]


def test_progress_tells_where_the_log_ends(broker: Any) -> None:
    samples(broker, "n1", 10)
    reader = open_reader(broker, maxRowsPerTrigger=1)
    assert reader.reportLatestOffset() is None
    reader.initialOffset()
    told = reader.reportLatestOffset()
    assert told is not None
    assert told["shards"] == {"n1": [7, 10]}


# What comes and goes


def test_a_node_that_is_away_waits_and_is_read_when_it_is_back(
    broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    samples(broker, "n1", 3)
    away = samples(broker, "n2", 3)
    reader = open_reader(broker)
    start = reader.initialOffset()
    broker.exports.logs.missing = ["n2"]
    with caplog.at_level(logging.WARNING):
        end = latest(reader, start)
    assert "nodes that do not answer, whose rows wait: n2" in caplog.text
    assert end["shards"] == {"n1": [7, 3], "n2": [7, 0]}
    away.following = 5
    broker.exports.logs.missing = []
    assert read(reader, end, latest(reader, end)) == rows_of("n2", 0, 5)


def test_while_no_broker_answers_there_is_nothing_new(
    broker: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    samples(broker, "n1", 3)
    reader = open_reader(broker)
    start = reader.initialOffset()
    failure: list[HeadraceError] = [ConnectFailedError("all nodes are down")]

    def look(*_: object) -> Any:
        raise failure[0]

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(log_stream, "look", look)
        assert latest(reader, start) == start
        assert "no broker can tell what there is, asked again soon: all nodes" in caplog.text
        failure[0] = AccessRefusedError("monitors only")
        with pytest.raises(AccessRefusedError):
            latest(reader, start)
    assert read(reader, start, latest(reader, start)) == rows_of("n1", 0, 3)


def test_a_task_waits_for_a_node_and_then_says_what_to_do(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples(broker, "n1", 3)
    reader = open_reader(broker)
    start = reader.initialOffset()
    end = latest(reader, start)
    broker.exports.breaks_after = [
        (0, (grpc.StatusCode.UNAVAILABLE, "gone", "NODE_DOWN")) for _ in range(3)
    ]
    assert read(reader, start, end) == rows_of("n1", 0, 3)
    monkeypatch.setattr(log_rows, "NODE_WAIT_SECONDS", 0.05)
    broker.exports.logs.down.add("n1")
    with pytest.raises(PipelineError, match=r"shard n1: no answer .* again when its node is back"):
        read(reader, start, end)


def test_new_queues_are_read_from_their_first_row(broker: Any) -> None:
    archive(broker, "1", "a", 3)
    reader = open_reader(broker, "archive", startingOffsets="latest")
    start = reader.initialOffset()
    archive(broker, "2", "b", 0)
    assert latest(reader, start) == start
    archive(broker, "2", "b", 9, first=4)
    end = latest(reader, start)
    assert end["shards"] == {"1": [7, 3], "2": [7, 9, {"from": 4}]}
    assert read(reader, start, end) == rows_of("2", 4, 9)
    assert read(open_reader(broker, "archive"), start, end) == rows_of("2", 4, 9)
    assert latest(reader, end) == end


def test_a_deleted_queue_that_was_read_to_its_end_is_left_out(
    broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    archive(broker, "1", "a", 3)
    reader = open_reader(broker, "archive")
    start = reader.initialOffset()
    end = latest(reader, start)
    latest(reader, end)
    del broker.exports.logs.shards[ARCHIVES]["1"]
    with caplog.at_level(logging.WARNING):
        assert latest(reader, end)["shards"] == {}
    assert "shard 1 is gone; all rows that were seen there were read" in caplog.text


def test_a_deleted_queue_with_rows_unread_is_a_loss(broker: Any) -> None:
    archive(broker, "1", "a", 3)
    start = open_reader(broker, "archive").initialOffset()
    del broker.exports.logs.shards[ARCHIVES]["1"]
    with pytest.raises(DataLossError, match="1: rows from 0 on are gone with the shard"):
        latest(open_reader(broker, "archive"), start)
    tolerant = open_reader(broker, "archive", failOnDataLoss="false")
    assert latest(tolerant, start)["shards"] == {}


def test_a_shard_that_is_not_listed_while_its_leader_changes_is_not_gone(broker: Any) -> None:
    archive(broker, "1", "a", 3)
    reader = open_reader(broker, "archive")
    start = reader.initialOffset()
    listed = broker.exports.logs.shards[ARCHIVES]["1"]
    listed.queue = "moving"  # the listing leaves it out, and a read finds it
    named = open_reader(broker, "archive", queue="a")
    assert latest(named, start)["shards"] == {"1": [7, 0]}
