"""Common parts of all services: log-in, readiness, health, reflection, errors with details."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from grpc_status import rpc_status
from tests.broker.gateways.grpc.publisher import Stream, until
from tests.broker.gateways.grpc.stranger import Stranger

from headrace_broker.flow.call_turns import CallClient
from headrace_broker.gateways.grpc.messaging import messaging
from headrace_broker.gateways.grpc.server import request_gate
from headrace_broker.gateways.grpc.server.authentication import parse_peer
from headrace_broker.gateways.grpc.server.call import Admission
from headrace_broker.gateways.grpc.server.server import GrpcServer
from headrace_broker.model.limits import (
    CALL_STEP_US,
    CALLS_WAITING_MAX,
    CATALOG_COMMAND_BYTES_MAX,
    GRPC_OPEN_READS_MAX,
    GRPC_REQUEST_BYTES_MAX,
)
from headrace_protos.broker.v1.lease_pb2 import DescribeGroupsRequest, GroupName, LeaseRequest
from headrace_protos.broker.v1.messaging_pb2 import (
    ConsumeRequest,
    GetRequest,
    PublishOpen,
    PublishRequest,
)
from headrace_raftlog.model.histogram import Histogram


async def refusal(call):
    """The status of a call that fails, its ErrorInfo and its other details."""
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await call
    details = list(rpc_status.from_call(failure.value).details)  # type: ignore[arg-type]
    info = ErrorInfo()
    assert details.pop(0).Unpack(info)
    return failure.value, info, details


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", "Basic"),),
        (("authorization", "Basic !!!"),),
        (("authorization", "Bearer Z3Vlc3Q6Z3Vlc3Q="),),
        (("authorization", "Basic Z3Vlc3Q="),),
        (("authorization", "Basic Z3Vlc3Q6d3Jvbmc="),),  # guest:wrong
        (("authorization", "Basic d3Jvbmc="), ("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")),
    ],
)
def test_without_a_right_log_in_a_call_is_unauthenticated(serve, metadata) -> None:
    async def scenario(served) -> None:
        call = served.messaging.Get(GetRequest(vhost="/", queue="q"), metadata=metadata)
        error, info, details = await refusal(call)
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert (info.reason, info.domain) == ("NOT_AUTHORIZED", "headrace.dev")
        assert "guest" not in error.details()
        assert details == []

    serve(scenario)


async def nothing():
    """Requests of a client that sends none, and does not say that it is done."""
    await asyncio.Event().wait()
    yield b""


@pytest.mark.parametrize(
    ("method", "streams"),
    [
        ("/headrace.broker.v1.Messaging/Get", False),
        ("/headrace.broker.v1.Messaging/Publish", True),
        ("/headrace.broker.v1.Lease/Describe", False),
        ("/headrace.broker.v1.Lease/Fetch", True),
    ],
)
def test_who_has_not_logged_in_is_refused_before_the_request_is_read(
    serve, method, streams
) -> None:
    async def scenario(served) -> None:
        make = served.channel.stream_stream if streams else served.channel.stream_unary
        call = make(method)(nothing(), metadata=served.basic("guest", "wrong"))
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await (call.read() if streams else call)
        assert failure.value.code() is grpc.StatusCode.UNAUTHENTICATED

    serve(scenario)


def test_a_call_without_a_request_or_with_one_that_is_none_is_refused(serve) -> None:
    async def requests(*found):
        for each in found:
            yield each

    async def scenario(served) -> None:
        for found in ((), (b"\xff\xff",)):
            make = served.channel.stream_unary("/headrace.broker.v1.Messaging/Get")
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await make(requests(*found), metadata=served.GUEST)
            assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    serve(scenario)


def test_names_that_nothing_can_have_are_refused_before_they_are_looked_up(serve) -> None:
    async def scenario(served) -> None:
        name = "n" * 256
        calls = [
            served.messaging.Get(GetRequest(vhost=vhost, queue=queue), metadata=served.GUEST)
            for vhost, queue in (("/", name), (name, "q"), ("/", ""))
        ]
        group = GroupName(vhost="/", queue=name, group="g")
        request = DescribeGroupsRequest(name=group)
        calls.append(served.lease.Describe(request, metadata=served.GUEST))
        calls.append(served.lease.Lease(LeaseRequest(name=group), metadata=served.GUEST))
        for call in calls:
            error, info, _ = await refusal(call)
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert info.reason == "INVALID_FIELD"
        assert served.broker.permissions._answers == {}

    serve(scenario)


def test_a_stream_that_says_nothing_counts_and_ends(serve, monkeypatch) -> None:
    monkeypatch.setattr(messaging, "STREAMS_MAX", 1)

    async def scenario(served) -> None:
        service = served.messaging_service
        silent = served.messaging.Publish(metadata=served.GUEST)
        await until(lambda: service._unopened == 1)
        call = served.messaging.Publish(metadata=served.GUEST)
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        silent.cancel()
        await until(lambda: service._unopened == 0)
        monkeypatch.setattr(messaging, "STREAM_OPEN_SECONDS", 0.01)
        call = served.messaging.Consume(metadata=served.GUEST)
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    serve(scenario)


def test_a_request_without_a_log_in_that_takes_long_gives_way_to_others(monkeypatch) -> None:
    monkeypatch.setattr(request_gate, "GRPC_OPEN_READS_MAX", 3)
    monkeypatch.setattr(request_gate, "GRPC_OPEN_READS_PER_ADDRESS", 2)

    async def one():
        yield b"request"

    async def scenario() -> None:
        reads = request_gate.OpenReads()

        async def read(address: str, requests) -> bytes:
            context: Any = Stranger(address)
            found: bytes = await anext(reads.read(requests, context, lambda data: data))
            return found

        stalled = []
        for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2"):
            stalled.append(asyncio.create_task(read(address, nothing())))
            await asyncio.sleep(0)
        assert reads.places.taken == 3
        assert await read("10.0.0.3", one()) == b"request"
        with pytest.raises(ConnectionRefusedError, match="RESOURCE_EXHAUSTED"):
            await stalled[0]
        assert (reads.places.of("10.0.0.1"), reads.places.of("10.0.0.2")) == (1, 1)
        stalled.append(asyncio.create_task(read("10.0.0.2", nothing())))
        await asyncio.sleep(0)
        assert await read("10.0.0.2", one()) == b"request"
        with pytest.raises(ConnectionRefusedError, match="RESOURCE_EXHAUSTED"):
            await stalled[2]
        for task in stalled:
            task.cancel()
        await asyncio.gather(*stalled, return_exceptions=True)
        assert reads.places.taken == 0

    asyncio.run(scenario())


def test_health_is_told_while_others_send_no_request(serve) -> None:
    async def scenario(served) -> None:
        check = served.channel.stream_unary("/grpc.health.v1.Health/Check")
        calls = [check(nothing()) for _ in range(3 * GRPC_OPEN_READS_MAX)]
        await until(lambda: any(call.done() for call in calls))
        answer = await HealthStub(served.channel).Check(HealthCheckRequest())
        assert answer.status == HealthCheckResponse.SERVING
        for call in calls:
            call.cancel()

    serve(scenario)


def test_a_request_without_a_log_in_that_takes_too_long_is_refused(serve, monkeypatch) -> None:
    monkeypatch.setattr(request_gate, "GRPC_OPEN_READ_SECONDS", 0.01)

    async def scenario(served) -> None:
        check = served.channel.stream_unary("/grpc.health.v1.Health/Check")
        assert await check(nothing()).code() is grpc.StatusCode.INVALID_ARGUMENT
        reflected = served.channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        )
        assert await reflected(nothing()).code() is grpc.StatusCode.OK

    serve(scenario)


def test_past_the_bound_of_calls_that_wait_all_but_probes_are_refused(serve) -> None:
    async def scenario(served) -> None:
        turns = served.server._turns.turns
        await HealthStub(served.channel).Check(HealthCheckRequest())
        turns._call_later = lambda seconds, callback: None
        turns.took(CallClient(), CALL_STEP_US + 1)  # a pause without an end
        turns.waiting = CALLS_WAITING_MAX
        call = served.messaging.Get(GetRequest(vhost="/", queue="q"), metadata=served.GUEST)
        error, info, _ = await refusal(call)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert info.reason == "TOO_MANY_CALLS"
        stream = served.messaging.Publish(metadata=served.GUEST)
        assert await stream.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await HealthStub(served.channel).Check(HealthCheckRequest())
        assert turns.refused == 2

    serve(scenario)


def test_a_request_keeps_no_place_when_the_one_it_takes_is_over_in_the_same_turn(
    monkeypatch,
) -> None:
    monkeypatch.setattr(request_gate, "GRPC_OPEN_READS_PER_ADDRESS", 1)

    async def one():
        yield b"request"

    async def scenario() -> None:
        reads = request_gate.OpenReads()
        async with asyncio.timeout(None) as over:
            await asyncio.sleep(0)
        assert reads.places.take("10.0.0.1", over) is None
        context: Any = Stranger("10.0.0.1")
        requests = reads.read(one(), context, lambda data: data)
        assert await anext(requests) == b"request"
        assert reads.places.taken == 0

    asyncio.run(scenario())


def test_a_request_that_has_come_is_not_late_while_its_call_waits_for_its_turn(serve) -> None:
    async def scenario(served) -> None:
        turns, room = served.server._turns.turns, served.server._room
        sends: asyncio.Future[GetRequest] = asyncio.get_running_loop().create_future()
        ends = []

        async def requests():
            yield (await sends).SerializeToString()

        method = "/headrace.broker.v1.Messaging/Get"
        call = served.channel.stream_unary(method)(requests(), metadata=served.GUEST)
        await until(lambda: room._readings)
        [reading] = room._readings
        later, turns._call_later = turns._call_later, lambda _, callback: ends.append(callback)
        turns.took(CallClient(), CALL_STEP_US + 1)  # a pause that ends when it is told to
        sends.set_result(GetRequest(vhost="/", queue="unknown"))
        await until(reading._waits.done)
        reading._due()  # its time is over
        await until(lambda: ends)
        turns._call_later = later  # further pauses, on a busy machine, end by themselves
        ends.pop()()
        error, info, _ = await refusal(call)
        assert (error.code(), info.reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
        assert room.byte_count == 0

    serve(scenario)


def test_a_request_that_is_too_large_for_a_call_is_refused(serve) -> None:
    async def scenario(served) -> None:
        name = "q" * CATALOG_COMMAND_BYTES_MAX
        call = served.messaging.Get(GetRequest(vhost="/", queue=name), metadata=served.GUEST)
        error, info, _ = await refusal(call)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert info.reason == "REQUEST_TOO_LARGE"
        assert served.server._room.byte_count == 0

    serve(scenario)


def test_a_request_that_is_too_large_is_refused_before_it_is_parsed(serve) -> None:
    async def scenario(served) -> None:
        get = served.channel.unary_unary("/headrace.broker.v1.Messaging/Get")
        broken = b"\x0f" * (GRPC_REQUEST_BYTES_MAX + 1)
        error, info, _ = await refusal(get(broken, metadata=served.GUEST))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert info.reason == "REQUEST_TOO_LARGE"
        consume = served.channel.stream_stream("/headrace.broker.v1.Messaging/Consume")
        stream = consume(metadata=served.GUEST)
        await stream.write(broken)
        assert await stream.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    serve(scenario)


def test_a_batch_of_too_many_objects_is_refused_before_it_is_parsed(serve) -> None:
    async def scenario(served) -> None:
        publish = served.channel.stream_stream("/headrace.broker.v1.Messaging/Publish")
        stream = publish(metadata=served.GUEST)
        await stream.write(PublishRequest(open=PublishOpen(vhost="/")).SerializeToString())
        await stream.read()
        messages = b"\x12\x00" * (64 << 10)
        await stream.write(b"\x12\x80\x80\x08" + messages + b"\x0f")  # the end is no field
        assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "fields in its messages" in await stream.details()

    serve(scenario)


def test_a_node_that_is_not_ready_says_why_and_when_to_come_again(serve) -> None:
    async def scenario(served) -> None:
        served.not_ready = "too few nodes are running"
        call = served.messaging.Get(GetRequest(vhost="/", queue="q"), metadata=served.GUEST)
        error, info, details = await refusal(call)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert error.details() == "too few nodes are running"
        assert info.reason == "NOT_READY"
        retry = RetryInfo()
        assert details[0].Unpack(retry)
        assert retry.retry_delay.ToMilliseconds() == 1000

    serve(scenario)


def test_calls_are_counted_by_method_and_status(serve) -> None:
    service = "headrace.broker.v1.Messaging"

    async def scenario(served) -> None:
        call = served.messaging.Get(GetRequest(vhost="/", queue="q"))
        await refusal(call)
        stream = served.messaging.Consume(metadata=served.GUEST)
        await stream.write(ConsumeRequest())
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await stream.read()
        await HealthStub(served.channel).Check(HealthCheckRequest())
        found = {
            (sample.name, sample.labels): sample.value
            for sample in served.meter.samples()
            if not isinstance(sample.value, Histogram)
        }
        assert found == {
            ("grpc_calls_started_total", (service, "Get")): 1,
            ("grpc_calls_started_total", (service, "Consume")): 1,
            ("grpc_calls_total", (service, "Get", "UNAUTHENTICATED")): 1,
            ("grpc_calls_total", (service, "Consume", failure.value.code().name)): 1,
        }
        [durations] = [
            each.value for each in served.meter.samples() if isinstance(each.value, Histogram)
        ]
        assert sum(durations.counts) == 1  # a stream has no duration

    serve(scenario)


def test_health_follows_the_node_and_needs_no_log_in(serve) -> None:
    async def scenario(served) -> None:
        health = HealthStub(served.channel)
        for name in ("", "headrace.broker.v1.Messaging", "grpc.health.v1.Health"):
            served.not_ready = ""
            answer = await health.Check(HealthCheckRequest(service=name))
            assert answer.status == HealthCheckResponse.SERVING
            served.not_ready = "no quorum"
            answer = await health.Check(HealthCheckRequest(service=name))
            assert answer.status == HealthCheckResponse.NOT_SERVING
        error, info, _ = await refusal(health.Check(HealthCheckRequest(service="nothing")))
        assert (error.code(), info.reason) == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_SERVICE")

    serve(scenario)


def test_a_watch_of_the_health_is_told_of_changes(serve) -> None:
    async def scenario(served) -> None:
        health = HealthStub(served.channel)
        watch = health.Watch(HealthCheckRequest())
        assert (await watch.read()).status == HealthCheckResponse.SERVING
        served.not_ready = "no quorum"
        assert (await watch.read()).status == HealthCheckResponse.NOT_SERVING
        unknown = health.Watch(HealthCheckRequest(service="nothing"))
        assert (await unknown.read()).status == HealthCheckResponse.SERVICE_UNKNOWN
        watch.cancel()
        unknown.cancel()

    serve(scenario)


def test_reflection_names_the_services_and_their_methods(serve) -> None:
    async def scenario(served) -> None:
        call = ServerReflectionStub(served.channel).ServerReflectionInfo()
        await call.write(ServerReflectionRequest(list_services=""))
        answer = await call.read()
        names = {service.name for service in answer.list_services_response.service}
        assert {"headrace.broker.v1.Messaging", "grpc.health.v1.Health"} <= names
        symbol = "headrace.broker.v1.Messaging"
        await call.write(ServerReflectionRequest(file_containing_symbol=symbol))
        answer = await call.read()
        assert answer.file_descriptor_response.file_descriptor_proto
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK

    serve(scenario)


def test_clients_that_are_dismissed_are_told_why_and_their_connections_end(serve) -> None:
    async def scenario(served) -> None:
        stream = await Stream(served, confirms=True).open()
        lost = asyncio.ensure_future(lose_connection(served.channel))
        await served.server.dismiss("go to another node")
        error, info, _ = await stream.failure()
        assert (error.code(), info.reason) == (grpc.StatusCode.ABORTED, "CONNECTION_FORCED")
        assert "go to another node" in error.details()
        await asyncio.wait_for(lost, 30)
        again = await Stream(served, confirms=True).open()
        await again.end()

    serve(scenario)


async def lose_connection(channel: grpc.aio.Channel) -> None:
    """Wait until a channel is disconnected."""
    await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)


def test_processes_of_a_node_share_a_port_and_leave_it_while_they_do_not_serve(serve) -> None:
    async def scenario(served) -> None:
        admission = Admission(served.broker, lambda: "")
        first, second, strange = (
            GrpcServer([], lambda: "", 1024, admission, is_shared=is_shared)
            for is_shared in (True, True, False)
        )
        [port] = await first.start(("127.0.0.1:0", None))
        place = (f"127.0.0.1:{port}", None)
        second.hold(place)
        assert await second.resume() == (place,)
        assert await second.resume() == ()
        with pytest.raises(OSError, match="address already in use"):
            await strange.start(place)
        await first.dismiss("it is drained")
        await second.stop()
        assert await first.resume() == (place,)
        await first.stop()

    serve(scenario)


def test_a_taken_port_is_an_error_at_start(serve) -> None:
    async def scenario(served) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            server = GrpcServer([], lambda: "", 1024, Admission(served.broker, lambda: ""))
            problem = f"gRPC cannot listen on 127.0.0.1:{port}: address already in use"
            with pytest.raises(OSError, match=problem):
                await server.start((f"127.0.0.1:{port}", None))
            await server.stop()

    serve(scenario)


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("ipv4:127.0.0.1:5001", ("127.0.0.1", 5001)),
        ("ipv6:%5B::1%5D:5001", ("::1", 5001)),
        ("ipv6:[::1]:5001", ("::1", 5001)),
        ("unix:/run/x", ("/run/x", 0)),
        ("", ("", 0)),
    ],
)
def test_the_address_of_a_peer(peer: str, expected: tuple[str, int]) -> None:
    assert parse_peer(peer) == expected
