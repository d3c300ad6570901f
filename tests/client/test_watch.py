"""Watches: what stands, what changes, and nodes that are lost meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from headrace_client import AccessRefusedError, watch
from headrace_client.flow_value import BLOCKED, CLEAR, RELIEF
from headrace_protos.broker.v1 import flow_pb2 as flow


def alarm(node: str, stage: Any, kind: Any = flow.MEMORY, used: int = 1) -> flow.Alarm:
    return flow.Alarm(node=node, kind=kind, stage=stage, used_octets=used, reason="scarce")


def answer(*alarms: flow.Alarm) -> flow.WatchAlarmsResponse:
    return flow.WatchAlarmsResponse(alarms=alarms)


def test_a_watch_tells_what_stands_and_each_change(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.alarms = [alarm("n1", flow.ALARM_RELIEF, used=7)]
        async with client.watch_alarms() as watch:
            first = await anext(watch)
            assert (first.node, first.kind, first.stage) == ("n1", "memory", RELIEF)
            assert (first.used_octets, first.reason) == (7, "scarce")
            assert watch.is_complete
            assert watch.current == (first,)
            for stage, expected in ((flow.ALARM_BLOCKED, BLOCKED), (flow.ALARM_CLEAR, CLEAR)):
                broker.watches[0].put_nowait(answer(alarm("n1", stage)))
                assert (await anext(watch)).stage == expected
            assert watch.current == ()
        assert [each async for each in watch] == []

    play(scenario)


def test_a_snapshot_is_taken_without_waiting_for_a_change(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        async with client.watch_alarms() as watch:
            assert await watch.snapshot() == ()
        broker.alarms = [
            alarm("n1", flow.ALARM_BLOCKED),
            alarm("n2", flow.ALARM_BLOCKED, flow.DISK),
        ]
        async with client.watch_alarms() as watch:
            found = await watch.snapshot()
            assert [(each.node, each.kind) for each in found] == [("n1", "memory"), ("n2", "disk")]

    play(scenario)


def test_after_a_loss_only_the_difference_is_told(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        first.alarms = [alarm(name, flow.ALARM_BLOCKED) for name in ("a", "b", "c")]
        second.alarms = [
            alarm("a", flow.ALARM_BLOCKED, used=9),
            alarm("c", flow.ALARM_RELIEF),
            alarm("d", flow.ALARM_BLOCKED),
        ]
        async with client.watch_alarms() as watch:
            assert {(await anext(watch)).node for _ in range(3)} == {"a", "b", "c"}
            await first.stop()
            found = [await anext(watch) for _ in range(3)]
            assert [(each.node, each.stage) for each in found] == [
                ("c", RELIEF),
                ("d", BLOCKED),
                ("b", CLEAR),
            ]
            assert sorted(each.node for each in watch.current) == ["a", "c", "d"]

    play_two(scenario)


def test_a_node_that_is_silent_is_left(play_two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WATCH_HEARTBEAT_SECONDS", 0.02)

    async def scenario(first: Any, second: Any, client: Any) -> None:
        first.beat_ms = 0  # not even a snapshot
        second.alarms = [alarm("n2", flow.ALARM_BLOCKED)]
        second.beat_ms = 5000
        async with client.watch_alarms() as watch:
            assert (await anext(watch)).node == "n2"

    play_two(scenario)


def test_heartbeats_keep_a_watch_where_it_is(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.beat_ms = 400
        async with client.watch_alarms() as watch:
            await watch.snapshot()
            waiting = asyncio.create_task(anext(watch))
            for _ in range(14):  # longer than a silence may last
                await asyncio.sleep(0.1)
                broker.watches[-1].put_nowait(answer())
            broker.watches[-1].put_nowait(answer(alarm("n1", flow.ALARM_BLOCKED)))
            assert (await waiting).node == "n1"

    play(scenario)


def test_to_give_up_waiting_loses_nothing(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        async with client.watch_alarms() as watch:
            await watch.snapshot()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(watch)
            broker.alarms = [alarm("n1", flow.ALARM_BLOCKED)]
            assert (await anext(watch)).node == "n1"
            assert len(broker.watches) == 2

    play(scenario)


def test_who_may_not_look_is_told_so(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.failure = (grpc.StatusCode.PERMISSION_DENIED, "tags", "ACCESS_REFUSED")
        watch = client.watch_alarms()
        with pytest.raises(AccessRefusedError):
            await anext(watch)
        assert [each async for each in watch] == []
        broker.failure = (grpc.StatusCode.RESOURCE_EXHAUSTED, "full", "TOO_MANY_WATCHES")
        waiting = asyncio.create_task(client.watch_alarms().snapshot())
        await asyncio.sleep(0)
        broker.failure = None
        assert await waiting == ()

    play(scenario)


def test_flow_control_is_watched_with_its_causes(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        async with client.flow.watch(vhost="/", queue="q", queues=False) as watch:
            waiting = asyncio.create_task(anext(watch))
            await broker.until(lambda: broker.watches)
            [(_, request)] = [call for call in broker.calls if call[0] == "WatchFlow"]
            assert (request.vhost, request.queue, request.without_queues) == ("/", "q", True)
            connection = flow.StoppedConnection(id="c1", name="c", state="flow", limit="watermark")
            connection.stopped.last_10s = 0.5
            change = flow.FlowChange(connection=connection, state="flow", limit="watermark")
            change.causes.add(name="culprit", share=0.9)
            broker.watches[0].put_nowait(flow.WatchFlowResponse(changes=[change]))
            found = await waiting
            assert (found.state, found.limit, found.queue) == ("flow", "watermark", None)
            assert found.connection.stopped.last_10s == 0.5
            assert (found.causes[0].name, found.causes[0].share) == ("culprit", 0.9)
            done = flow.FlowChange(queue=flow.StoppingQueue(vhost="/", name="q"), state="running")
            broker.watches[0].put_nowait(flow.WatchFlowResponse(changes=[done]))
            found = await anext(watch)
            assert (found.key, found.state) == (("queue", "/", "q"), "running")
            assert [each.key for each in watch.current] == [("connection", "c1")]

    play(scenario)
