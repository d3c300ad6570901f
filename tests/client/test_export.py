"""Logs are read to the end, whichever node breaks off; groups say how far readers are."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from tests.broker.codecs.column_reader import decode_columns
from tests.client.fake_exports import ARCHIVE, TELEMETRY, FakeShard

from headrace_broker.codecs.column_block import ColumnBlock, Schema
from headrace_client import (
    BrokerFaultError,
    DataGoneError,
    FencedError,
    NodeDownError,
    NotYetError,
    OtherIncarnationError,
    UnknownGroupError,
    UnknownShardError,
)
from headrace_client.export import LOGS
from headrace_protos.broker.v1 import export_pb2 as pb

SAMPLES, ARCHIVES = pb.EXPORT_LOG_FLOW_SAMPLES, pb.EXPORT_LOG_ARCHIVE
LOST = (grpc.StatusCode.UNAVAILABLE, "the node stops", "")


def shard(broker: Any, rows: int = 10, **more: Any) -> FakeShard:
    found: FakeShard = broker.exports.logs.add(
        SAMPLES, FakeShard("n1", TELEMETRY, following=rows, **more)
    )
    return found


def times(block: Any) -> list[int]:
    """The first column of the rows that are wanted."""
    found = ColumnBlock(block.rows, block.buffer_bytes, block.body)
    columns = decode_columns(Schema(block.schema.version, block.schema.columns), found)
    wanted: list[int] = columns[0][block.start - block.first_index : block.end - block.first_index]
    return wanted


async def read(client: Any, start: int, end: int, incarnation: int = 7, **more: Any) -> list[int]:
    found = []
    async for block in client.export.read("flow_samples", "n1", incarnation, start, end, **more):
        found += times(block)
    return found


@pytest.mark.parametrize("compressed", [False, True])
def test_all_rows_are_read_once_and_none_beyond_what_is_wanted(play: Any, compressed: bool) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        rows = shard(broker)
        for start, end in ((0, 10), (1, 9), (3, 4), (5, 5), (7, 10)):
            wanted = [rows.at(index) for index in range(start, end)]
            assert await read(client, start, end, compressed=compressed) == wanted

    play(scenario)


def test_a_read_that_is_lost_goes_on_at_another_node_behind_the_last_block(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        second.exports.logs = first.exports.logs
        rows = shard(first, 40)
        first.exports.breaks_after = [(2, LOST)]
        second.exports.breaks_after = [(3, LOST)]
        assert await read(client, 1, 39) == [rows.at(index) for index in range(1, 39)]
        starts = [each.start for each in first.exports.reads + second.exports.reads]
        assert starts == [1, 20, 8]

    play_two(scenario)


def test_the_node_that_has_a_shard_is_asked_first(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        second.exports.logs = first.exports.logs
        shard(first)
        await read(client, 0, 10, address=second.endpoint)
        await read(client, 0, 10, node="n2", address="elsewhere:1")
        assert (len(first.exports.reads), len(second.exports.reads)) == (0, 2)
        await read(client, 0, 10, node="n9")
        assert (len(first.exports.reads), len(second.exports.reads)) == (1, 2)

    play_two(scenario)


def test_it_gives_up_when_no_node_sends_rows_for_long(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        shard(broker)
        broker.exports.logs.down.add("n1")
        with pytest.raises(NodeDownError, match="does not answer"):
            await read(client, 0, 10, give_up_after_s=0.05)
        assert len(broker.exports.reads) > 1

    play(scenario)


def test_what_a_shard_refuses_is_told_by_a_class_of_its_own(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        shard(broker, first=3)
        with pytest.raises(DataGoneError) as gone:
            await read(client, 1, 10)
        assert gone.value.first_index == 3
        with pytest.raises(NotYetError) as early:
            await read(client, 3, 11)
        assert early.value.next_index == 10
        with pytest.raises(OtherIncarnationError) as other:
            await read(client, 3, 10, incarnation=6)
        assert other.value.incarnation == 7
        broker.exports.logs.shards.clear()
        with pytest.raises(UnknownShardError):
            await read(client, 3, 10)
        assert len(broker.exports.reads) == 4

    play(scenario)


def test_a_read_of_so_many_bytes_ends_with_the_block_that_exceeds_them(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        rows = shard(broker)
        assert await read(client, 1, 10, bytes_max=1) == [rows.at(index) for index in (1, 2, 3)]

    play(scenario)


def test_blocks_that_do_not_follow_each_other_are_not_handed_out(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        rows = shard(broker)
        right = rows.block
        rows.block = lambda index, compressed: right(max(index - 4, 0), compressed)  # type: ignore[method-assign]
        with pytest.raises(BrokerFaultError, match="do not follow"):
            async with asyncio.timeout(10):
                await read(client, 0, 10, give_up_after_s=0.01)

    play(scenario)


def test_shards_are_listed_once_with_the_nodes_that_did_not_answer(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        logs = broker.exports.logs
        logs.add(ARCHIVES, FakeShard("1", ARCHIVE, queue="a", following=3, byte_count=9))
        logs.add(ARCHIVES, FakeShard("2", ARCHIVE, queue="b"))
        logs.missing = ["n3"]
        found = await client.export.shards("archive", "/", "a")
        assert [(each.name, each.queue, each.next_index) for each in found.shards] == [
            ("1", "a", 3)
        ]
        assert found.missing_nodes == ("n3",)
        assert len((await client.export.shards("archive")).shards) == 2
        with pytest.raises(ValueError, match="log: must be one of archive"):
            await client.export.shards("samples")

    play(scenario)


def test_groups_are_opened_commit_and_are_fenced(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        shard(broker)
        export, where = client.export, ("flow_samples", "n1", "lake")
        first = await export.open_group(*where, "one")
        assert (first.epoch, first.committed, first.next_index) == (1, 0, 10)
        assert (await export.commit(*where, first.epoch, 7, 4)).committed == 4
        assert (await export.open_group(*where, "one")).epoch == 1
        assert (await export.open_group(*where, "two")).epoch == 2
        with pytest.raises(FencedError):
            await export.commit(*where, first.epoch, 7, 5)
        told = await export.groups("flow_samples")
        assert [(each.name, each.committed) for each in told.groups] == [("lake", 4)]
        await export.close_group(*where)
        with pytest.raises(UnknownGroupError):
            await export.commit(*where, 2, 7, 5)

    play(scenario)


def test_all_logs_of_the_protocol_have_a_name() -> None:
    assert sorted(LOGS.values()) == [number for number in pb.ExportLog.values() if number]
