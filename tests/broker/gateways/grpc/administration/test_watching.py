"""Streams of changes over gRPC: whole, in order of cause, bounded, and ended well."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from tests.broker.gateways.grpc.administration.refusal import RefusalError
from tests.broker.runtime.flow_world import bring

from headrace_broker.catalog.access import Caller
from headrace_broker.catalog.command import DeleteUser, PutPermission, PutUser
from headrace_broker.catalog.viewer import EVERYBODY, Viewer
from headrace_broker.flow.alarm import STAGE_ALARM, STAGE_PAGING
from headrace_broker.gateways.grpc.flow import alarms, watching
from headrace_broker.gateways.grpc.flow import watching_flow as flow_watching
from headrace_broker.gateways.grpc.flow.watching_flow import FlowNotifier, FlowWatching
from headrace_broker.gateways.grpc.server.errors import CallError
from headrace_broker.model.definition import Permission, User
from headrace_broker.model.flow import LIMIT_COMMANDS, LIMIT_QUEUE, LIMIT_WATERMARK
from headrace_broker.model.flow_status import ActivityStatus, CauseStatus, ConnectionFlow, QueueFlow
from headrace_broker.runtime.alarm.alarm_watch import AlarmWatch
from headrace_broker.runtime.explain.flow_collector import FlowSnapshot, FlowState
from headrace_protos.broker.v1 import flow_pb2 as flow


async def next_change(stream: Any) -> Any:
    """The next message that is no heartbeat."""
    while True:
        message = await stream.read()
        assert message, f"ended: {await stream.details()}"
        if message.changes or message.snapshot_complete:
            return message


def test_a_watch_begins_with_what_is_stopped_and_tells_each_change(serve: Any, world: Any) -> None:
    host = world.lead(2, "orders")
    group = host.queue.group
    host.machine.saturated = True
    victim, culprit = world.connect(1, 5, "app"), world.connect(3, 9, "alice")
    bring(victim, host, 1, 100)
    bring(culprit, host, 9, 900)
    world.pass_time(1)
    victim.flow.stop(LIMIT_WATERMARK, group, world.now)

    async def scenario(client: Any) -> None:
        stream = client.watch("WatchFlow", flow.WatchFlowRequest())
        message = await next_change(stream)
        assert message.snapshot_complete
        assert message.heartbeat_ms == 5000
        connection, queue = message.changes
        assert (connection.connection.id, connection.state) == (victim.id, "flow")
        assert (connection.limit, connection.connection.queue) == ("watermark", "orders")
        assert [cause.user for cause in connection.causes] == ["alice", "app"]
        assert (queue.queue.name, queue.queue.node, queue.limit) == ("orders", "n2", "watermark")
        assert queue.queue.connections_stopped == 1
        victim.flow.go(world.now)
        host.machine.saturated = False
        world.pass_time(5)
        message = await next_change(stream)
        assert {change.state for change in message.changes} == {"running"}
        ended = [change.WhichOneof("subject") for change in message.changes]
        while sorted(ended) != ["connection", "queue"]:
            message = await next_change(stream)
            ended += [change.WhichOneof("subject") for change in message.changes]
        victim.flow.stop(LIMIT_COMMANDS, 0, world.now)
        message = await next_change(stream)
        assert not message.snapshot_complete
        assert [change.state for change in message.changes] == ["flow"]
        stream.cancel()

    serve(scenario)


def test_a_watch_can_be_of_one_vhost_or_queue_or_kind(serve: Any, world: Any) -> None:
    first, second = world.lead(1, "a"), world.lead(1, "b")
    for number, host in ((5, first), (6, second)):
        world.connect(1, number, "app").flow.stop(LIMIT_QUEUE, host.queue.group, world.now)

    async def scenario(client: Any) -> None:
        async def told(**fields: Any) -> set[str]:
            stream = client.watch("WatchFlow", flow.WatchFlowRequest(**fields))
            message = await next_change(stream)
            stream.cancel()
            return {change.queue.name or change.connection.queue for change in message.changes} | {
                str(change.WhichOneof("subject")) for change in message.changes
            }

        assert await told() == {"a", "b", "queue", "connection"}
        assert await told(vhost="/", queue="a") == {"a", "queue", "connection"}
        assert await told(vhost="/", without_queues=True) == {"a", "b", "connection"}
        assert await told(without_connections=True) == {"a", "b", "queue"}

    serve(scenario)


def test_a_watcher_sees_what_they_may_see(serve: Any, world: Any) -> None:
    host = world.lead(1, "q")
    for number, user in ((5, "app"), (6, "alice")):
        world.connect(1, number, user).flow.stop(LIMIT_QUEUE, host.queue.group, world.now)

    async def scenario(client: Any) -> None:
        async def told(user: str) -> list[str]:
            stream = client.watch("WatchFlow", flow.WatchFlowRequest(), user=user)
            message = await next_change(stream)
            stream.cancel()
            return [change.connection.user or change.queue.name for change in message.changes]

        assert sorted(await told("mon")) == ["alice", "app", "q"]
        assert await told("alice") == ["alice"]
        client.node.do(PutPermission(Permission("alice", "/", "", "", "")))
        assert sorted(await told("alice")) == ["alice", "q"]
        assert await told("pol") == []

    serve(scenario)


def test_a_watch_names_nothing_of_a_vhost_whose_permission_is_gone(world: Any) -> None:
    host = world.lead(1, "orders")
    activity = ActivityStatus("watermark", host.queue.group, 5, (1.0, 1.0, 1.0))
    row = ConnectionFlow("n1/1/5", "a -> b", "", "n1", "app", "/", "flow", activity)
    cause = CauseStatus("n2/1/1", "connection", "c -> d", "n2", "eve", "/", "orders", 9, 9, 1, 1, 1)
    group = host.queue.group
    queue = QueueFlow("/", "orders", group, "n1")
    states = {
        ("connection", row.id): FlowState("flow", "watermark", group, "", row, causes=(cause,)),
        ("queue", str(group)): FlowState("flow", "watermark", group, queue=queue),
    }
    seen: set[str] = {"/"}
    viewer = Viewer("app", False, lambda vhost: vhost in seen)
    notifier = FlowNotifier(flow.WatchFlowRequest(), world.catalog)
    told = notifier.news(FlowSnapshot(states), viewer)
    assert told is not None
    assert {change.WhichOneof("subject") for change in told.changes} == {"connection", "queue"}
    seen.clear()
    told = notifier.news(FlowSnapshot(states), viewer)
    assert told is not None
    [change] = told.changes
    shown = change.connection
    assert (shown.id, shown.vhost, shown.queue, change.limit) == (row.id, "", "", "watermark")
    assert list(change.causes) == []
    assert notifier.news(FlowSnapshot(states), viewer) is None
    named = FlowNotifier(flow.WatchFlowRequest(vhost="/"), world.catalog)
    nothing = named.news(FlowSnapshot(states), viewer)
    assert nothing is not None
    assert list(nothing.changes) == []


@pytest.mark.parametrize(
    ("request_", "code", "field"),
    [
        (flow.WatchFlowRequest(vhost="v"), "NOT_FOUND", "vhost"),
        (flow.WatchFlowRequest(vhost="v" * 256), "INVALID_ARGUMENT", "vhost"),
        (flow.WatchFlowRequest(queue="q"), "INVALID_ARGUMENT", "vhost"),
        (flow.WatchFlowRequest(vhost="/", queue="q"), "NOT_FOUND", "queue"),
        (
            flow.WatchFlowRequest(without_queues=True, without_connections=True),
            "INVALID_ARGUMENT",
            "without_queues",
        ),
    ],
)
def test_a_watch_of_nothing_is_refused(serve: Any, request_: Any, code: str, field: str) -> None:
    async def scenario(client: Any) -> None:
        error = await ended(client.watch("WatchFlow", request_))
        assert (error.code, error.fields[0][0]) == (code, field)

    serve(scenario)


async def ended(stream: Any) -> Any:
    """Return the status by which the node ended a stream."""
    try:
        while await stream.read():
            pass
    except grpc.aio.AioRpcError as error:
        return RefusalError(error)
    raise AssertionError("the stream ended without an error")


@pytest.mark.parametrize("method", ["WatchFlow", "WatchAlarms"])
def test_a_watch_takes_a_tag_and_ends_with_its_user(serve: Any, world: Any, method: str) -> None:
    request = getattr(flow, f"{method}Request")()

    async def scenario(client: Any) -> None:
        assert (await ended(client.watch(method, request, user="app"))).code == "PERMISSION_DENIED"
        stream = client.watch(method, request, user="mon")
        await stream.read()
        client.node.do(PutUser(User("mon", b"s", b"h", ())))
        world.connect(1, 5, "app").flow.stop(LIMIT_COMMANDS, 0, world.now)
        assert (await ended(stream)).code == "PERMISSION_DENIED"
        stream = client.watch(method, request, user="alice")
        await stream.read()
        client.node.do(DeleteUser("alice"))
        world.connect(1, 6, "app").flow.stop(LIMIT_COMMANDS, 0, world.now)
        assert (await ended(stream)).code == "UNAUTHENTICATED"

    serve(scenario)


def test_a_watch_ends_whose_client_has_taken_nothing(serve: Any, monkeypatch: Any) -> None:
    begun = asyncio.Event()

    async def much(*_: Any) -> Any:
        while True:
            begun.set()
            yield flow.WatchFlowResponse(missing_nodes=["n" * (1 << 20)])

    monkeypatch.setattr(FlowWatching, "stream", much)

    async def scenario(client: Any) -> None:
        stream = client.watch("WatchFlow", flow.WatchFlowRequest(), user="mon")
        await begun.wait()
        client.node.do(PutUser(User("mon", b"s", b"h", ())))
        assert (await ended(stream)).code == "PERMISSION_DENIED"

    serve(scenario)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("WatchFlow", flow.WatchFlowRequest(without_queues=True)),
        ("WatchAlarms", flow.WatchAlarmsRequest.FromString(b"\x08\x01")),  # a later version's
    ],
)
def test_a_watch_takes_no_room_of_the_requests_of_others(
    serve: Any, world: Any, method: str, request_: Any
) -> None:

    async def scenario(client: Any) -> None:
        streams = [client.watch(method, request_) for _ in range(3)]
        for stream in streams:
            await stream.read()
        assert client.server._room.byte_count == 0
        assert client.server._room._by_address == {}
        for stream in streams:
            stream.cancel()

    serve(scenario)


def test_a_watch_is_counted_before_it_waits_for_anything(
    serve: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "WATCHES_MAX", 0)

    async def scenario(client: Any) -> None:
        error = await ended(client.watch("WatchFlow", flow.WatchFlowRequest(vhost="unknown")))
        assert (error.code, error.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY_WATCHES")

    serve(scenario)


@pytest.mark.parametrize("method", ["WatchFlow", "WatchAlarms"])
def test_there_is_a_bound_and_what_was_cancelled_counts_no_more(
    serve: Any, world: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "WATCHES_MAX", 2)
    request = getattr(flow, f"{method}Request")()

    async def scenario(client: Any) -> None:
        streams = [client.watch(method, request) for _ in range(2)]
        for stream in streams:
            await stream.read()
        error = await ended(client.watch(method, request))
        assert (error.code, error.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY_WATCHES")
        streams[0].cancel()
        while True:
            stream = client.watch(method, request)
            try:
                await stream.read()
            except grpc.aio.AioRpcError:
                continue  # it has not been heard of yet
            break
        stream.cancel()
        streams[1].cancel()

    serve(scenario)


@pytest.mark.parametrize("method", ["WatchFlow", "WatchAlarms"])
def test_a_node_that_stops_ends_its_watches(serve: Any, world: Any, method: str) -> None:
    request = getattr(flow, f"{method}Request")()

    async def scenario(client: Any) -> None:
        stream = client.watch(method, request)
        await stream.read()
        await client.flow.stop("the node is stopping")
        error = await ended(stream)
        assert (error.code, error.text) == ("UNAVAILABLE", "the node is stopping")

    serve(scenario)


def test_a_watch_that_is_being_told_something_when_its_node_stops_ends(
    fake_node: Any, board: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alarms, "WATCH_HEARTBEAT_MS", 0)

    async def scenario() -> None:
        watches = watching.Watches(fake_node.view)
        watch = alarms.AlarmWatching(AlarmWatch(board, str), watches)
        stream = watch.stream(Caller("guest", ("administrator",)), flow.WatchAlarmsRequest())
        await anext(stream)
        watches.stop("the node is stopping")
        with pytest.raises(CallError, match="the node is stopping"):
            async with asyncio.timeout(5):
                await anext(stream)

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["WatchFlow", "WatchAlarms"])
def test_where_nothing_changes_there_is_a_heartbeat(
    serve: Any, world: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_watching, "WATCH_HEARTBEAT_MS", 1)
    monkeypatch.setattr(alarms, "WATCH_HEARTBEAT_MS", 1)
    request = getattr(flow, f"{method}Request")()

    async def scenario(client: Any) -> None:
        stream = client.watch(method, request)
        assert (await stream.read()).snapshot_complete
        beat = await stream.read()
        assert (beat.snapshot_complete, beat.heartbeat_ms) == (False, 1)
        stream.cancel()

    serve(scenario)


@pytest.mark.parametrize("millis", [0, 3_600_000])
def test_a_heartbeat_is_due_whatever_happens_that_is_no_news(
    fake_node: Any, board: Any, monkeypatch: pytest.MonkeyPatch, millis: int
) -> None:
    monkeypatch.setattr(alarms, "WATCH_HEARTBEAT_MS", millis)

    async def scenario() -> bool:
        watch = alarms.AlarmWatching(AlarmWatch(board, str), watching.Watches(fake_node.view))
        stream = watch.stream(Caller("guest", ("administrator",)), flow.WatchAlarmsRequest())
        assert (await anext(stream)).snapshot_complete
        beat = asyncio.ensure_future(anext(stream))
        for _ in range(100):
            board.blocked.change(board.blocked.now)
            await asyncio.sleep(0)
        told = beat.done()
        beat.cancel()
        return told

    assert asyncio.run(scenario()) == (millis == 0)


# What a slow reader hears


def connection(number: int, limit: str = "credit", state: str = "flow") -> Any:
    row = ConnectionFlow(f"n1/1/{number}", f"c{number}", "", "n1", "app", "/", state)
    return ("connection", row.id), FlowState(state, limit, 0, connection=row)


def test_what_changed_several_times_is_told_once_as_it_is_now(fake_node: Any) -> None:
    notifier = FlowNotifier(flow.WatchFlowRequest(), fake_node.view)
    first = notifier.news(FlowSnapshot(dict([connection(1), connection(2)])), EVERYBODY)
    assert first is not None
    assert len(first.changes) == 2
    # Meanwhile: 1 ran and stopped again, 2 has another limit, 3 came and went.
    message = notifier.news(
        FlowSnapshot(dict([connection(1), connection(2, "account")])), EVERYBODY
    )
    assert message is not None
    assert [(change.connection.name, change.limit) for change in message.changes] == [
        ("c2", "account")
    ]
    assert (
        notifier.news(FlowSnapshot(dict([connection(1), connection(2, "account")])), EVERYBODY)
        is None
    )


def test_messages_are_bounded_and_all_is_told(
    fake_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_watching, "WATCH_CHANGES", 3)
    notifier = FlowNotifier(flow.WatchFlowRequest(), fake_node.view)

    def told(picture: FlowSnapshot) -> list[tuple[int, bool]]:
        found = []
        while (message := notifier.news(picture, EVERYBODY)) is not None:
            found.append((len(message.changes), message.snapshot_complete))
        return found

    everyone = FlowSnapshot(dict(connection(number) for number in range(7)))
    assert told(everyone) == [(3, False), (3, False), (1, True)]
    assert told(FlowSnapshot(dict([connection(0)]))) == [(3, False), (3, False)]
    assert told(FlowSnapshot()) == [(1, False)]


def test_nodes_that_are_missing_are_news_of_their_own(fake_node: Any) -> None:
    notifier = FlowNotifier(flow.WatchFlowRequest(), fake_node.view)
    assert notifier.news(FlowSnapshot(), EVERYBODY) is not None
    message = notifier.news(FlowSnapshot({}, ("n2",), 3), EVERYBODY)
    assert message is not None
    assert (list(message.missing_nodes), message.left_out) == (["n2"], 3)
    assert notifier.news(FlowSnapshot({}, ("n2",), 3), EVERYBODY) is None


# Alarms


def test_alarms_are_told_with_kind_stage_figures_and_reason(serve: Any, board: Any) -> None:
    async def scenario(client: Any) -> None:
        board.own.disk_alarm, board.own.disk_free, board.own.disk_limit = True, 5 << 20, 9 << 20
        stream = client.watch("WatchAlarms", flow.WatchAlarmsRequest(), user="pol")
        message = await stream.read()
        assert message.snapshot_complete
        [alarm] = message.alarms
        assert (alarm.node, alarm.kind, alarm.stage) == ("n1", flow.DISK, flow.ALARM_BLOCKED)
        assert (alarm.free_octets, alarm.mark_octets) == (5 << 20, 9 << 20)
        assert alarm.reason.startswith("low on disk: node n1")
        assert alarm.since_ms > 0
        own = board.own
        own.memory_stage, own.memory_used, own.memory_limit = STAGE_PAGING, 3 << 20, 4 << 20
        stages = []
        for stage in (STAGE_PAGING, STAGE_ALARM, 0):
            own.memory_stage = stage
            board.announce()
            [alarm] = (await stream.read()).alarms
            assert alarm.kind == flow.MEMORY
            stages.append(alarm.stage)
        assert stages == [flow.ALARM_RELIEF, flow.ALARM_BLOCKED, flow.ALARM_CLEAR]
        assert (alarm.used_octets, alarm.reason) == (3 << 20, "")
        stream.cancel()

    serve(scenario)
