"""Log stream when rows are lost, groups change owners, and clocks are wrong."""

from __future__ import annotations

import logging
import time
from typing import Any

import grpc
import pytest
from tests.pipeline.sources.log_world import latest, open_reader, read, rows_of, samples

from headrace_pipeline.error import DataLossError, FencedError
from headrace_pipeline.schema.log import LOGS
from headrace_pipeline.sources.log import stream as log_stream


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle stream looks again at once."""
    monkeypatch.setattr(log_stream, "LOOK_SECONDS", 0.0)


# Losses


def test_rows_that_retention_has_dropped_end_the_query_or_are_counted(
    broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    shard = samples(broker, "n1", 10)
    start = open_reader(broker).initialOffset()
    shard.first = 4
    with pytest.raises(DataLossError, match="shard n1: 4 rows, 0 to 3, were dropped before"):
        latest(open_reader(broker), start)
    reader = open_reader(broker, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        end = latest(reader, start)
    assert "at least 4 rows" in caplog.text
    assert end["shards"] == {"n1": [7, 10, {"from": 4}]}
    assert read(reader, start, end) == rows_of("n1", 4, 10)


def test_rows_that_are_dropped_between_plan_and_task_likewise(
    broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    shard = samples(broker, "n1", 10)
    strict, tolerant = open_reader(broker), open_reader(broker, failOnDataLoss="false")
    start = strict.initialOffset()
    end = latest(strict, start)
    shard.first = 4
    with pytest.raises(DataLossError, match="shard n1: 4 rows, 0 to 3, were dropped"):
        read(strict, start, end)
    assert read(tolerant, start, end) == rows_of("n1", 4, 10)
    shard.first, shard.following = 12, 15
    assert read(tolerant, start, end) == []
    shard.incarnation = 8
    with pytest.raises(DataLossError, match="shard n1: 10 rows, 0 to 9, were lost with the shard"):
        read(strict, start, end)
    with caplog.at_level(logging.WARNING):
        assert read(tolerant, start, end) == []
    assert "10 rows, 0 to 9, were lost with the shard" in caplog.text


def test_a_lost_disk_ends_the_query_or_the_shard_begins_anew(broker: Any) -> None:
    shard = samples(broker, "n1", 10)
    start = open_reader(broker).initialOffset()
    shard.incarnation, shard.following = 8, 2
    with pytest.raises(DataLossError, match="rows from 0 on were lost with the shard"):
        latest(open_reader(broker), start)
    reader = open_reader(broker, failOnDataLoss="false")
    end = latest(reader, start)
    assert end["shards"] == {"n1": [8, 2, {"from": 0}]}
    assert read(reader, start, end) == rows_of("n1", 0, 2)


# Groups


def test_a_group_commits_each_batch_and_the_last_one_too(broker: Any) -> None:
    shard = samples(broker, "n1", 10)
    reader = open_reader(broker, maxRowsPerTrigger=4, group="lake")
    start = reader.initialOffset()
    assert shard.groups["lake"].committed == 0
    first = latest(reader, start)
    second = latest(reader, first)
    reader.commit(first)
    assert latest(reader, latest(reader, second)) == latest(reader, second)
    assert broker.exports.commits == [
        ("n1", "lake", 0),
        ("n1", "lake", 4),
        ("n1", "lake", 8),
        ("n1", "lake", 10),
    ]


def test_a_driver_that_was_idle_hears_of_the_next_one_before_it_plans_a_batch(broker: Any) -> None:
    shard = samples(broker, "n1", 10)
    first = open_reader(broker, group="lake")
    end = latest(first, first.initialOffset())
    assert latest(first, end) == end
    latest(open_reader(broker, group="lake"), end)
    assert latest(first, end) == end
    shard.following = 12
    with pytest.raises(FencedError, match="another query reads with group 'lake'"):
        latest(first, end)


def test_the_next_driver_fences_the_one_before(broker: Any) -> None:
    samples(broker, "n1", 10)
    first = open_reader(broker, group="lake", maxRowsPerTrigger=4)
    start = first.initialOffset()
    end = latest(first, start)
    second = open_reader(broker, group="lake")
    latest(second, end)
    with pytest.raises(FencedError, match="another query reads with group 'lake'"):
        first.commit(end)


def test_a_group_that_was_closed_is_opened_again(broker: Any) -> None:
    shard = samples(broker, "n1", 10)
    reader = open_reader(broker, group="lake")
    end = latest(reader, reader.initialOffset())
    shard.groups.clear()
    reader.commit(end)
    assert shard.groups["lake"].committed == 10


def test_a_commit_that_fails_is_made_up_for_with_the_next(
    broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    shard = samples(broker, "n1", 10)
    reader = open_reader(broker, group="lake")
    end = latest(reader, reader.initialOffset())
    broker.answers["CommitExport"] = grpc.StatusCode.INTERNAL, "a fault", ""
    with caplog.at_level(logging.WARNING):
        reader.commit(end)
    assert "group lake: n1 is not committed: a fault" in caplog.text
    del broker.answers["CommitExport"]
    assert latest(reader, end) == end
    assert shard.groups["lake"].committed == 10


def test_without_a_group_nothing_is_kept_at_the_broker(broker: Any) -> None:
    shard = samples(broker, "n1", 10)
    reader = open_reader(broker)
    end = latest(reader, reader.initialOffset())
    reader.commit(end)
    latest(reader, end)
    assert (shard.groups, broker.exports.commits) == ({}, [])


# Clocks


def test_times_of_a_fast_clock_are_lowered_alike_however_often_it_is_read(
    broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    now_ms = int(time.time() * 1000)
    samples(broker, "n1", 10, first_ms=now_ms - 20_000)
    samples(broker, "n2", 10, first_ms=now_ms - 20_000, ahead_ms=86_400_000)
    reader = open_reader(broker)
    start = reader.initialOffset()
    with caplog.at_level(logging.WARNING):
        end = latest(reader, start)
    assert "the clock of n2 is " in caplog.text
    until_ms = end["shards"]["n2"][2]["until"]
    assert len(end["shards"]["n1"]) == 2
    told: list[list[float]] = []
    for _ in range(2):
        fresh = open_reader(broker)
        told.append([])
        for part in fresh.partitions(start, end):
            for batch in fresh.read(part):
                told[-1] += [each.timestamp() * 1000 for each in batch["at"].to_pylist()]
    assert told[0] == told[1]
    assert told[0][10:] == [until_ms] * 10
    assert now_ms <= until_ms <= now_ms + 60_000
    assert told[0][:10] == [now_ms - 20_000 + 1000 * index for index in range(10)]
    assert latest(reader, end) == end
    assert LOGS["flow_samples"].columns[3].name == "at"
