"""The service Export."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status
from tests.broker.codecs.column_reader import decode_columns
from tests.broker.gateways.grpc.export_world import LOG, NAMES, SCHEMA, World

from headrace_broker.codecs.column_block import ColumnBlock, Schema
from headrace_broker.gateways.grpc.export import exporting as module
from headrace_broker.gateways.grpc.server import call as call_module
from headrace_broker.model.limits import EXPORT_CHUNK_BYTES, EXPORT_GROUPS_MAX, EXPORT_READS_MAX
from headrace_protos.broker.v1 import export_pb2 as pb

END: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs
READS = 3  # at a time, where that is to be seen

Scenario = Callable[[World], Coroutine[Any, Any, None]]


@pytest.fixture
def export(broker: Any) -> Callable[[Scenario], None]:
    """Runs a scenario as a user with the tag `monitoring`."""
    from tests.broker.gateways.grpc.conftest import basic

    broker.tags = ("monitoring",)

    async def run(scenario: Scenario) -> None:
        async with asyncio.timeout(20), World(broker, basic("guest", "guest")) as world:
            await scenario(world)

    return lambda scenario: asyncio.run(run(scenario))


def numbers(responses: list[pb.ReadExportResponse]) -> list[int]:
    """The numbers in all rows of an answer."""
    found: list[int] = []
    schema: Schema | None = None
    for response in responses:
        if response.HasField("schema"):
            columns = tuple((column.name, int(column.type)) for column in response.schema.columns)
            schema = Schema(response.schema.version, columns)
        assert schema == SCHEMA
        for block in response.blocks:
            body = zlib.decompress(block.body) if block.compression else block.body
            assert len(body) == block.body_octets
            columns_of = decode_columns(
                schema, ColumnBlock(block.rows, tuple(block.buffer_octets), body)
            )
            assert columns_of[0][0] == block.first_index
            found += columns_of[0]
    return found


async def refusal(call: Any) -> tuple[str, str, dict[str, str], list[str]]:
    """Status, reason, metadata and refused fields of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await call
    status = rpc_status.from_call(failure.value)  # type: ignore[arg-type]
    info, bad = ErrorInfo(), BadRequest()
    assert status.details[0].Unpack(info)
    if len(status.details) > 1:
        status.details[1].Unpack(bad)
    fields = [each.field for each in bad.field_violations]
    return failure.value.code().name, info.reason, dict(info.metadata), fields


def test_every_node_has_a_shard_and_tells_where(export) -> None:
    async def scenario(world: World) -> None:
        await world.note(2, 3)
        listed = await world.call("ListShards", pb.ListShardsRequest(log=LOG))
        found = [(s.shard, s.node, s.address, s.first_index, s.next_index) for s in listed.shards]
        assert found == [("n1", "n1", "host1:7672", 0, 0), ("n2", "n2", "host2:7672", 0, 3)]
        assert all(shard.incarnation for shard in listed.shards)
        assert not listed.missing_nodes

    export(scenario)


def test_rows_of_any_node_are_read_here_and_again(export) -> None:
    async def scenario(world: World) -> None:
        for node in NAMES:
            await world.note(node, 3, 1, 200)
            for _ in range(2):
                assert numbers(await world.read(node)) == list(range(204))
            assert numbers(await world.read(node, compressed=True)) == list(range(204))

    export(scenario)


def test_blocks_around_the_rows_are_sent_whole_and_limits_end_the_answer(export) -> None:
    async def scenario(world: World) -> None:
        await world.note(1, 3, 3, 3, 3)
        assert numbers(await world.read(start=4, end=8)) == [3, 4, 5, 6, 7, 8]
        assert numbers(await world.read(start=4, rows_max=3)) == [3, 4, 5, 6, 7, 8]
        assert numbers(await world.read(octets_max=1)) == [0, 1, 2]
        assert await world.read(start=5, end=5) == []

    export(scenario)


def test_large_answers_are_divided(export) -> None:
    async def scenario(world: World) -> None:
        await world.note(1, *[2000] * 20, text="y" * 50)
        responses = await world.read()
        assert len(responses) > 1
        assert all(response.ByteSize() < EXPORT_CHUNK_BYTES + (300 << 10) for response in responses)
        assert numbers(responses) == list(range(40_000))

    export(scenario)


def test_small_blocks_travel_together(export) -> None:
    async def scenario(world: World) -> None:
        await world.note(1, *[1] * 30)
        [response] = await world.read()
        assert len(response.blocks) == 30

    export(scenario)


def test_rows_that_are_gone_not_there_yet_or_of_another_shard_are_refused(export) -> None:
    async def scenario(world: World) -> None:
        await world.note(1, 10)
        await world.open()
        await world.commit(10)
        world.clock_ms += 1 << 40  # the file is too old, and goes
        await world.stores[1].note(world.clock_ms, dict)
        await world.note(1, 1)
        shard = await world.shard()
        assert shard.first_index == 10
        code, reason, metadata, _ = await refusal(world.read(start=9))
        assert (code, reason, metadata) == ("OUT_OF_RANGE", "DATA_GONE", {"first_index": "10"})
        code, reason, metadata, _ = await refusal(world.read(end=12))
        assert (code, reason, metadata) == ("OUT_OF_RANGE", "NOT_YET", {"next_index": "11"})
        code, reason, metadata, _ = await refusal(world.read(incarnation=5))
        assert (code, reason) == ("FAILED_PRECONDITION", "OTHER_INCARNATION")
        assert metadata == {"incarnation": str(shard.incarnation)}
        assert (await refusal(world.read(shard="n3")))[:2] == ("NOT_FOUND", "UNKNOWN_SHARD")
        for end, more, reason in (
            (10, {"incarnation": 5}, "OTHER_INCARNATION"),
            (9, {}, "DATA_GONE"),
            (12, {}, "NOT_YET"),
            (10, {"shard": "n3"}, "UNKNOWN_SHARD"),
        ):
            assert (await refusal(world.read(start=end, end=end, **more)))[1] == reason
        assert [block for each in await world.read(end=10) for block in each.blocks] == []

    export(scenario)


def test_group_commits_is_told_and_is_closed(export) -> None:
    async def scenario(world: World) -> None:
        for node in NAMES:
            await world.note(node, 10)
            opened = await world.open(node=node)
            assert (opened.shard, opened.group, opened.epoch) == (NAMES[node], "job", 1)
            assert (opened.committed, opened.next_index) == (0, 10)
            assert (await world.commit(7, node=node)).committed == 7
            assert (await world.commit(3, node=node)).committed == 7
        everything = pb.DescribeExportGroupsRequest(name=pb.ExportGroupName(log=LOG))
        described = await world.call("DescribeGroups", everything)
        assert [(g.shard, g.group, g.committed) for g in described.groups] == [
            ("n1", "job", 7),
            ("n2", "job", 7),
        ]
        name = pb.ExportGroupName(log=LOG, shard="n2", group="job")
        for _ in range(2):
            await world.call("CloseGroup", pb.CloseExportGroupRequest(name=name, epoch=1))
        one = pb.DescribeExportGroupsRequest(name=pb.ExportGroupName(log=LOG, shard="n2"))
        assert not (await world.call("DescribeGroups", one)).groups
        assert (await refusal(world.commit(8, node=2)))[:2] == ("NOT_FOUND", "UNKNOWN_GROUP")

    export(scenario)


@pytest.mark.parametrize("node", NAMES)
def test_older_epoch_is_fenced_and_a_repeated_opening_is_not(export, node: int) -> None:
    async def scenario(world: World) -> None:
        await world.note(node, 10)
        assert (await world.open("a", node)).epoch == 1
        assert (await world.open("a", node)).epoch == 1
        assert (await world.open("b", node)).epoch == 2
        code, reason, metadata, _ = await refusal(world.commit(1, 1, node))
        assert (code, reason, metadata) == ("ABORTED", "FENCED", {"epoch": "2"})
        name = pb.ExportGroupName(log=LOG, shard=NAMES[node], group="job")
        close = pb.CloseExportGroupRequest(name=name, epoch=1)
        assert (await refusal(world.call("CloseGroup", close)))[1] == "FENCED"
        assert (await world.commit(1, 2, node)).committed == 1

    export(scenario)


def test_commit_of_rows_that_are_not_there_is_refused(export) -> None:
    async def scenario(world: World) -> None:
        await world.note(1, 3)
        await world.open()
        code, reason, metadata, _ = await refusal(world.commit(4))
        assert (code, reason, metadata) == ("OUT_OF_RANGE", "NOT_YET", {"next_index": "3"})
        assert (await refusal(world.commit(1, incarnation=9)))[1] == "OTHER_INCARNATION"

    export(scenario)


def test_groups_are_bounded(export) -> None:
    async def scenario(world: World) -> None:
        for number in range(EXPORT_GROUPS_MAX):
            await world.open(group=f"job {number}")
        refused = await refusal(world.open(group="one more"))
        assert refused[:2] == ("RESOURCE_EXHAUSTED", "TOO_MANY_GROUPS")

    export(scenario)


def test_node_that_does_not_answer_is_named(export) -> None:
    async def scenario(world: World) -> None:
        await world.note(2, 3)
        incarnation = (await world.shard(2)).incarnation
        world.links.down = {1, 2}
        listed = await world.call("ListShards", pb.ListShardsRequest(log=LOG))
        assert [shard.shard for shard in listed.shards] == ["n1"]
        assert list(listed.missing_nodes) == ["n2"]
        request = pb.ReadExportRequest(log=LOG, shard="n2", incarnation=incarnation, end=3)
        reading = world.call("Read", request).read()
        assert (await refusal(reading))[:2] == ("UNAVAILABLE", "NODE_DOWN")
        assert (await refusal(world.open(node=2)))[:2] == ("UNAVAILABLE", "NODE_DOWN")

    export(scenario)


def test_full_disk_is_told_as_unavailable(export) -> None:
    async def scenario(world: World) -> None:
        def full(call: str, path: str) -> None:
            if call == "write":
                raise OSError(28, "no space left on device", path)

        world.disks[1].fault = full
        await world.note(1, 3)  # lost, and nothing else
        world.rows[1] = 0
        assert (await refusal(world.open()))[:2] == ("UNAVAILABLE", "NODE_DOWN")
        world.disks[1].fault = lambda call, path: None
        await world.note(1, 3)
        assert numbers(await world.read()) == [0, 1, 2]

    export(scenario)


LONG = "x" * 256
NAMED: dict[str, Any] = {"log": LOG, "shard": "n1", "group": "job"}


def named(**fields: Any) -> pb.ExportGroupName:
    return pb.ExportGroupName(**(NAMED | fields))


@pytest.mark.parametrize(
    ("method", "request_message", "field"),
    [
        ("ListShards", pb.ListShardsRequest(), "log"),
        ("ListShards", pb.ListShardsRequest(log=pb.EXPORT_LOG_ARCHIVE), "log"),
        ("ListShards", pb.ListShardsRequest(log=99), "log"),  # type: ignore[arg-type]
        ("ListShards", pb.ListShardsRequest(log=LOG, queue="q"), "vhost"),
        ("ListShards", pb.ListShardsRequest(log=LOG, vhost=LONG), "vhost"),
        ("OpenGroup", pb.OpenExportGroupRequest(), "name.log"),
        ("OpenGroup", pb.OpenExportGroupRequest(name=named(shard="")), "name.shard"),
        ("OpenGroup", pb.OpenExportGroupRequest(name=named(group="")), "name.group"),
        ("OpenGroup", pb.OpenExportGroupRequest(name=named(group=LONG)), "name.group"),
        ("OpenGroup", pb.OpenExportGroupRequest(name=named()), "request_id"),
        ("OpenGroup", pb.OpenExportGroupRequest(name=named(), request_id="x" * 65), "request_id"),
        ("Commit", pb.CommitExportRequest(name=named(), incarnation=1), "epoch"),
        ("Commit", pb.CommitExportRequest(name=named(), epoch=1 << 63, incarnation=1), "epoch"),
        ("Commit", pb.CommitExportRequest(name=named(), epoch=1), "incarnation"),
        (
            "Commit",
            pb.CommitExportRequest(name=named(), epoch=1, incarnation=1, up_to=1 << 63),
            "up_to",
        ),
        ("DescribeGroups", pb.DescribeExportGroupsRequest(), "name.log"),
        ("DescribeGroups", pb.DescribeExportGroupsRequest(name=named(group=LONG)), "name.group"),
        ("CloseGroup", pb.CloseExportGroupRequest(name=named(group="")), "name.group"),
        ("CloseGroup", pb.CloseExportGroupRequest(name=named(), epoch=1 << 63), "epoch"),
        ("Read", pb.ReadExportRequest(), "log"),
        ("Read", pb.ReadExportRequest(log=LOG), "shard"),
        ("Read", pb.ReadExportRequest(log=LOG, shard=LONG), "shard"),
        ("Read", pb.ReadExportRequest(log=LOG, shard="n1"), "incarnation"),
        ("Read", pb.ReadExportRequest(log=LOG, shard="n1", incarnation=1, start=1), "end"),
        (
            "Read",
            pb.ReadExportRequest(log=LOG, shard="n1", incarnation=1, start=1 << 63, end=1 << 63),
            "start",
        ),
        (
            "Read",
            pb.ReadExportRequest(log=LOG, shard="n1", incarnation=1, rows_max=1 << 63),
            "rows_max",
        ),
    ],
)
def test_field_that_breaks_a_rule_is_named(
    export, method: str, request_message: Any, field: str
) -> None:
    async def scenario(world: World) -> None:
        call = world.call(method, request_message)
        code, reason, _, fields = await refusal(call.read() if method == "Read" else call)
        assert (code, reason, fields) == ("INVALID_ARGUMENT", "INVALID_FIELD", [field])

    export(scenario)


@pytest.mark.parametrize("method", ["ListShards", "OpenGroup", "Commit", "DescribeGroups", "Read"])
def test_who_may_not_look_at_everything_is_refused(export, method: str) -> None:
    requests = {
        "ListShards": pb.ListShardsRequest(log=LOG),
        "OpenGroup": pb.OpenExportGroupRequest(name=named(), request_id="a"),
        "Commit": pb.CommitExportRequest(name=named(), epoch=1, incarnation=1),
        "DescribeGroups": pb.DescribeExportGroupsRequest(name=named()),
        "Read": pb.ReadExportRequest(log=LOG, shard="n1", incarnation=1),
    }

    async def scenario(world: World) -> None:
        world.broker.tags = ("management", "policymaker")
        call = world.call(method, requests[method])
        code, reason, *_ = await refusal(call.read() if method == "Read" else call)
        assert (code, reason) == ("PERMISSION_DENIED", "ACCESS_REFUSED")
        stranger = (("authorization", "Basic eDp5"),)
        call = world.call(method, requests[method], stranger)
        assert (await refusal(call.read() if method == "Read" else call))[0] == "UNAUTHENTICATED"

    export(scenario)


def test_a_look_that_is_refused_is_no_change(export, caplog) -> None:
    async def scenario(world: World) -> None:
        caplog.set_level("INFO", "headrace.audit")
        world.broker.tags = ("management",)
        looks = world.call("Read", pb.ReadExportRequest(log=LOG, shard="n1", incarnation=1))
        assert (await refusal(looks.read()))[0] == "PERMISSION_DENIED"
        changes = world.call("OpenGroup", pb.OpenExportGroupRequest(name=named(), request_id="a"))
        assert (await refusal(changes))[0] == "PERMISSION_DENIED"
        lines = [each.getMessage() for each in caplog.records if each.name == "headrace.audit"]
        [line] = lines
        assert "target=headrace.broker.v1.Export/OpenGroup outcome=" in line

    export(scenario)


def test_reads_are_bounded_and_one_that_is_cancelled_makes_room(export, monkeypatch) -> None:
    assert EXPORT_READS_MAX > READS
    monkeypatch.setattr(module, "EXPORT_READS_MAX", READS)

    async def scenario(world: World) -> None:
        await world.note(1, *[2000] * 100, text="y" * 100)
        shard = await world.shard()
        request = pb.ReadExportRequest(
            log=LOG, shard="n1", incarnation=shard.incarnation, end=shard.next_index
        )
        calls = [world.call("Read", request) for _ in range(READS)]
        for call in calls:
            assert await call.read() is not END
        refused = await refusal(world.call("Read", request).read())
        assert refused[:2] == ("RESOURCE_EXHAUSTED", "TOO_MANY_READS")
        for call in calls:
            call.cancel()
        await world.nobody_reads()
        assert numbers(await world.read(end=10)) == list(range(2000))

    export(scenario)


def test_client_that_does_not_read_is_given_up(export, monkeypatch) -> None:
    monkeypatch.setattr(call_module, "STALL_SECONDS_MAX", 0.05)

    async def scenario(world: World) -> None:
        await world.note(1, *[2000] * 100, text="y" * 100)
        shard = await world.shard()
        call = world.call(
            "Read",
            pb.ReadExportRequest(
                log=LOG, shard="n1", incarnation=shard.incarnation, end=shard.next_index
            ),
        )
        await call.read()
        await world.nobody_reads()

    export(scenario)
