"""Lease groups: repeated requests, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from tests.client.conftest import new_broker
from tests.client.fake_leases import SCHEMA

from headrace_client import (
    AbortedError,
    BrokerFaultError,
    ClosedError,
    ExhaustedError,
    FencedError,
    LeaseExpiredError,
    LeaseOutOfOrderError,
    LeaseSettledError,
    NotFoundError,
    NotSupportedError,
    PreconditionError,
    UnavailableError,
    UnknownGroupError,
)
from headrace_client.blocking import Client as BlockingClient
from headrace_client.export_stream import Columns
from headrace_client.lease_value import EXPIRED, HELD, LeaseState
from headrace_client.loop_thread import SHARED
from headrace_protos.broker.v1 import lease_pb2 as pb

UNAVAILABLE = (grpc.StatusCode.UNAVAILABLE, "no leader", "NO_LEADER")
BUSY = (grpc.StatusCode.RESOURCE_EXHAUSTED, "enough is read", "TOO_MANY_FETCHES")


async def bodies(group: Any, lease: int, *where: int, **options: Any) -> list[bytes]:
    """Read a lease."""
    return [
        each.body
        async for chunk in group.fetch(lease, *where, **options)
        for each in chunk.messages
    ]


def test_a_group_is_opened_leases_reads_and_settles(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.leases.world.fill(30)
        group = client.lease_group("q", "lake")
        assert await group.describe() is None
        state = await group.open("run-1", 60)
        assert (state.name, state.epoch, state.next_lease, state.settled) == ("lake", 1, 1, 0)
        assert (state.deadline, state.leases, group.epoch) == (None, (), 1)
        leased = await group.lease(1, 10, ttl_s=60)
        assert (leased.messages, leased.byte_count, leased.messages_ready) == (10, 11, 20)
        assert leased.group.deadline == datetime.fromtimestamp(1_700_000_000, UTC)
        assert leased.group.leases == (LeaseState(1, HELD, 10, 11),)
        assert await group.lease(1, 10, ttl_s=60) == leased
        chunks = [each async for each in group.fetch(1)]
        assert [(each.offset, each.total, len(each.messages)) for each in chunks] == [
            (0, 10, 4),
            (4, 10, 4),
            (8, 10, 2),
        ]
        first = chunks[0].messages[0]
        assert (first.message_id, first.body, first.routing_key) == (1, b"1", "q")
        assert first.properties.content_type == "text/plain"
        assert first.enqueued_at.timestamp() == 1_700_000_000.001
        assert (await group.renew(60)).next_lease == 2
        settled = await group.settle(1)
        assert (settled.messages, settled.expired, settled.gone) == (10, False, ())
        assert settled.group.settled == 1
        [request] = [request for name, request in broker.calls if name == "OpenGroup"]
        assert (request.name.vhost, request.name.queue, request.ttl_ms) == ("/", "q", 60_000)

    play(scenario)


def test_part_of_a_lease_is_read_by_whoever_knows_the_epoch(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.leases.world.fill(10)
        group = client.lease_group("q", "lake")
        await group.open("run-1", 60)
        await group.lease(1, ttl_s=60)
        reader = client.lease_group("q", "lake", epoch=group.epoch)
        assert await bodies(reader, 1, 2, 5) == [b"3", b"4", b"5", b"6", b"7"]
        assert await bodies(reader, 1, 8) == [b"9", b"10"]
        assert await bodies(reader, 1, 10) == []
        with pytest.raises(ValueError, match="epoch"):
            await bodies(client.lease_group("q", "lake"), 1)

    play(scenario)


def test_what_is_refused_has_a_class_for_each_reason(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        world = broker.leases.world
        world.fill(30)
        group = client.lease_group("q", "lake", epoch=1)
        with pytest.raises(UnknownGroupError) as unknown:
            await group.settle(1)
        assert isinstance(unknown.value, NotFoundError)
        await group.open("run-1", 60)
        with pytest.raises(LeaseOutOfOrderError) as order:
            await group.lease(5, ttl_s=60)
        assert order.value.metadata["next_lease"] == "1"
        await group.lease(1, 10, ttl_s=60)
        await group.settle(1)
        with pytest.raises(LeaseSettledError):
            await bodies(group, 1)
        await group.lease(2, 10, ttl_s=60)
        world.expire("lake")
        with pytest.raises(LeaseExpiredError) as expired:
            await bodies(group, 2)
        assert isinstance(expired.value, PreconditionError)
        assert expired.value.metadata == {"messages": "10", "message_ids": "11-20"}
        [gone] = (await group.renew(60)).leases
        assert (gone.lease, gone.state, gone.message_id_text) == (2, EXPIRED, "11-20")
        settled = await group.settle(2)
        assert (settled.messages, settled.expired, settled.gone) == (0, True, (gone,))
        await client.lease_group("q", "lake").open("run-2", 60)
        for attempt in (group.lease(3, ttl_s=60), bodies(group, 2), group.settle(2)):
            with pytest.raises(FencedError):
                await attempt
        world.leases_max = 0
        with pytest.raises(ExhaustedError) as full:
            await client.lease_group("q", "lake", epoch=2).lease(3, ttl_s=60)
        assert full.value.reason == "TOO_MANY_LEASES"

    play(scenario)


def test_a_group_gives_back_and_is_closed_though_it_be_closed_already(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        world = broker.leases.world
        world.fill(9)
        group = client.lease_group("q", "lake")
        await group.open("run-1", 60)
        for number in (1, 2, 3):
            await group.lease(number, 3, ttl_s=60)
        assert await group.release(2, failed=True) == 6
        assert list(world.ready) == [4, 5, 6, 7, 8, 9]
        [request] = [request for name, request in broker.calls if name == "Release"]
        assert (getattr(request, "from"), request.failed) == (2, True)
        assert await group.close_group() == 3
        assert await group.close_group() == 0
        assert await client.lease_group("q", "lake").close_group(any_epoch=True) == 0

    play(scenario)


@pytest.mark.parametrize("refusal", [UNAVAILABLE, BUSY], ids=lambda each: str(each[2]))
def test_reading_goes_on_at_another_node_where_it_was(play_two: Any, refusal: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        second.leases.world = world = first.leases.world
        world.fill(20)
        group = client.lease_group("q", "lake")
        await group.open("run-1", 60)
        await group.lease(1, ttl_s=60)
        first.leases.breaks_after = [(2, refusal)]
        second.leases.breaks_after = [(1, refusal)]
        expected = [b"%d" % number for number in range(2, 20)]
        assert await bodies(group, 1, 1, 18) == expected
        assert first.leases.fetches == [(1, 1, 18), (1, 13, 6)]
        assert second.leases.fetches == [(1, 9, 10)]
        await first.stop()
        assert await bodies(group, 1, 1, 18) == expected

    play_two(scenario)


def test_reading_ends_when_no_node_gets_on_in_time(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        second.leases.world = world = first.leases.world
        world.fill(5)
        group = client.lease_group("q", "lake")
        await group.open("run-1", 60)
        await group.lease(1, ttl_s=60)
        first.leases.breaks_after = second.leases.breaks_after = [(0, UNAVAILABLE)] * 1000
        with pytest.raises(UnavailableError, match="no leader"):
            await bodies(group, 1, timeout_s=0.05)
        assert first.leases.fetches
        assert second.leases.fetches

    play_two(scenario)


def test_a_failed_answer_that_another_node_would_give_as_well_is_not_tried_there(
    play_two: Any,
) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        second.leases.world = world = first.leases.world
        world.fill(5)
        group = client.lease_group("q", "lake")
        await group.open("run-1", 60)
        await group.lease(1, ttl_s=60)
        world.expire("lake")
        with pytest.raises(LeaseExpiredError):
            await bodies(group, 1)
        assert second.leases.fetches == []

    play_two(scenario)


def test_a_call_whose_answer_was_lost_is_repeated_at_another_node(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        second.leases.world = first.leases.world
        first.answers["OpenGroup"] = UNAVAILABLE
        group = client.lease_group("q", "lake")
        assert (await group.open("run-1", 60)).epoch == 1
        assert [name for name, _ in second.calls if name == "OpenGroup"]

    play_two(scenario)


def test_reading_is_given_up_with_its_client(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.leases.world.fill(5)
        group = client.lease_group("q", "lake")
        await group.open("run-1", 60)
        await group.lease(1, ttl_s=60)
        chunks = group.fetch(1)
        await anext(chunks)
        await client.close()
        with pytest.raises((ClosedError, AbortedError)):
            async for _ in chunks:
                pass

    play(scenario)


def test_a_node_that_leaves_messages_out_is_not_believed(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        async def fetch(request: Any, context: Any) -> None:
            await context.write(pb.FetchLeaseResponse(offset=request.offset + 1, messages=1))

        broker.leases.world.fill(5)
        group = client.lease_group("q", "lake")
        await group.open("run-1", 60)
        await group.lease(1, ttl_s=60)
        broker.leases.reads = fetch
        with pytest.raises(Exception, match="has left out messages"):
            await bodies(group, 1, timeout_s=0.05)

    play(scenario)


def test_a_lease_is_read_as_columns_that_go_on_at_another_node(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        second.leases.world = world = first.leases.world
        world.fill(10)
        group = client.lease_group("q", "lake")
        await group.open("run-1", 60)
        await group.lease(1, ttl_s=60)
        first.leases.breaks_after = [(1, UNAVAILABLE)]
        blocks = [each async for each in group.fetch_columns(1, 1, 8)]
        assert [(each.first_index, each.start, each.end, each.rows) for each in blocks] == [
            (1, 1, 5, 4),
            (5, 5, 9, 4),
        ]
        assert {each.schema for each in blocks} == {Columns(1, SCHEMA.columns)}
        assert [body in blocks[1].body for body in (b"6789", b"10")] == [True, False]
        assert second.leases.fetches == [(1, 5, 4)]

    play_two(scenario)


def test_a_broker_without_columns_is_told_apart(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        async def fetch(request: Any, context: Any) -> None:
            await context.write(pb.FetchLeaseResponse(messages=1, total=1))

        broker.leases.reads = fetch
        group = client.lease_group("q", "lake", epoch=1)
        with pytest.raises(NotSupportedError, match="update it"):
            [each async for each in group.fetch_columns(1)]

    play(scenario)


def test_columns_that_are_not_what_their_answer_says_are_refused(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        async def fetch(request: Any, context: Any) -> None:
            answer = pb.FetchLeaseResponse(messages=2, total=2)
            answer.schema.version = 1
            answer.block.rows = 1
            await context.write(answer)

        broker.leases.reads = fetch
        group = client.lease_group("q", "lake", epoch=1)
        with pytest.raises(BrokerFaultError, match="1 rows, not 2"):
            [each async for each in group.fetch_columns(1, timeout_s=0.05)]

    play(scenario)


@pytest.fixture
def blocking() -> Iterator[tuple[Any, BlockingClient]]:
    """A broker in the clients' own loop, and a client that blocks."""
    thread = SHARED.acquire()
    try:

        async def start() -> Any:
            return await new_broker().start()

        broker = thread.run(start())
        with BlockingClient.connect(broker.endpoint) as client:
            yield broker, client
        thread.run(broker.stop())
    finally:
        SHARED.release()


def test_who_blocks_leases_likewise(blocking: tuple[Any, BlockingClient]) -> None:
    broker, client = blocking
    broker.leases.world.fill(10)
    group = client.lease_group("q", "lake")
    assert group.epoch == 0
    assert group.open("run-1", 60).next_lease == 1
    assert group.lease(1, 6, ttl_s=60).messages == 6
    reader = client.lease_group("q", "lake", epoch=group.epoch)
    found = [each.body for chunk in reader.fetch(1, 1) for each in chunk.messages]
    assert found == [b"2", b"3", b"4", b"5", b"6"]
    assert next(iter(reader.fetch(1))).total == 6
    assert group.renew(60).leases[0].messages == 6
    assert group.settle(1).messages == 6
    assert group.release() == 0
    described = group.describe()
    assert described is not None
    assert described.settled == 1
    assert group.close_group() == 0
