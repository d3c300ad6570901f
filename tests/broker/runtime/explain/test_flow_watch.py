"""Pictures of stopped connections in a cluster of three nodes, and their watchers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import pytest
from tests.broker.runtime.flow_world import World, account_of, bring

from headrace_broker.catalog.command import DeleteQueue
from headrace_broker.model import limits
from headrace_broker.model.flow import (
    BLOCKED,
    BLOCKING,
    LIMIT_COMMANDS,
    LIMIT_MEMORY,
    LIMIT_QUEUE,
    LIMIT_WATERMARK,
)
from headrace_broker.model.flow_status import AlarmStatus
from headrace_broker.runtime.explain import flow_collector as flow_lookout
from headrace_broker.runtime.explain.flow_collector import FlowCollector, FlowSnapshot
from headrace_broker.runtime.explain.flow_watch import FlowWatch, WatchFailedError

PATIENCE_MS = 10_000


@pytest.fixture
def world() -> World:
    return World()


def watch(
    world: World,
    work: Callable[[FlowCollector], Coroutine[Any, Any, Any]],
    node: int = 1,
    patience_ms: int = PATIENCE_MS,
) -> Any:
    """Work with the lookout of a node."""

    async def session() -> Any:
        lookout = FlowCollector(world.nodes[node].report, world.catalog, patience_ms / 1000)
        try:
            async with asyncio.timeout(20):
                return await work(lookout)
        finally:
            lookout.close()

    return asyncio.run(session())


def look(world: World, node: int = 1) -> FlowSnapshot:
    picture: FlowSnapshot = watch(world, lambda lookout: lookout.poll(), node)
    return picture


@pytest.mark.parametrize("node", [1, 2, 3])
def test_every_node_sees_who_is_stopped_where_and_by_whom(world: World, node: int) -> None:
    host = world.lead(2, "orders")
    group = host.queue.group
    host.machine.saturated = True
    victim, culprit = world.connect(1, 5), world.connect(3, 9, "batch")
    world.connect(2, 7)  # which runs
    bring(victim, host, 1, 100)
    bring(culprit, host, 9, 900)
    world.pass_time(1)
    victim.flow.stop(LIMIT_WATERMARK, group, world.now)
    picture = look(world, node)
    assert set(picture.states) == {("connection", victim.id), ("queue", str(group))}
    found = picture.states["connection", victim.id]
    assert (found.state, found.limit, found.group) == ("flow", "watermark", group)
    assert [cause.user for cause in found.causes] == ["batch", "app"]
    found = picture.states["queue", str(group)]
    assert found.queue is not None
    assert (found.state, found.limit, found.queue.node) == ("flow", "watermark", "n2")
    assert (found.stopped_count, found.causes[0].name) == (1, culprit.name)
    assert (picture.missing, picture.left_out) == ((), 0)


def test_who_filled_a_queue_is_its_first_cause_also_when_it_is_gone(world: World) -> None:
    host = world.lead(2, "orders")
    victim, culprit = world.connect(1, 5), world.connect(3, 9, "batch")
    bring(culprit, host, 99, 9900)
    world.nodes[3].ledger.close(account_of(culprit))
    world.pass_time(60)
    bring(victim, host, 1, 100)
    host.machine.saturated, host.machine.ready_count = True, 100
    host.machine.ready_bytes = 10_000
    world.pass_time(1)
    victim.flow.stop(LIMIT_WATERMARK, host.queue.group, world.now)
    for found in look(world).states.values():
        assert [(cause.user, cause.gone) for cause in found.causes] == [
            ("batch", True),
            ("app", False),
        ]
        assert [cause.share for cause in found.causes] == [0.99, 0.01]


def test_a_queue_that_only_stops_somebody_is_seen_with_the_limit_that_does(world: World) -> None:
    host = world.lead(3, "q")
    host.machine.ready_count = 7
    group = host.queue.group
    for number, limit in ((5, LIMIT_QUEUE), (6, LIMIT_QUEUE), (7, LIMIT_COMMANDS)):
        world.connect(1, number).flow.stop(limit, group, world.now)

    async def work(lookout: FlowCollector) -> FlowSnapshot:
        first = await lookout.poll()
        state = first.states["queue", str(group)]
        assert state.queue is not None
        assert state.queue.node == ""  # its leader was not asked about it yet
        return await lookout.poll()

    picture = watch(world, work)
    state = picture.states["queue", str(group)]
    assert (state.limit, state.stopped_count) == ("queue-pending-bytes", 3)
    assert (state.queue.node, state.queue.ready) == ("n3", 7)
    world.do(DeleteQueue("/", "q", 0))
    assert ("queue", str(group)) not in look(world).states


def test_who_went_on_a_moment_ago_is_still_in_flow(world: World) -> None:
    victim = world.connect(2, 5)
    victim.flow.stop(LIMIT_COMMANDS, 0, world.now)
    world.pass_time(0.1)
    victim.flow.go(world.now)
    world.pass_time(0.5)
    assert look(world).states["connection", victim.id].limit == "queue-commands"
    world.pass_time(1)
    assert look(world).states == {}


def test_an_alarm_has_its_reason_and_the_heaviest_as_causes(world: World) -> None:
    host = world.lead(2, "q")
    heavy = world.connect(3, 9, "batch")
    bring(heavy, host, 5, 5000, kept=5)
    blocked, blocking = world.connect(1, 5), world.connect(1, 6)
    blocked.state, blocking.state = BLOCKED, BLOCKING
    blocked.flow.stop(LIMIT_MEMORY, 0, world.now)
    for node in world.nodes.values():
        node.facts.alarms = lambda: [AlarmStatus("n2", "memory-alarm", "low on memory: n2")]
    states = look(world).states
    for info, state in ((blocked, "blocked"), (blocking, "blocking")):
        found = states["connection", info.id]
        assert (found.state, found.limit, found.text) == (
            state,
            "memory-alarm",
            "low on memory: n2",
        )
        assert [cause.user for cause in found.causes] == ["batch"]


def test_a_node_that_does_not_answer_is_named_and_forgotten_after_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = world.connect(2, 5)
    stopped.flow.stop(LIMIT_COMMANDS, 0, world.now)

    async def work(lookout: FlowCollector) -> None:
        now = 0.0
        monkeypatch.setattr(lookout, "_now", lambda: now)
        assert (await lookout.poll()).missing == ()
        world.links.down = {2, 3}
        now = 2.0
        picture = await lookout.poll()
        assert picture.missing == ("n2", "n3")
        assert ("connection", stopped.id) in picture.states  # as it was
        now = limits.WATCH_STALE_MS / 1000 + 0.1
        assert (await lookout.poll()).states == {}
        world.links.down = set()
        picture = await lookout.poll()
        assert (picture.missing, len(picture.states)) == ((), 1)

    watch(world, work, patience_ms=500)


def test_a_node_that_hangs_delays_nobody_for_long_and_is_asked_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = world.connect(1, 5)
    stopped.flow.stop(LIMIT_COMMANDS, 0, world.now)
    report = world.nodes[1].report
    asked: list[int] = []
    answer = asyncio.Event()
    rows_of = report.rows_of

    async def slow(peer: int, *more: Any) -> Any:
        if peer == 3:
            asked.append(peer)
            await answer.wait()
        return await rows_of(peer, *more)

    monkeypatch.setattr(report, "rows_of", slow)

    async def work(lookout: FlowCollector) -> None:
        monkeypatch.setattr(lookout, "_now", lambda: 0.0)
        for _ in range(3):
            picture = await lookout.poll()
            assert (picture.missing, len(picture.states)) == (("n3",), 1)
        assert asked == [3]
        answer.set()
        assert (await lookout.poll()).missing == ()

    watch(world, work, patience_ms=300)


def test_more_than_the_bound_is_counted_and_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_lookout, "FLOW_ROWS_MAX", 2)
    for number in range(5, 9):
        world.connect(2, number).flow.stop(LIMIT_COMMANDS, 0, world.now)
    picture = look(world)
    assert (len(picture.states), picture.left_out) == (2, 1)


# Watching


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def session() -> None:
        async with asyncio.timeout(20):
            await scenario

    asyncio.run(session())


def test_watchers_share_one_picture_and_are_told_of_changes_only(world: World) -> None:
    async def scenario() -> None:
        watch = FlowWatch(world.nodes[1].report, world.catalog, look_ms=1, patience_ms=PATIENCE_MS)
        stopped = world.connect(2, 5)
        async with watch.watching(), watch.watching():
            assert watch.picture.states == {}
            news = watch.news
            stopped.flow.stop(LIMIT_COMMANDS, 0, world.now)
            await news.wait()
            assert list(watch.picture.states) == [("connection", stopped.id)]
            news, picture = watch.news, watch.picture
            while watch.picture is picture:  # another look, with other figures
                world.now += 1000
                await asyncio.sleep(0)
            assert not news.is_set()
            world.now += 1
            stopped.flow.go(world.now)
            world.pass_time(2)
            await news.wait()
            assert watch.picture.states == {}

    run(scenario())


def test_nobody_looks_while_nobody_watches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look_at = FlowCollector.poll

    async def counted(lookout: FlowCollector) -> FlowSnapshot:
        nonlocal looks
        looks += 1
        return await look_at(lookout)

    monkeypatch.setattr(FlowCollector, "poll", counted)

    async def scenario() -> None:
        watch = FlowWatch(world.nodes[1].report, world.catalog, look_ms=1, patience_ms=PATIENCE_MS)
        assert looks == 0
        async with watch.watching():
            assert looks >= 1
        await asyncio.sleep(0)
        before = looks
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert not {"flow-watch", "flow-question"} & names
        async with watch.watching():
            assert looks == before + 1

    run(scenario())


def test_a_watch_that_fails_says_so_and_the_next_begins_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True
    look_at = FlowCollector.poll

    async def look(lookout: FlowCollector) -> FlowSnapshot:
        if broken:
            raise ValueError("a fault")
        return await look_at(lookout)

    monkeypatch.setattr(FlowCollector, "poll", look)

    async def scenario() -> None:
        nonlocal broken
        watch = FlowWatch(world.nodes[1].report, world.catalog, look_ms=1, patience_ms=PATIENCE_MS)
        with pytest.raises(WatchFailedError):
            async with watch.watching():
                raise AssertionError("there is no picture")
        broken = False
        async with watch.watching():
            assert watch.picture.states == {}
            news, broken = watch.news, True
            await news.wait()
            with pytest.raises(WatchFailedError):
                assert watch.picture

    run(scenario())


def test_nobody_s_name_is_on_what_is_asked_for_all_who_watch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    who: ContextVar[str] = ContextVar("who", default="nobody")
    names: list[str] = []
    report = world.nodes[1].report
    rows_of = report.rows_of

    async def asked(peer: int, *more: Any) -> Any:
        names.append(who.get())
        return await rows_of(peer, *more)

    monkeypatch.setattr(report, "rows_of", asked)

    async def scenario() -> None:
        who.set("root")
        watch = FlowWatch(report, world.catalog, look_ms=1, patience_ms=PATIENCE_MS)
        async with watch.watching():
            assert set(names) == {"nobody"}

    run(scenario())
