"""The service Backup, in front of a queue in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status
from tests.broker.gateways.grpc.backup_world import ADMIN, BackupWorld

from headrace_broker.codecs.batch import batch_count, encode_batch, message_body
from headrace_broker.core.queue.command.command import encode_purge
from headrace_broker.gateways.grpc.server import call as call_module
from headrace_broker.model.limits import (
    BACKUP_CHUNK_BYTES_MAX,
    BACKUP_CHUNK_MESSAGES_MAX,
    BACKUP_POINTS_MAX,
    BACKUP_READS_MAX,
    BACKUP_TTL_MS_MAX,
    PROPERTIES_BYTES_MAX,
    STREAM_BATCH_MESSAGES_MAX,
)
from headrace_broker.model.message import Publish
from headrace_broker.runtime.backup.chunk import read_heads
from headrace_protos.broker.v1 import backup_pb2 as pb

Backing = Callable[[BackupWorld], Coroutine[Any, Any, None]]
PURGER = 1 << 40
END: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs


@pytest.fixture
def backup(serve) -> Callable[..., None]:
    """Runs a scenario with a queue of six messages."""

    def run(scenario: Backing) -> None:
        async def with_world(served: Any) -> None:
            async with BackupWorld(served) as world:
                await world.publish(b"a", b"bb", b"ccc")
                await world.publish(b"d", b"", b"f")
                await scenario(world)

        serve(with_world)

    return run


async def refusal(call: Any) -> tuple[str, str, str]:
    """Status, reason and field of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await call
    status = rpc_status.from_call(failure.value)  # type: ignore[arg-type]
    assert status is not None
    info, field = ErrorInfo(), BadRequest()
    assert status.details[0].Unpack(info)
    if len(status.details) > 1 and status.details[1].Unpack(field):
        return failure.value.code().name, info.reason, field.field_violations[0].field
    return failure.value.code().name, info.reason, ""


def bodies(chunks: list[Any]) -> list[bytes]:
    return [
        message_body(chunk.batch, 0, position)
        for chunk in chunks
        for position in range(batch_count(chunk.batch, 0))
    ]


ALL = [b"a", b"bb", b"ccc", b"d", b"", b"f"]


def test_point_is_read_as_often_as_wanted_whatever_becomes_of_the_queue(backup) -> None:
    async def scenario(world: BackupWorld) -> None:
        opened = await world.open_point()
        assert (opened.messages, opened.octets, opened.last_id) == (6, 8, 6)
        assert opened.time_ms == world.clock.ms
        await world.publish(b"later")
        world.host.propose(encode_purge(PURGER, 1))
        await asyncio.sleep(0)
        assert world.host.machine.held_count == 0
        for chunk in (1, 4, 0):
            chunks = await world.read(opened.point, chunk_messages=chunk)
            assert bodies(chunks) == ALL
            heads = [head for each in chunks for head in read_heads(each.heads)]
            assert [head.id for head in heads] == [1, 2, 3, 4, 5, 6]
            assert {head.arrived_ms for head in heads} == {world.clock.ms}
        part = await world.read(opened.point, after_id=2, messages_max=3)
        assert bodies(part) == ALL[2:5]
        assert part[-1].last_id == 5
        assert await world.read(opened.point, after_id=6) == []
        assert len(await world.read(opened.point, chunk_octets=1)) == 6

    backup(scenario)


def test_what_is_read_is_given_up_when_the_reader_says_so(backup) -> None:
    async def scenario(world: BackupWorld) -> None:
        opened = await world.open_point()
        world.host.propose(encode_purge(PURGER, 1))
        await asyncio.sleep(0)
        hold = world.host.log.hold
        assert hold is not None
        assert hold.count == 2
        await world.call("Keep", pb.KeepPointRequest(point=opened.point, done_id=2))
        assert hold.count == 2
        await world.call("Keep", pb.KeepPointRequest(point=opened.point, done_id=3))
        assert hold.count == 1
        assert bodies(await world.read(opened.point, after_id=3)) == ALL[3:]
        await world.call("Keep", pb.KeepPointRequest(point=opened.point, done_id=6))
        assert hold.count == 0

    backup(scenario)


def test_point_that_is_closed_is_unknown_and_closing_again_is_no_error(backup) -> None:
    async def scenario(world: BackupWorld) -> None:
        opened = await world.open_point()
        for _ in range(2):
            await world.call("Close", pb.ClosePointRequest(point=opened.point))
        wanted = ("NOT_FOUND", "UNKNOWN_POINT", "")
        assert await refusal(world.read(opened.point)) == wanted
        keep = pb.KeepPointRequest(point=opened.point)
        assert await refusal(world.call("Keep", keep)) == wanted
        assert world.points.count == 0

    backup(scenario)


def test_point_that_nobody_reads_expires_and_one_that_is_read_or_kept_does_not(backup) -> None:
    async def scenario(world: BackupWorld) -> None:
        opened = await world.open_point(ttl_ms=1000)
        for _ in range(3):
            world.clock.ms += 900
            await world.read(opened.point)
            world.clock.ms += 900
            await world.call("Keep", pb.KeepPointRequest(point=opened.point))
        await world.call("Keep", pb.KeepPointRequest(point=opened.point, ttl_ms=5000))
        world.clock.ms += 4900
        await world.read(opened.point)
        world.clock.ms += 5000
        wanted = ("FAILED_PRECONDITION", "POINT_LOST", "")
        assert await refusal(world.read(opened.point)) == wanted
        keep = pb.KeepPointRequest(point=opened.point)
        assert await refusal(world.call("Keep", keep)) == wanted

    backup(scenario)


@pytest.mark.parametrize("loss", ["replaced", "disk", "gone"])
def test_point_is_lost_with_what_it_holds(backup, loss) -> None:
    async def scenario(world: BackupWorld) -> None:
        opened = await world.open_point()
        if loss == "replaced":
            world.host.log.replaced()
        elif loss == "disk":
            hold = world.host.log.hold
            assert hold is not None
            hold.break_off("the disk of the node is nearly full")
        else:
            world.hosts.clear()
        wanted = ("FAILED_PRECONDITION", "POINT_LOST", "")
        assert await refusal(world.read(opened.point)) == wanted
        assert await refusal(world.read(opened.point)) == wanted

    backup(scenario)


def test_another_point_of_a_queue_that_lost_one_is_read(backup) -> None:
    async def scenario(world: BackupWorld) -> None:
        lost = await world.open_point()
        world.host.log.replaced()
        opened = await world.open_point()
        assert bodies(await world.read(opened.point)) == ALL
        assert (await refusal(world.read(lost.point)))[1] == "POINT_LOST"

    backup(scenario)


def test_only_administrators_are_served(backup) -> None:
    async def scenario(world: BackupWorld) -> None:
        opened = await world.open_point()
        world.broker.tags = ("monitoring", "management")
        wanted = ("PERMISSION_DENIED", "ACCESS_REFUSED", "")
        assert await refusal(world.open_point()) == wanted
        assert await refusal(world.read(opened.point)) == wanted
        keep = pb.KeepPointRequest(point=opened.point)
        assert await refusal(world.call("Keep", keep)) == wanted
        close = pb.ClosePointRequest(point=opened.point)
        assert await refusal(world.call("Close", close)) == wanted
        assert await refusal(collect(world.restore(opening()))) == wanted

    backup(scenario)


@pytest.mark.parametrize(
    ("method", "fields", "field"),
    [
        ("Open", {"ttl_ms": 0}, "ttl_ms"),
        ("Open", {"ttl_ms": 999}, "ttl_ms"),
        ("Open", {"ttl_ms": BACKUP_TTL_MS_MAX + 1}, "ttl_ms"),
        ("Keep", {"point": ""}, "point"),
        ("Keep", {"point": "1-1", "ttl_ms": 999}, "ttl_ms"),
        ("Keep", {"point": "1-1", "done_id": 1 << 62}, "done_id"),
        ("Close", {"point": "1"}, "point"),
        ("Close", {"point": "-1-1"}, "point"),
        ("Close", {"point": "0-1"}, "point"),
        ("Close", {"point": "1-9999999999999999999"}, "point"),
        ("Close", {"point": "4294967296-1"}, "point"),
        ("Close", {"point": "1-1\n"}, "point"),
        ("Close", {"point": "x" * 100_000}, "point"),
    ],
)
def test_fields_that_cannot_be_are_named(backup, method, fields, field) -> None:
    async def scenario(world: BackupWorld) -> None:
        kinds = {
            "Open": pb.OpenPointRequest,
            "Keep": pb.KeepPointRequest,
            "Close": pb.ClosePointRequest,
        }
        if method == "Open":
            fields.update(vhost="/", queue="work")
        call = world.call(method, kinds[method](**fields))
        assert await refusal(call) == ("INVALID_ARGUMENT", "INVALID_FIELD", field)

    backup(scenario)


def test_reading_within_no_bounds_is_refused(backup) -> None:
    async def scenario(world: BackupWorld) -> None:
        point = (await world.open_point()).point
        for fields in (
            {"after_id": 1 << 62},
            {"messages_max": (1 << 64) - 1},
            {"chunk_messages": BACKUP_CHUNK_MESSAGES_MAX + 1},
            {"chunk_octets": BACKUP_CHUNK_BYTES_MAX + 1},
        ):
            [field] = fields
            wanted = ("INVALID_ARGUMENT", "INVALID_FIELD", field)
            assert await refusal(world.read(point, "guest", **fields)) == wanted
        assert (await refusal(world.read("1-12345")))[1] == "UNKNOWN_POINT"
        assert (await refusal(world.read("7-1")))[1] == "NODE_SILENT"

    backup(scenario)


def test_queue_that_is_not_there_or_exclusive_or_without_a_replica(backup) -> None:
    async def scenario(world: BackupWorld) -> None:
        wanted = ("NOT_FOUND", "NOT_FOUND", "queue")
        assert await refusal(world.open_point(queue="nowhere")) == wanted
        world.broker.add_queue("own", exclusive=True)
        assert (await refusal(world.open_point(queue="own")))[1] == "RESOURCE_LOCKED"
        world.hosts.clear()
        assert await refusal(world.open_point()) == ("UNAVAILABLE", "NO_REPLICA", "")
        world.exists = False
        assert await refusal(world.open_point()) == wanted

    backup(scenario)


def test_points_and_reads_are_bounded(backup) -> None:
    async def scenario(world: BackupWorld) -> None:
        for _ in range(BACKUP_POINTS_MAX):
            opened = await world.open_point()
        wanted = ("RESOURCE_EXHAUSTED", "TOO_MANY_POINTS", "")
        assert await refusal(world.open_point()) == wanted
        await world.call("Close", pb.ClosePointRequest(point=opened.point))
        point = (await world.open_point()).point
        world.service.reads = BACKUP_READS_MAX
        assert (await refusal(world.read(point)))[1] == "TOO_MANY_READS"
        world.service.reads = 0
        assert bodies(await world.read(point)) == ALL
        assert world.service.reads == 0

    backup(scenario)


def test_reader_that_goes_away_leaves_nothing(backup) -> None:
    async def scenario(world: BackupWorld) -> None:
        point = (await world.open_point()).point
        request = pb.ReadPointRequest(point=point, chunk_messages=1)
        call = world.stub.Read(request, metadata=ADMIN)
        await call.read()
        call.cancel()
        await world.idle()
        assert bodies(await world.read(point)) == ALL

    backup(scenario)


def test_reader_that_never_reads_is_ended(backup, monkeypatch) -> None:
    monkeypatch.setattr(call_module, "STALL_SECONDS_MAX", 0.01)

    async def scenario(world: BackupWorld) -> None:
        for _ in range(4):
            await world.publish(bytes(4 << 20))
        point = (await world.open_point()).point
        call = world.stub.Read(
            pb.ReadPointRequest(point=point, chunk_octets=4 << 20), metadata=ADMIN
        )
        while not world.service.reads:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await world.idle()

        async def rest() -> None:
            while await call.read() is not END:
                pass

        assert await refusal(rest()) == ("ABORTED", "NOT_READ", "")

    backup(scenario)


def test_reader_that_reads_nothing_is_ended(backup, monkeypatch) -> None:
    monkeypatch.setattr(call_module, "STALL_SECONDS_MAX", 0.5)

    async def scenario(world: BackupWorld) -> None:
        for _ in range(40):
            await world.publish(bytes(1 << 20))
        point = (await world.open_point()).point
        call = world.stub.Read(pb.ReadPointRequest(point=point), metadata=ADMIN)
        await call.read()
        await world.idle()

        async def rest() -> None:
            while await call.read() is not END:
                pass

        assert await refusal(rest()) == ("ABORTED", "NOT_READ", "")

    backup(scenario)


# Putting back


def opening(**more: Any) -> pb.RestoreRequest:
    fields = {"vhost": "/", "queue": "fresh", "restore_id": "r1"} | more
    return pb.RestoreRequest(open=pb.RestoreOpen(**fields))


def batch(first: int, *messages: bytes, properties: bytes = b"\x00\x00") -> pb.RestoreRequest:
    route = b"\x02ex\x03key"
    publishes = [Publish(1, route, False, False, properties, body) for body in messages]
    return raw(first, encode_batch(publishes))


def raw(first: int, data: bytes) -> pb.RestoreRequest:
    return pb.RestoreRequest(batch=pb.RestoreBatch(first_number=first, batch=data))


async def collect(call: Any) -> list[Any]:
    return [response async for response in call]


def answers(responses: list[Any], kind: str) -> list[tuple[int, int]]:
    return [
        (each.first, each.last)
        for response in responses
        if response.WhichOneof("kind") == kind
        for each in getattr(response, kind).ranges
    ]


def test_messages_are_put_where_they_were_whatever_their_route_says(backup) -> None:
    async def scenario(world: BackupWorld) -> None:
        fresh = world.add_queue("fresh")
        call = world.restore(opening(), batch(1, b"x", b"y"), batch(5, b"z"))
        responses = await collect(call)
        assert responses[0].opened.next_sequence == 1
        assert answers(responses, "confirmed") in ([(1, 2), (5, 5)], [(1, 1), (2, 2), (5, 5)])
        found = [(m.blob, m.position) for m in fresh.ready]
        assert [message_body(blob, 0, at) for blob, at in found] == [b"x", b"y", b"z"]
        assert all(b"\x02ex\x03key" in blob for blob, _ in found)
        assert not world.broker.connections

    backup(scenario)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.RestoreRequest(), "kind"),
        (opening(), "open"),
        (raw(1, b""), "batch.batch"),
        (raw(1, b"\x00\x00\x00\x00"), "batch.batch"),
        (raw(1, b"\xff\xff\xff\xff"), "batch.batch"),
        (raw(1, b"\x00\x00\x00\x01\x00\x00\x00\xff"), "batch.batch"),
        (raw(1, batch(1, b"x").batch.batch + b"\x00"), "batch.batch"),
        (batch(0, b"x"), "batch.first_number"),
        (batch((1 << 62) - 1, b"x"), "batch.first_number"),
        (batch(1, *[b""] * (STREAM_BATCH_MESSAGES_MAX + 1)), "batch.batch"),
        (batch(1, b"x", bytes(4 << 20)), "batch"),
        (batch(1, b"x", b"y", properties=b"\xff\xff"), "batch.batch[0]"),
        (batch(1, b"x", properties=b"\x20\x00\x00\x00\x00\x05"), "batch.batch[0]"),
        (batch(1, b"x", properties=bytes(PROPERTIES_BYTES_MAX + 1)), "batch.batch[0]"),
    ],
)
def test_what_cannot_be_put_back_ends_the_stream(backup, request_, field) -> None:
    async def scenario(world: BackupWorld) -> None:
        fresh = world.add_queue("fresh")
        found = await refusal(collect(world.restore(opening(), request_)))
        assert (found[0], found[2]) == ("INVALID_ARGUMENT", field)
        assert not fresh.ready
        assert not world.broker.connections

    backup(scenario)


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        (batch(1, b"x"), ("INVALID_ARGUMENT", "INVALID_FIELD", "open")),
        (opening(restore_id=""), ("INVALID_ARGUMENT", "INVALID_FIELD", "open.restore_id")),
        (opening(restore_id="x" * 256), ("INVALID_ARGUMENT", "INVALID_FIELD", "open.restore_id")),
        (opening(name="x" * 256), ("INVALID_ARGUMENT", "INVALID_FIELD", "open.name")),
        (opening(queue="nowhere"), ("NOT_FOUND", "NOT_FOUND", "open.queue")),
        (opening(queue="work"), ("FAILED_PRECONDITION", "NOT_EMPTY", "")),
    ],
)
def test_opening_that_cannot_be_is_refused(backup, request_, wanted) -> None:
    async def scenario(world: BackupWorld) -> None:
        assert await refusal(collect(world.restore(request_))) == wanted

    backup(scenario)


def test_queue_that_holds_messages_takes_more_when_told(backup) -> None:
    async def scenario(world: BackupWorld) -> None:
        responses = await collect(world.restore(opening(queue="work", append=True), batch(1, b"x")))
        assert answers(responses, "confirmed") == [(1, 1)]

    backup(scenario)


def test_queue_that_is_deleted_meanwhile_confirms_nothing(backup) -> None:
    async def scenario(world: BackupWorld) -> None:
        world.add_queue("fresh")
        world.broker.hold_confirms = True
        seen: list[Any] = []

        async def stream() -> Any:
            yield opening()
            yield batch(1, b"x")
            while not world.broker.clients:  # noqa: ASYNC110
                await asyncio.sleep(0)
            world.broker.remove_queue("fresh")
            yield batch(2, b"y")

        call = world.stub.Restore(stream(), metadata=ADMIN)

        async def read() -> None:
            async for response in call:
                seen.append(response)  # noqa: PERF401 - what comes before the error counts

        assert (await refusal(read()))[:2] == ("NOT_FOUND", "NOT_FOUND")
        assert answers(seen, "confirmed") == []

    backup(scenario)
