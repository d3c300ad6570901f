"""Resource states by node and resource, with the stages before an alarm."""

from __future__ import annotations

import asyncio

from headrace_broker.flow.alarm import STAGE_ALARM, STAGE_PAGING
from headrace_broker.runtime.alarm.alarm_watch import AlarmWatch
from headrace_broker.runtime.alarm.alarms import AlarmBoard

MIB = 1 << 20


class World:
    """A board of which this node's own report is set, and a clock."""

    def __init__(self) -> None:
        self.now_ms = 1000
        self.board = AlarmBoard(1, {1: "n1"}, lambda: 1, lambda peer, payload: True, lambda: 0)
        self.watch = AlarmWatch(self.board, {1: "n1"}.__getitem__, lambda: self.now_ms)

    def memory(self, stage: int) -> None:
        own = self.board.own
        own.memory_used, own.memory_limit, own.memory_total = 550 * MIB, 600 * MIB, 1000 * MIB
        own.memory_stage = stage
        self.board.announce()


def test_stages_have_figures_reason_and_the_time_since_when() -> None:
    world = World()
    assert world.watch.alarms_on() == {}
    world.memory(STAGE_PAGING)
    [found] = world.watch.alarms_on().values()
    assert found[:8] == ("n1", "memory", STAGE_PAGING, 1000, 550 * MIB, 1000 * MIB, 0, 600 * MIB)
    assert found.reason == (
        "paging: node n1 uses 550 MiB of 1000 MiB; publishers are blocked from 600 MiB on"
    )
    world.now_ms = 2000
    assert world.watch.alarms_on()["n1", "memory"].since_ms == 1000
    world.memory(STAGE_ALARM)
    [found] = world.watch.alarms_on().values()
    assert (found.stage, found.since_ms) == (STAGE_ALARM, 2000)
    assert found.reason.startswith("low on memory: node n1 uses 550 MiB")
    world.memory(0)
    assert world.watch.alarms_on() == {}
    figures = (550 * MIB, 1000 * MIB, 0, 600 * MIB)
    assert world.watch.clear(("n1", "memory"))[2:8] == (0, 2000, *figures)
    assert world.watch.clear(("gone", "disk"))[:4] == ("gone", "disk", 0, 2000)


def test_a_disk_is_scarce_or_not() -> None:
    world = World()
    own = world.board.own
    own.disk_alarm, own.disk_free, own.disk_limit = True, 5 * MIB, 50 * MIB
    [found] = world.watch.alarms_on().values()
    assert found[:8] == ("n1", "disk", STAGE_ALARM, 1000, 0, 0, 5 * MIB, 50 * MIB)
    assert "5 MiB free" in found.reason


def test_each_stage_is_news_at_once() -> None:
    async def scenario() -> None:
        world = World()
        news = world.watch.news
        world.memory(STAGE_PAGING)  # which is no alarm yet
        assert news.is_set()
        news = world.watch.news
        world.board.announce()
        assert not news.is_set()
        world.memory(STAGE_ALARM)
        assert news.is_set()
        assert not world.watch.news.is_set()

    asyncio.run(scenario())
