"""Memory and disk of a node, and what they bring about."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace_broker.catalog.event import ParameterChanged
from headrace_broker.config.configuration import load_config
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.limits import ALARM_CACHE_BYTES
from headrace_broker.runtime.alarm.alarms import AlarmBoard
from headrace_broker.runtime.alarm.memory_paging import MemoryPaging, Trimmer
from headrace_broker.runtime.intake.flow_settings import FlowSettings
from headrace_broker.runtime.node.resources import Resources

MIB = 1 << 20
CACHE = 64 * MIB


class Logs:
    """The replicated logs."""

    disk_full = False
    disk_behind = False

    def __init__(self) -> None:
        self.cache_bytes: list[int] = []

    def set_cache_bytes(self, count: int) -> None:
        self.cache_bytes.append(count)


class World:
    """A node in a control group of 1000 MiB."""

    def __init__(self, root: Path) -> None:
        self.group = root / "sys/fs/cgroup"
        self.group.mkdir(parents=True)
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/meminfo").write_text("MemTotal: 99999999 kB\n")
        (root / "proc/self/cgroup").write_text("0::/\n")
        (root / "proc/self/mountinfo").write_text("1 1 0:1 / /sys/fs/cgroup rw - cgroup2 c rw\n")
        (self.group / "memory.max").write_text(str(1000 * MIB))
        (self.group / "memory.stat").write_text("anon 0\n")
        self.uses(100)
        environment = {
            "HEADRACE_NODE_ID": "1",
            "HEADRACE_NODE_NAME": "n1",
            "HEADRACE_NODE_DATA_DIR": str(root),
            "HEADRACE_CLUSTER_NODES": "1=n1@127.0.0.1:1",
            "HEADRACE_LIMITS_DISK_FREE_BYTES_MIN": "0",
            "HEADRACE_LOG_CACHE_BYTES": str(CACHE),
        }
        config = load_config(None, environment)
        self.logs = Logs()
        self.limits = FlowLimits()
        self.settings = FlowSettings(self.limits, config.limits.flow())
        self.alarms = AlarmBoard(1, {1: "n1"}, lambda: 1, lambda peer, payload: True)
        self.trims = 0
        self.resources = Resources(
            config, self.logs, self.settings, self.alarms, root, self.count_trim
        )

    def count_trim(self) -> None:
        self.trims += 1

    def uses(self, mib: int) -> None:
        (self.group / "memory.current").write_text(str(mib * MIB))

    def poll(self, mib: int) -> None:
        self.uses(mib)
        self.resources.memory.poll()

    def set(self, name: str, value: Any) -> None:
        self.settings.on_events([ParameterChanged(name, value)])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_scarce_memory_shrinks_cache_and_limits_and_an_alarm_blocks(world: World) -> None:
    world.poll(100)
    world.poll(550)
    assert world.logs.cache_bytes == [CACHE // 4]
    assert world.trims == 1
    assert (world.limits.share, world.alarms.blocked.now.is_on) == (55, False)
    world.poll(600)
    assert world.logs.cache_bytes == [CACHE // 4, ALARM_CACHE_BYTES]
    assert (world.limits.share, world.alarms.blocked.now.is_on) == (10, True)
    world.set("memory-high-watermark", "0.9")
    assert (world.limits.share, world.alarms.blocked.now.is_on) == (75, False)
    world.set("memory-paging-watermark", 800 * MIB)
    assert world.logs.cache_bytes[-1] == CACHE
    assert world.limits.share == 100


def on(world: World) -> tuple[bool, bool]:
    return world.alarms.own.disk_alarm, world.alarms.blocked.now.is_on


def test_a_limit_of_the_disk_may_be_a_multiple_of_the_memory(world: World) -> None:
    async def work() -> None:
        world.set("disk-free-limit", "1.5")
        world.resources.start()
        assert world.resources.disk.limit == 1500 * MIB
        assert world.alarms.own.disk_limit == 1500 * MIB
        world.set("disk-free-limit", 1 << 50)
        assert on(world) == (True, True)
        world.set("disk-free-limit", None)
        assert on(world) == (False, False)
        world.resources.stop()

    asyncio.run(work())


def test_a_system_without_proc_has_no_alarms_of_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path / "a")
    config = load_config(
        None,
        {
            "HEADRACE_NODE_ID": "1",
            "HEADRACE_NODE_NAME": "n1",
            "HEADRACE_NODE_DATA_DIR": "x",
            "HEADRACE_CLUSTER_NODES": "1=n1@127.0.0.1:1",
        },
    )
    resources = Resources(config, world.logs, world.settings, world.alarms, tmp_path / "b")
    resources.memory.poll()
    assert resources.memory.stage == 0
    assert "memory use cannot be read" in caplog.text


def test_memory_is_given_back_when_a_stage_begins_and_now_and_then(world: World) -> None:
    trims: list[int] = []
    paging = MemoryPaging(world.logs, CACHE, lambda: trims.append(1))
    for stage, now_ms, count in (
        (0, 10_000, 0),
        (1, 10_000, 1),
        (1, 14_999, 1),
        (1, 15_000, 2),
        (2, 15_001, 3),
        (1, 15_002, 3),
        (0, 60_000, 3),
    ):
        paging.apply(stage, now_ms)
        assert len(trims) == count
    assert world.logs.cache_bytes == [CACHE // 4, ALARM_CACHE_BYTES, CACHE // 4, CACHE]


def test_trimming_runs_beside_the_loop_and_once_at_a_time() -> None:
    async def work() -> None:
        trimmer = Trimmer()
        trimmer.start()
        running = trimmer._running
        trimmer.start()
        assert trimmer._running is running
        if running is not None:
            assert await running in (0, 1)

    asyncio.run(work())
