"""A batch read of a queue looks at what waits, and takes nothing."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from headrace_client.blocking import LeaseGroup
from headrace_pipeline.error import FencedError, PipelineError
from headrace_pipeline.sources.queue.batch import QueueBatchReader
from headrace_pipeline.sources.queue.source import QueueDataSource

GROUP = "lake (batch)"


def load(broker: Any, **options: Any) -> QueueDataSource:
    """Load a DataFrame."""
    given = {"endpoints": broker.endpoint, "queue": "q", "group": "lake"}
    return QueueDataSource(given | {key: str(value) for key, value in options.items()})


def read(source: QueueDataSource) -> list[bytes]:
    """Plan and run a query of a DataFrame."""
    reader = pickle.loads(pickle.dumps(source)).reader(source.schema())
    assert isinstance(reader, QueueBatchReader)
    found = []
    for partition in reader.partitions():
        for batch in reader.read(pickle.loads(pickle.dumps(partition))):
            found += batch.column("payload").to_pylist()
    return found


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


def test_a_dataframe_is_the_same_messages_whenever_it_is_run(broker: Any) -> None:
    world = broker.leases.world
    world.fill(10)
    source = load(broker)
    assert read(source) == numbers(1, 10)
    world.fill(5)
    assert read(source) == numbers(1, 10)
    assert world.groups[GROUP].settled == 0
    assert not [name for name, _ in broker.calls if name in ("Settle", "Release")]


def test_a_dataframe_that_is_loaded_anew_sees_what_came_since(broker: Any) -> None:
    world = broker.leases.world
    world.fill(10)
    old = load(broker)
    read(old)
    world.fill(5)
    new = load(broker)
    assert read(new) == numbers(1, 15)
    with pytest.raises(FencedError, match="load it again"):
        read(old)


def test_a_batch_is_bounded_by_options(broker: Any) -> None:
    broker.leases.world.fill(30)
    source = load(broker, maxRowsPerTrigger=20, maxBytesPerTrigger=12, minPartitions=3)
    assert read(source) == read(source) == numbers(1, 11)
    [*parts] = source.reader(source.schema()).partitions()
    assert len(parts) >= 3


def test_an_empty_queue_gives_no_rows(broker: Any) -> None:
    assert read(load(broker)) == []


def test_what_has_expired_is_leased_anew(broker: Any, caplog: pytest.LogCaptureFixture) -> None:
    world = broker.leases.world
    world.fill(10)
    source = load(broker)
    read(source)
    world.expire(GROUP)
    world.fill(2)
    assert sorted(read(source), key=int) == sorted(numbers(1, 12), key=int)
    assert len(world.groups[GROUP].gone) == 0
    assert world.groups[GROUP].settled == 1


def test_a_look_at_a_queue_does_not_fence_the_stream_that_reads_it(broker: Any) -> None:
    broker.leases.world.fill(10)
    source = load(broker, maxRowsPerTrigger=5)
    stream = source.streamReader(source.schema())
    zero = stream.initialOffset()
    one = stream.latestOffset(zero, stream.getDefaultReadLimit())
    assert read(source) == numbers(6, 10)
    assert stream.latestOffset(one, stream.getDefaultReadLimit()) == one
    stream.stop()


def test_a_group_that_is_closed_under_a_dataframe_is_told_with_what_to_do(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = broker.leases.world
    world.fill(10)
    source = load(broker)
    reader = source.reader(source.schema())
    [part] = reader.partitions()
    del world.groups[GROUP]
    told = r"group 'lake' on queue 'q'.* was closed.*; load the DataFrame again$"
    with pytest.raises(PipelineError, match=told):
        list(reader.read(part))
    opened = LeaseGroup.open

    def open_and_close(*args: Any, **kwargs: Any) -> Any:
        state = opened(*args, **kwargs)
        del world.groups[GROUP]
        return state

    monkeypatch.setattr(LeaseGroup, "open", open_and_close)
    world.fill(10)
    with pytest.raises(PipelineError, match=told):
        load(broker).reader(source.schema()).partitions()


def test_tasks_keep_what_they_read(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr("headrace_pipeline.sources.queue.rows.monotonic", lambda: next(clock))
    broker.leases.world.fill(10)
    assert read(load(broker, leaseTtlMs=60_000)) == numbers(1, 10)
    assert broker.leases.world.groups[GROUP].renewed > 0


def test_messages_that_may_not_be_leased_are_left_out(broker: Any, caplog: Any) -> None:
    world = broker.leases.world
    world.fill(30)
    world.most = 12
    assert read(load(broker)) == numbers(1, 12)
    assert "reads no more than is leased" in caplog.text
