"""The service Lease, in front of a queue in memory."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status
from tests.broker.codecs.column_reader import decode_columns
from tests.broker.gateways.grpc.lease_world import TTL, World, name

from headrace_broker.catalog.event import PermissionChanged
from headrace_broker.codecs.batch import batch_count, message_body
from headrace_broker.codecs.column_block import ColumnBlock, Schema
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.gateways.grpc.lease import leasing as module
from headrace_broker.gateways.grpc.server import call as call_module
from headrace_broker.model.definition import Permission
from headrace_broker.model.limits import (
    LEASE_BYTES_MAX,
    LEASE_CHUNK_BYTES_MAX,
    LEASE_CHUNK_MESSAGES_MAX,
    LEASE_FETCHES_MAX,
    LEASE_GROUPS_MAX,
    LEASE_MESSAGES_MAX,
    LEASES_MAX,
)
from headrace_protos.broker.v1 import lease_pb2 as pb

END: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs

Leasing = Callable[[World], Coroutine[Any, Any, None]]


@pytest.fixture
def lease(serve) -> Callable[..., None]:
    """Runs a scenario with a queue of six messages."""

    def run(scenario: Leasing, version: int = MACHINE_VERSION) -> None:
        async def with_world(served: Any) -> None:
            world = World(served, version)
            await world.publish(b"a", b"bb", b"ccc")
            await world.publish(b"d", b"", b"f")
            await scenario(world)

        serve(with_world)

    return run


async def refusal(call: Coroutine[Any, Any, Any]) -> tuple[grpc.StatusCode, ErrorInfo, list[Any]]:
    """The status of a call that fails, its ErrorInfo and its other details."""
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await call
    status = rpc_status.from_call(failure.value)  # type: ignore[arg-type]
    details = list(status.details)
    info = ErrorInfo()
    assert details.pop(0).Unpack(info)
    return failure.value.code(), info, details


async def reason(call: Coroutine[Any, Any, Any]) -> tuple[str, str]:
    code, info, _ = await refusal(call)
    return code.name, info.reason


async def bad(call: Coroutine[Any, Any, Any]) -> str:
    """The field that is refused."""
    code, _, details = await refusal(call)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    fields = BadRequest()
    assert details[0].Unpack(fields)
    return str(fields.field_violations[0].field)


def test_messages_are_leased_read_and_settled(lease) -> None:
    async def scenario(world: World) -> None:
        opened = await world.open()
        assert (opened.group.epoch, opened.group.next_lease) == (1, 1)
        leased = await world.lease(1, messages_max=4)
        assert (leased.lease, leased.messages, leased.octets) == (1, 4, 7)
        assert leased.messages_ready == 2
        [state] = leased.group.leases
        assert (state.lease, state.state, state.messages) == (1, pb.LeaseState.HELD, 4)
        for _ in range(2):  # as often as needed
            [chunk] = await world.fetch(1)
            assert (chunk.offset, chunk.messages, chunk.total) == (0, 4, 4)
            assert chunk.format == pb.LEASE_FORMAT_MESSAGES
            assert [row.body for row in chunk.rows] == [b"a", b"bb", b"ccc", b"d"]
        row = chunk.rows[3]
        assert (row.message_id, row.enqueued_ms) == (4, world.clock.ms)
        assert (row.exchange, row.routing_key) == ("ex", "key")
        assert (row.acquired_count, row.delivery_count) == (0, 0)
        settled = await world.settle(1)
        assert (settled.messages, settled.expired, settled.group.settled) == (4, False, 1)
        assert world.host.machine.unsettled_count == 0
        assert (await world.lease(2)).messages == 2
        assert (await world.lease(3)).messages == 0

    lease(scenario)


def test_properties_come_as_they_were_published(lease) -> None:
    async def scenario(world: World) -> None:
        block = b"\x88\x00\x0atext/plain\x05"  # content type and priority
        await world.publish(b"x", b"y", properties=block)
        await world.open()
        await world.lease(1)
        [chunk] = await world.fetch(1, offset=6)
        for row in chunk.rows:
            assert (row.properties.content_type, row.properties.priority) == ("text/plain", 5)

    lease(scenario)


def test_blocks_hold_what_rows_hold(lease) -> None:
    async def scenario(world: World) -> None:
        await world.open()
        await world.lease(1)
        chunks = await world.fetch(1, format=pb.LEASE_FORMAT_BLOCKS, chunk_messages=4)
        assert [(chunk.offset, chunk.messages) for chunk in chunks] == [(0, 4), (4, 2)]
        heads = [head for chunk in chunks for head in struct.iter_unpack(">QQIIII", chunk.heads)]
        assert [head[0] for head in heads] == [1, 2, 3, 4, 5, 6]
        assert [head[4] for head in heads] == [1, 2, 3, 1, 0, 1]
        bodies = [
            message_body(chunk.batch, 0, position)
            for chunk in chunks
            for position in range(batch_count(chunk.batch, 0))
        ]
        assert bodies == [b"a", b"bb", b"ccc", b"d", b"", b"f"]

    lease(scenario)


def columns_of(chunk: Any, schema: Any) -> list[dict[str, Any]]:
    """Rows of a chunk of columns."""
    names = [column.name for column in schema.columns]
    kinds = Schema(schema.version, tuple((each.name, each.type) for each in schema.columns))
    block = chunk.block
    assert (block.first_index, block.compression) == (chunk.offset, 0)
    assert len(block.body) == block.body_octets
    columns = decode_columns(kinds, ColumnBlock(block.rows, tuple(block.buffer_octets), block.body))
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def test_columns_hold_what_rows_hold(lease) -> None:
    async def scenario(world: World) -> None:
        block = b"\x88\x00\x0atext/plain\x05"  # content type and priority
        await world.publish(b"g", properties=block)
        await world.open()
        await world.lease(1)
        chunks = await world.fetch(1, offset=1, format=pb.LEASE_FORMAT_COLUMNS, chunk_messages=4)
        assert [(chunk.offset, chunk.messages, chunk.total) for chunk in chunks] == [
            (1, 4, 7),
            (5, 2, 7),
        ]
        assert {chunk.format for chunk in chunks} == {pb.LEASE_FORMAT_COLUMNS}
        assert [chunk.HasField("schema") for chunk in chunks] == [True, False]
        found = [row for chunk in chunks for row in columns_of(chunk, chunks[0].schema)]
        assert [row["queue_message_id"] for row in found] == [2, 3, 4, 5, 6, 7]
        assert [row["payload"] for row in found] == [b"bb", b"ccc", b"d", b"", b"f", b"g"]
        assert found[-1] == {
            "queue_message_id": 7,
            "exchange": "ex",
            "routing_key": "key",
            "message_id": None,
            "correlation_id": None,
            "content_type": "text/plain",
            "content_encoding": None,
            "priority": 5,
            "headers": None,
            "properties": block,
            "payload": b"g",
            "payload_bytes": 1,
            "published_at": None,
            "enqueued_at": world.clock.ms,
            "acquired_count": 0,
            "delivery_count": 0,
        }
        assert await world.fetch(1, offset=7, format=pb.LEASE_FORMAT_COLUMNS) == []

    lease(scenario)


def test_columns_say_how_often_a_message_was_had_before(lease) -> None:
    async def scenario(world: World) -> None:
        await world.open()
        await world.lease(1, messages_max=2)
        await world.call("Release", pb.ReleaseLeasesRequest(name=name(), epoch=1, failed=True))
        await world.lease(2, messages_max=3)
        [chunk] = await world.fetch(2, format=pb.LEASE_FORMAT_COLUMNS)
        found = columns_of(chunk, chunk.schema)
        assert [row["acquired_count"] for row in found] == [1, 1, 0]
        assert [row["delivery_count"] for row in found] == [1, 1, 0]

    lease(scenario)


def test_part_of_a_lease_is_read_in_chunks(lease) -> None:
    async def scenario(world: World) -> None:
        await world.open()
        await world.lease(1)
        chunks = await world.fetch(1, offset=1, messages_max=4, chunk_octets=1)
        assert [(chunk.offset, chunk.messages) for chunk in chunks] == [
            (1, 1),
            (2, 1),
            (3, 1),
            (4, 1),
        ]
        assert await world.fetch(1, offset=6) == []

    lease(scenario)


def test_second_driver_fences_the_first(lease) -> None:
    async def scenario(world: World) -> None:
        await world.open("first")
        await world.lease(1, messages_max=2)
        assert (await world.open("second")).group.epoch == 2
        fenced = ("ABORTED", "FENCED")
        assert await reason(world.lease(2)) == fenced
        assert await reason(world.settle(1)) == fenced
        assert await reason(world.fetch(1)) == fenced
        renew = pb.RenewLeasesRequest(name=name(), epoch=1, ttl_ms=TTL)
        assert await reason(world.call("Renew", renew)) == fenced
        release = pb.ReleaseLeasesRequest(name=name(), epoch=1)
        assert await reason(world.call("Release", release)) == fenced
        close = pb.CloseGroupRequest(name=name(), epoch=1)
        assert await reason(world.call("CloseGroup", close)) == fenced
        assert await reason(world.open("first")) == fenced  # it is asked again too late
        [chunk] = await world.fetch(1, epoch=2)
        assert chunk.messages == 2
        assert (await world.settle(1, epoch=2)).messages == 2

    lease(scenario)


def test_what_has_expired_is_told(lease) -> None:
    async def scenario(world: World) -> None:
        await world.open()
        await world.lease(1, messages_max=2)
        await world.expire()
        assert [gone.lease.number for gone in world.watcher.gone] == [1]
        await world.lease(2, messages_max=3)
        code, info, _ = await refusal(world.lease(1))
        assert (code.name, info.reason) == ("FAILED_PRECONDITION", "EXPIRED")
        assert (info.metadata["messages"], info.metadata["message_ids"]) == ("2", "1-2")
        code, info, _ = await refusal(world.fetch(1))
        assert (code.name, info.reason) == ("FAILED_PRECONDITION", "EXPIRED")
        assert (info.metadata["messages"], info.metadata["message_ids"]) == ("2", "1-2")
        assert (info.metadata["epoch"], info.metadata["next_lease"]) == ("1", "3")
        settled = await world.settle(2)
        assert (settled.messages, settled.expired) == (3, True)
        [gone] = settled.gone
        assert (gone.lease, gone.state, gone.messages) == (1, pb.LeaseState.EXPIRED, 2)
        assert [(each.first, each.last) for each in gone.message_ids] == [(1, 2)]
        assert world.host.machine.unsettled_count == 0

    lease(scenario)


def test_renewing_keeps_leases(lease) -> None:
    async def scenario(world: World) -> None:
        await world.open()
        await world.lease(1, ttl_ms=5000)
        renew = pb.RenewLeasesRequest(name=name(), epoch=1, ttl_ms=2 * TTL)
        renewed = await world.call("Renew", renew)
        assert renewed.group.deadline_ms == world.clock.ms + 2 * TTL
        await world.expire()
        assert (await world.settle(1)).messages == 6

    lease(scenario)


def test_released_and_closed_leases_go_back(lease) -> None:
    async def scenario(world: World) -> None:
        await world.open()
        await world.lease(1, messages_max=2)
        await world.lease(2, messages_max=2)
        release = pb.ReleaseLeasesRequest(name=name(), epoch=1, failed=True)
        setattr(release, "from", 2)
        released = await world.call("Release", release)
        assert released.messages == 2
        assert [lease.state for lease in released.group.leases] == [
            pb.LeaseState.HELD,
            pb.LeaseState.RELEASED,
        ]
        await world.lease(3, messages_max=1)
        [chunk] = await world.fetch(3)
        assert (chunk.rows[0].message_id, chunk.rows[0].delivery_count) == (3, 1)
        closed = await world.call("CloseGroup", pb.CloseGroupRequest(name=name()))
        assert closed.messages == 3
        assert world.host.machine.ready_count == 6
        unknown = ("NOT_FOUND", "UNKNOWN_GROUP")
        assert await reason(world.lease(4)) == unknown
        assert await reason(world.fetch(1)) == unknown
        assert (await world.call("CloseGroup", pb.CloseGroupRequest(name=name()))).messages == 0

    lease(scenario)


def test_groups_are_described_one_or_all(lease) -> None:
    async def scenario(world: World) -> None:
        await world.open()
        await world.open(group="h")
        for asked, expected in (("", ["g", "h"]), ("h", ["h"]), ("other", [])):
            request = pb.DescribeGroupsRequest(name=name(asked))
            found = await world.call("Describe", request)
            assert [group.name for group in found.groups] == expected

    lease(scenario)


def test_numbers_that_make_no_sense_are_refused_with_what_does(lease) -> None:
    async def scenario(world: World) -> None:
        await world.open()
        code, info, _ = await refusal(world.lease(2))
        assert (code.name, info.reason) == ("FAILED_PRECONDITION", "OUT_OF_ORDER")
        assert info.metadata["next_lease"] == "1"
        await world.lease(1)
        await world.settle(1)
        assert await reason(world.lease(1)) == ("FAILED_PRECONDITION", "SETTLED")
        assert await reason(world.fetch(1)) == ("FAILED_PRECONDITION", "SETTLED")
        assert await reason(world.fetch(2)) == ("FAILED_PRECONDITION", "OUT_OF_ORDER")

    lease(scenario)


def test_what_is_bounded_is_refused_beyond(lease, monkeypatch) -> None:
    async def scenario(world: World) -> None:
        for number in range(LEASE_GROUPS_MAX):
            await world.open(group=f"g{number}" if number else "g")
        assert await reason(world.open(group="more")) == ("RESOURCE_EXHAUSTED", "TOO_MANY_GROUPS")
        await world.publish(*[b""] * LEASES_MAX)
        for number in range(1, LEASES_MAX + 1):
            await world.lease(number, messages_max=1)
        too_many = ("RESOURCE_EXHAUSTED", "TOO_MANY_LEASES")
        assert await reason(world.lease(LEASES_MAX + 1)) == too_many
        monkeypatch.setattr(module, "LEASE_FETCHES_MAX", 0)
        assert await reason(world.fetch(1)) == ("RESOURCE_EXHAUSTED", "TOO_MANY_FETCHES")
        request = pb.FetchLeaseRequest(name=name(queue="unknown"), epoch=1, lease=1)
        call = world.stub.Fetch(request, metadata=world.served.GUEST)
        refused = await reason(call.read())  # before the catalog is waited for
        assert refused == ("RESOURCE_EXHAUSTED", "TOO_MANY_FETCHES")
        assert LEASE_FETCHES_MAX > 0

    lease(scenario)


@pytest.mark.parametrize(
    ("method", "request_", "field"),
    [
        ("OpenGroup", pb.OpenGroupRequest(request_id="a", ttl_ms=999), "ttl_ms"),
        ("OpenGroup", pb.OpenGroupRequest(request_id="a", ttl_ms=86_400_001), "ttl_ms"),
        ("OpenGroup", pb.OpenGroupRequest(ttl_ms=TTL), "request_id"),
        ("OpenGroup", pb.OpenGroupRequest(ttl_ms=TTL, request_id="x" * 65), "request_id"),
        ("Lease", pb.LeaseRequest(epoch=1, ttl_ms=TTL), "lease"),
        ("Lease", pb.LeaseRequest(lease=1, ttl_ms=TTL), "epoch"),
        ("Lease", pb.LeaseRequest(epoch=1, lease=1 << 63, ttl_ms=TTL), "lease"),
        ("Lease", pb.LeaseRequest(epoch=1, lease=1), "ttl_ms"),
        (
            "Lease",
            pb.LeaseRequest(epoch=1, lease=1, messages_max=LEASE_MESSAGES_MAX + 1),
            "messages_max",
        ),
        ("Lease", pb.LeaseRequest(epoch=1, lease=1, octets_max=LEASE_BYTES_MAX + 1), "octets_max"),
        ("Renew", pb.RenewLeasesRequest(epoch=1, ttl_ms=1), "ttl_ms"),
        ("Settle", pb.SettleLeasesRequest(epoch=1, up_to=1 << 62), "up_to"),
        ("Settle", pb.SettleLeasesRequest(up_to=1), "epoch"),
        ("Release", pb.ReleaseLeasesRequest(), "epoch"),
        ("CloseGroup", pb.CloseGroupRequest(epoch=1 << 62), "epoch"),
        ("Fetch", pb.FetchLeaseRequest(lease=1), "epoch"),
        ("Fetch", pb.FetchLeaseRequest(epoch=1), "lease"),
        (
            "Fetch",
            pb.FetchLeaseRequest(epoch=1, lease=1, chunk_messages=LEASE_CHUNK_MESSAGES_MAX + 1),
            "chunk_messages",
        ),
        (
            "Fetch",
            pb.FetchLeaseRequest(epoch=1, lease=1, chunk_octets=LEASE_CHUNK_BYTES_MAX + 1),
            "chunk_octets",
        ),
        ("Fetch", pb.FetchLeaseRequest(epoch=1, lease=1, offset=1 << 62), "offset"),
        ("Fetch", pb.FetchLeaseRequest(epoch=1, lease=1, format=9), "format"),  # type: ignore[arg-type]
    ],
)
def test_bad_fields_are_named(lease, method: str, request_: Any, field: str) -> None:
    async def scenario(world: World) -> None:
        request_.name.CopyFrom(name())
        if method == "Fetch":
            stream = world.stub.Fetch(request_, metadata=world.served.GUEST)

            async def read() -> None:
                async for _ in stream:
                    pass

            assert await bad(read()) == field
        else:
            assert await bad(world.call(method, request_)) == field

    lease(scenario)


@pytest.mark.parametrize("group", ["", "x" * 256])
def test_names_of_groups_are_bounded(lease, group: str) -> None:
    async def scenario(world: World) -> None:
        assert await bad(world.open(group=group)) == "name.group"

    lease(scenario)


def test_queue_that_is_not_there_or_a_connections_own(lease) -> None:
    async def scenario(world: World) -> None:
        world.served.broker.add_queue("own", durable=False, exclusive=True, owner="n1/1/1")
        for queue, vhost, expected in (
            ("other", "/", ("NOT_FOUND", "NOT_FOUND")),
            ("own", "/", ("FAILED_PRECONDITION", "RESOURCE_LOCKED")),
            ("work", "nowhere", ("NOT_FOUND", "NOT_FOUND")),
        ):
            request = pb.OpenGroupRequest(name=name("g", queue, vhost), request_id="a", ttl_ms=TTL)
            assert await reason(world.call("OpenGroup", request)) == expected
        world.exists = False
        assert await reason(world.open()) == ("NOT_FOUND", "NOT_FOUND")

    lease(scenario)


def test_queue_must_be_readable(lease) -> None:
    async def scenario(world: World) -> None:
        broker = world.served.broker
        broker.rules.guarded = True
        for read, expected in (("^x$", ("PERMISSION_DENIED", "ACCESS_REFUSED")), ("^work$", None)):
            permission = Permission("guest", "/", "^$", "^$", read)
            broker.rules.put_permission(permission)
            broker.permissions.on_events([PermissionChanged("guest", "/", permission)])
            if expected:
                assert await reason(world.open()) == expected
        assert (await world.open()).group.epoch == 1

    lease(scenario)


def test_queue_with_a_replica_of_an_earlier_release(lease) -> None:
    async def scenario(world: World) -> None:
        assert await reason(world.open()) == ("UNAVAILABLE", "UPGRADE_PENDING")

    lease(scenario, version=2)


def test_client_that_does_not_read_is_let_go(lease, monkeypatch) -> None:
    monkeypatch.setattr(call_module, "STALL_SECONDS_MAX", 0.5)

    async def scenario(world: World) -> None:
        await world.open()
        for _ in range(24):
            await world.publish(bytes(1 << 20))
        await world.lease(1)
        request = pb.FetchLeaseRequest(name=name(), epoch=1, lease=1)
        stream = world.stub.Fetch(request, metadata=world.served.GUEST)
        chunks = [await stream.read()]
        async with asyncio.timeout(15):
            await world.idle()

        async def read() -> None:
            while (chunk := await stream.read()) != END:
                chunks.append(chunk)

        assert await reason(read()) == ("ABORTED", "NOT_READ")
        assert len(chunks) < 24
        assert len(await world.fetch(1, messages_max=1)) == 1

    lease(scenario)
