"""Spark's calls of a queue's stream, in their order; no Spark is needed."""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headrace_client.loop_thread import SHARED
from headrace_pipeline.error import DataLossError, FencedError, PipelineError, SchemaError
from headrace_pipeline.sources.queue import holder
from headrace_pipeline.sources.queue.source import QueueDataSource
from headrace_pipeline.sources.queue.stream import QueueStreamReader
from headrace_protos.broker.v1 import topology_pb2 as topology

Open = Any


@pytest.fixture
def open_reader(broker: Any) -> Iterator[Open]:
    """Start a query's reader, as a driver does."""
    with contextlib.ExitStack() as stack:

        def start(**options: Any) -> QueueStreamReader:
            given = {"endpoints": broker.endpoint, "queue": "q", "group": "lake"}
            source = QueueDataSource(given | {key: str(value) for key, value in options.items()})
            reader = source.streamReader(source.schema())
            stack.callback(reader.stop)
            return reader

        yield start


def latest(reader: QueueStreamReader, start: Any) -> Any:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def read(reader: QueueStreamReader, start: Any, end: Any) -> list[bytes]:
    """Run the tasks of a batch, each in its own copy of the reader."""
    plain = QueueStreamReader(reader._options)
    copy = pickle.loads(pickle.dumps(plain))
    found = []
    for partition in reader.partitions(start, end):
        for batch in copy.read(pickle.loads(pickle.dumps(partition))):
            found += batch.column("payload").to_pylist()
    return found


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


def wait_for(broker: Any, condition: Any) -> None:
    thread = SHARED.acquire()
    try:
        thread.run(broker.until(condition))
    finally:
        SHARED.release()


def called(broker: Any, name: str) -> int:
    return sum(each == name for each, _ in broker.calls)


def test_batches_are_leased_read_and_settled_when_the_next_begins(
    broker: Any, open_reader: Open
) -> None:
    world = broker.leases.world
    world.fill(25)
    reader = open_reader(maxRowsPerTrigger=10)
    zero = reader.initialOffset()
    assert zero == {"version": 1, "queue": "q", "group": "lake", "lease": 0}
    one = latest(reader, zero)
    assert read(reader, zero, one) == numbers(1, 10)
    assert read(reader, zero, one) == numbers(1, 10)
    group = world.groups["lake"]
    assert (one["lease"], group.settled, len(group.held)) == (1, 0, 1)
    two = latest(reader, one)
    assert (group.settled, read(reader, one, two)) == (1, numbers(11, 20))
    reader.commit(one)
    three = latest(reader, two)
    assert read(reader, two, three) == numbers(21, 25)
    assert latest(reader, three) == three
    assert (group.settled, group.held, world.ready) == (3, {}, {})
    assert called(broker, "OpenGroup") == 1


def test_rows_say_where_they_come_from(broker: Any, open_reader: Open) -> None:
    broker.leases.world.fill(6)
    reader = open_reader(includeHeaders="true", minPartitions=2)
    zero = reader.initialOffset()
    parts = reader.partitions(zero, latest(reader, zero))
    rows = [row for part in parts for batch in reader_rows(reader, part) for row in batch]
    assert [(row["lease"], row["lease_offset"]) for row in rows] == [(1, at) for at in range(6)]
    last = rows[-1]
    assert (last["vhost"], last["queue"], last["queue_message_id"]) == ("/", "q", 6)
    assert (last["payload"], last["payload_bytes"], last["routing_key"]) == (b"6", 1, "q")
    assert (last["headers"], last["priority"], last["acquired_count"]) == ('{"a": 1}', None, 0)
    assert last["enqueued_at"].timestamp() == 1_700_000_000.006
    assert last["message_id"] is None


def reader_rows(reader: QueueStreamReader, part: Any) -> list[list[dict[str, Any]]]:
    table = reader._options.table
    batches = list(reader.read(part))
    assert all(batch.schema == table.arrow() for batch in batches)
    return [batch.to_pylist() for batch in batches]


def test_an_empty_queue_is_not_asked_each_time_that_spark_asks(
    broker: Any, open_reader: Open
) -> None:
    reader = open_reader()
    zero = reader.initialOffset()
    for _ in range(20):
        assert latest(reader, zero) == zero
    assert called(broker, "Lease") < 20


def test_a_driver_that_comes_back_reads_the_same_batch_and_fences_the_old_one(
    broker: Any, open_reader: Open
) -> None:
    broker.leases.world.fill(30)
    first = open_reader(maxRowsPerTrigger=10)
    zero = first.initialOffset()
    one = latest(first, zero)
    two = latest(first, one)
    old = first.partitions(one, two)
    second = open_reader(maxRowsPerTrigger=10)
    assert read(second, one, two) == numbers(11, 20)
    for attempt in (lambda: list(first.read(old[0])), lambda: latest(first, two)):
        with pytest.raises(FencedError, match="another query has opened it since"):
            attempt()
    assert latest(second, two)["lease"] == 3


def test_what_was_leased_and_not_written_down_is_in_the_first_batch(
    broker: Any, open_reader: Open
) -> None:
    """The driver died between the lease and Spark's offset log."""
    broker.leases.world.fill(30)
    first = open_reader(maxRowsPerTrigger=10)
    zero = first.initialOffset()
    latest(first, zero)
    second = open_reader(maxRowsPerTrigger=15)
    assert second.initialOffset() == zero
    one = latest(second, zero)
    assert (one["lease"], read(second, zero, one)) == (2, numbers(1, 15))


def test_a_lease_that_expired_before_it_is_read_is_left_out_and_comes_again(
    broker: Any, open_reader: Open, caplog: pytest.LogCaptureFixture
) -> None:
    world = broker.leases.world
    world.fill(10)
    first = open_reader()
    zero = first.initialOffset()
    one = latest(first, zero)
    world.expire("lake")
    second = open_reader()
    assert read(second, zero, one) == []
    assert (
        "lease 1 of group 'lake' on queue 'q' in vhost '/' has expired: 10 messages" in caplog.text
    )
    assert "the batch runs without lease 1" in caplog.text
    assert "(ids 1-10)" in caplog.text
    two = latest(second, one)
    assert read(second, one, two) == numbers(1, 10)
    assert latest(second, two) == two
    assert world.groups["lake"].settled == 2
    assert caplog.text.count("has expired") == 1


def test_a_lease_that_expires_while_its_batch_runs_leaves_the_task_empty(
    broker: Any, open_reader: Open, caplog: pytest.LogCaptureFixture
) -> None:
    world = broker.leases.world
    world.fill(10)
    reader = open_reader()
    zero = reader.initialOffset()
    one = latest(reader, zero)
    [part] = reader.partitions(zero, one)
    told = {"messages": "10", "message_ids": "1-10"}
    refusal = (grpc.StatusCode.FAILED_PRECONDITION, "the lease is gone", "EXPIRED", (), told)
    broker.leases.breaks_after = [(1, refusal)]
    reading = reader.read(part)
    assert next(reading).num_rows == 4
    world.expire("lake")
    with pytest.raises(PipelineError, match=r"after 4 of 10 messages were read: .* come again"):
        list(reading)
    assert list(reader.read(part)) == []  # another attempt of the task
    assert "10 messages of this task (among ids 1-10) went back" in caplog.text
    two = latest(reader, one)
    assert read(reader, one, two) == numbers(1, 10)


def test_a_task_asks_which_messages_went_back_where_it_is_not_told(
    broker: Any, open_reader: Open, caplog: pytest.LogCaptureFixture
) -> None:
    world = broker.leases.world
    world.fill(10)
    reader = open_reader()
    zero = reader.initialOffset()
    [part] = reader.partitions(zero, latest(reader, zero))
    world.expire("lake")
    refusal = (grpc.StatusCode.FAILED_PRECONDITION, "the lease is gone", "EXPIRED")
    broker.leases.breaks_after = [(0, refusal)]
    assert list(reader.read(part)) == []
    assert "10 messages of this task (among ids 1-10) went back" in caplog.text


def test_a_batch_that_somebody_else_has_settled_is_missed_unless_that_is_wanted(
    broker: Any, open_reader: Open, caplog: pytest.LogCaptureFixture
) -> None:
    world = broker.leases.world
    world.fill(20)
    first = open_reader(maxRowsPerTrigger=10)
    zero = first.initialOffset()
    one = latest(first, zero)
    [part] = first.partitions(zero, one)
    latest(first, one)
    with pytest.raises(DataLossError, match=r"lease 1 of group 'lake'.* failOnDataLoss"):
        list(first.read(part))
    with pytest.raises(DataLossError):
        open_reader().partitions(zero, one)
    second = open_reader(failOnDataLoss="false")
    assert read(second, zero, {**zero, "lease": 2}) == numbers(11, 20)
    assert (
        "lease 1 of group 'lake' on queue 'q' in vhost '/' is settled, and left out" in caplog.text
    )


def test_a_checkpoint_of_a_group_that_was_closed_is_refused(broker: Any, open_reader: Open) -> None:
    reader = open_reader()
    start = {**reader.initialOffset(), "lease": 18}
    with pytest.raises(PipelineError, match="is at lease 18, and the group's next one is 1: "):
        latest(reader, start)


def test_a_group_that_is_closed_under_a_query_ends_it(broker: Any, open_reader: Open) -> None:
    broker.leases.world.fill(10)
    reader = open_reader()
    zero = reader.initialOffset()
    del broker.leases.world.groups["lake"]
    with pytest.raises(PipelineError, match="it was closed, or the queue was declared anew"):
        latest(reader, zero)


def test_a_group_that_is_closed_under_a_task_ends_it(broker: Any, open_reader: Open) -> None:
    broker.leases.world.fill(10)
    reader = open_reader()
    zero = reader.initialOffset()
    [part] = reader.partitions(zero, latest(reader, zero))
    del broker.leases.world.groups["lake"]
    with pytest.raises(PipelineError, match=r"closed.* start the query again, with a new checkp"):
        list(reader.read(part))


def test_available_now_takes_what_is_ready_now(broker: Any, open_reader: Open) -> None:
    world = broker.leases.world
    world.fill(25)
    counts = topology.QueueCounts(messages_ready=25)
    broker.answers["DescribeQueue"] = topology.QueueDescription(name="q", counts=counts)
    reader = open_reader(maxRowsPerTrigger=10)
    reader.prepareForTriggerAvailableNow()
    world.fill(40)
    start, found = reader.initialOffset(), []
    while (end := latest(reader, start)) != start:
        found += read(reader, start, end)
        start = end
    assert found == numbers(1, 25)
    assert (len(world.ready), world.groups["lake"].held) == (40, {})


def test_available_now_that_ends_at_a_limit_says_what_stays_and_what_to_do(
    broker: Any, open_reader: Open, caplog: pytest.LogCaptureFixture
) -> None:
    world = broker.leases.world
    world.fill(25)
    world.most = 10
    other = open_reader(group="other")
    latest(other, other.initialOffset())
    counts = topology.QueueCounts(messages_ready=15)
    broker.answers["DescribeQueue"] = topology.QueueDescription(name="q", counts=counts)
    reader = open_reader()
    reader.prepareForTriggerAvailableNow()
    zero = reader.initialOffset()
    assert latest(reader, zero) == latest(reader, zero) == zero
    [told] = [each for each in caplog.records if each.name.endswith("queue.stream")]
    assert told.levelname == "WARNING"
    assert "group 'lake' on queue 'q'" in told.message
    assert "15 messages stay that this run was to take" in told.message
    assert "close those that nobody works for" in told.message


def test_a_stream_at_a_limit_says_so_again_once_it_has_had_rows_in_between(
    broker: Any, open_reader: Open, caplog: pytest.LogCaptureFixture
) -> None:
    world = broker.leases.world
    world.fill(25)
    world.most = 0
    reader = open_reader(maxRowsPerTrigger=5)
    at = latest(reader, reader.initialOffset())
    for most in (5, 0):
        world.most = most
        reader._ask_at = 0.0
        at = latest(reader, at)
    assert [each.levelname for each in caplog.records].count("WARNING") == 2
    assert "and it waits" in caplog.text


def test_available_now_needs_somebody_who_knows_what_is_ready(
    broker: Any, open_reader: Open
) -> None:
    broker.answers["DescribeQueue"] = topology.QueueDescription(name="q")
    with pytest.raises(PipelineError, match="has no leader"):
        open_reader().prepareForTriggerAvailableNow()


def test_all_that_is_available_is_taken_whatever_the_options_say(
    broker: Any, open_reader: Open
) -> None:
    broker.leases.world.fill(25)
    reader = open_reader(maxRowsPerTrigger=10, maxBytesPerTrigger=5)
    zero = reader.initialOffset()
    one = reader.latestOffset(zero, ReadAllAvailable())
    assert read(reader, zero, one) == numbers(1, 25)


def test_bytes_bound_a_batch_as_rows_do(broker: Any, open_reader: Open) -> None:
    broker.leases.world.fill(25)
    reader = open_reader(maxBytesPerTrigger=12)
    zero = reader.initialOffset()
    one = latest(reader, zero)
    assert read(reader, zero, one) == numbers(1, 11)  # 9 of one byte, 2 of two


def test_a_queue_that_has_leased_enough_is_read_as_far_as_it_goes(
    broker: Any, open_reader: Open
) -> None:
    world = broker.leases.world
    world.fill(25)
    world.most = 15
    reader = open_reader(maxRowsPerTrigger=20)
    zero = reader.initialOffset()
    one = latest(reader, zero)
    assert read(reader, zero, one) == numbers(1, 15)
    two = latest(reader, one)
    assert read(reader, one, two) == numbers(16, 25)


def test_leases_are_renewed_until_the_reader_stops(broker: Any, open_reader: Open) -> None:
    broker.leases.world.fill(10)
    reader = open_reader(leaseTtlMs=1000)
    latest(reader, reader.initialOffset())
    group = broker.leases.world.groups["lake"]
    wait_for(broker, lambda: group.renewed >= 2)
    reader.stop()


def test_a_reader_stops_though_a_renewal_is_not_answered(
    broker: Any, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "RENEWAL_END_SECONDS", 0.01)
    reader = open_reader(leaseTtlMs=1000)
    reader.initialOffset()
    driver = reader._driver
    assert driver is not None
    begun, answered = threading.Event(), threading.Event()

    def renew(_ttl_s: float, *, timeout_s: float) -> Any:
        begun.set()
        answered.wait()
        return driver._state

    monkeypatch.setattr(driver._group, "renew", renew)
    begun.wait()
    reader.stop()
    thread = driver._thread
    assert thread is not None
    assert thread.is_alive()
    answered.set()
    thread.join()


def test_a_renewal_that_finds_the_group_taken_stops_the_query(
    broker: Any, open_reader: Open, caplog: pytest.LogCaptureFixture
) -> None:
    broker.leases.world.fill(10)
    first = open_reader(leaseTtlMs=1000)
    zero = first.initialOffset()
    one = latest(first, zero)
    broker.leases.world.groups["lake"].epoch += 1
    assert first._driver is not None
    assert first._driver._thread is not None
    first._driver._thread.join()
    asked = len(broker.calls)
    with pytest.raises(FencedError):
        first.partitions(zero, one)
    assert len(broker.calls) == asked
    assert "another query has opened it since" in caplog.text


def test_a_task_that_is_given_too_little_fails(broker: Any, open_reader: Open) -> None:
    broker.leases.world.fill(10)
    reader = open_reader()
    zero = reader.initialOffset()
    [part] = reader.partitions(zero, latest(reader, zero))
    del broker.leases.world.groups["lake"].held[1][10]
    with pytest.raises(PipelineError, match="gave 9 messages from 0 on, and the lease has 10"):
        list(reader.read(part))


def test_what_plans_batches_is_not_sent_to_tasks(broker: Any, open_reader: Open) -> None:
    reader = open_reader()
    pickle.dumps(reader)
    reader.initialOffset()
    with pytest.raises(AssertionError):
        pickle.dumps(reader)


def test_a_schema_of_the_users_is_refused(broker: Any) -> None:
    source = QueueDataSource({"endpoints": broker.endpoint, "queue": "q", "group": "lake"})
    with pytest.raises(SchemaError, match="select from its columns"):
        source.streamReader(source.schema().add("more", "string"))


def test_nothing_is_asked_before_spark_asks(broker: Any, open_reader: Open) -> None:
    source = QueueDataSource({"endpoints": broker.endpoint, "queue": "q", "group": "lake"})
    assert "passwordFile" not in repr(source._found)
    source.reader(source.schema())
    source.streamReader(source.schema())
    assert broker.calls == []
