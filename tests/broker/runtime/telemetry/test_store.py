"""Telemetry logs of a node whose disk fails, or that has none."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace_broker.codecs.column_block import INT64, Schema, encode_columns
from headrace_broker.runtime.export.log import Shard, ShardUnavailableError, UnknownShardError
from headrace_broker.runtime.telemetry.question import AskRows, AskShard
from headrace_broker.runtime.telemetry.shard_log import Bounds
from headrace_broker.runtime.telemetry.store import Place, TelemetryStore
from headrace_simulation.memory_files import MemoryFiles

SCHEMA = Schema(1, (("number", INT64),))
BOUNDS = Bounds(16 << 20, 1 << 40)


def store_on(files: MemoryFiles, *names: str) -> TelemetryStore:
    schemas, bounds = dict.fromkeys(names, SCHEMA), dict.fromkeys(names, BOUNDS)
    return TelemetryStore(Place("n1", "h:1"), "/t", schemas, bounds, files, lambda: 1000)


def run(
    store: TelemetryStore, scenario: Callable[[TelemetryStore], Coroutine[Any, Any, None]]
) -> None:
    async def whole() -> None:
        await store.start()
        await scenario(store)
        await store.stop()

    asyncio.run(whole())


def failing(path_part: str) -> Callable[[str, str], None]:
    def fault(call: str, path: str) -> None:
        if path_part in path:
            raise OSError(errno.ENOSPC, "no space left on device", path)

    return fault


async def note(store: TelemetryStore, *names: str) -> None:
    block = encode_columns(SCHEMA, [[1, 2]])
    await store.note(1000, lambda: {name: [block] for name in names})


def test_log_whose_disk_fails_stops_no_other() -> None:
    files = MemoryFiles()

    async def scenario(store: TelemetryStore) -> None:
        files.fault = failing("/t/a")
        await note(store, "a", "b")
        found = [await store.answer(AskShard(name)) for name in ("a", "b")]
        assert [shard.next_index for shard in found if isinstance(shard, Shard)] == [0, 2]
        files.fault = lambda call, path: None
        await note(store, "a", "b")
        shard = await store.answer(AskShard("a"))
        assert isinstance(shard, Shard)
        assert shard.next_index == 2

    run(store_on(files, "a", "b"), scenario)


def test_log_that_cannot_be_opened_is_unavailable_and_says_why() -> None:
    files = MemoryFiles()
    files.fault = failing("/t/a")

    async def scenario(store: TelemetryStore) -> None:
        with pytest.raises(ShardUnavailableError, match="no space left"):
            await store.answer(AskShard("a"))

    run(store_on(files, "a"), scenario)


def test_log_that_cannot_be_opened_takes_no_rows_of_another() -> None:
    files = MemoryFiles()
    files.fault = failing("/t/a")

    async def scenario(store: TelemetryStore) -> None:
        await note(store, "b")
        shard = await store.answer(AskShard("b"))
        assert isinstance(shard, Shard)
        assert shard.next_index == 2

    run(store_on(files, "a", "b"), scenario)


def test_log_drops_what_is_too_old_while_it_cannot_be_appended_to() -> None:
    files, now_ms = MemoryFiles(), [1000]
    bounds = {"a": Bounds(16 << 20, 16_000)}
    store = TelemetryStore(
        Place("n1", "h:1"), "/t", {"a": SCHEMA}, bounds, files, lambda: now_ms[0]
    )

    async def scenario(store: TelemetryStore) -> None:
        block = encode_columns(SCHEMA, [[1, 2]])
        for _ in range(3):
            await store.note(now_ms[0], lambda: {"a": [block]})
            now_ms[0] += 1000  # after which a file is full
        files.capacity_bytes = 1
        now_ms[0] += 60_000
        await store.note(now_ms[0], lambda: {"a": [block]})
        shard = await store.answer(AskShard("a"))
        assert isinstance(shard, Shard)
        assert (shard.first_index, shard.next_index) == (6, 6)

    run(store, scenario)


def test_node_without_telemetry_has_no_shard() -> None:
    async def scenario(store: TelemetryStore) -> None:
        for question in (AskShard("a"), AskRows("a", 1, 0, 1)):
            with pytest.raises(UnknownShardError):
                await store.answer(question)

    run(store_on(MemoryFiles()), scenario)
