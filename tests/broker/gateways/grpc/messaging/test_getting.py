"""The call Get against a real server with queues in memory."""

from __future__ import annotations

import grpc
import pytest
from tests.broker.gateways.grpc.consumer import bodies, publish

from headrace_broker.model.limits import MESSAGE_BYTES_WHOLE
from headrace_broker.runtime.contract.port import ACCEPT
from headrace_protos.broker.v1.messaging_pb2 import GetRequest


@pytest.fixture
def queue(broker):
    return broker.add_queue("q")


def test_get_takes_what_waits_and_settles_it_first(serve, broker, queue) -> None:
    publish(queue, b"1", b"2", b"3")

    async def scenario(served) -> None:
        get = served.messaging.Get
        request = GetRequest(vhost="/", queue="q", messages_max=2)
        answer = await get(request, metadata=served.GUEST)
        assert bodies(answer.deliveries) == [b"1", b"2"]
        assert [each.delivery_id for each in answer.deliveries] == [0, 0]
        assert answer.messages_left == 1
        answer = await get(GetRequest(vhost="/", queue="q"), metadata=served.GUEST)
        assert bodies(answer.deliveries) == [b"3"]
        answer = await get(request, metadata=served.GUEST)
        assert (list(answer.deliveries), answer.messages_left) == ([], 0)

    serve(scenario)
    assert queue.settled == [(ACCEPT, 1), (ACCEPT, 2), (ACCEPT, 3)]
    assert all(client.closed for client in broker.clients)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (GetRequest(vhost="none", queue="q"), grpc.StatusCode.NOT_FOUND),
        (GetRequest(vhost="/", queue="none"), grpc.StatusCode.NOT_FOUND),
        (GetRequest(vhost="/", queue="q", messages_max=501), grpc.StatusCode.INVALID_ARGUMENT),
        (GetRequest(vhost="/", queue="one"), grpc.StatusCode.FAILED_PRECONDITION),
    ],
)
def test_a_get_that_is_refused(serve, broker, queue, request_, code) -> None:
    broker.add_queue("one", arguments={"x-single-active-consumer": True})

    async def scenario(served) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await served.messaging.Get(request_, metadata=served.GUEST)
        assert failure.value.code() is code

    serve(scenario)


def test_a_get_stops_at_its_bytes(serve, queue) -> None:
    publish(queue, *[bytes(600_000)] * 3)

    async def scenario(served) -> None:
        request = GetRequest(vhost="/", queue="q", messages_max=3)
        answer = await served.messaging.Get(request, metadata=served.GUEST)
        assert len(answer.deliveries) == 2
        assert answer.messages_left == 1

    serve(scenario)
    assert len(queue.ready) == 1


def test_a_get_of_what_is_too_large_for_grpc_is_refused_and_settles_nothing(serve, queue) -> None:
    publish(queue, bytes(MESSAGE_BYTES_WHOLE + 1))

    async def scenario(served) -> None:
        with pytest.raises(grpc.aio.AioRpcError, match="consume it over AMQP") as failure:
            await served.messaging.Get(GetRequest(vhost="/", queue="q"), metadata=served.GUEST)
        assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    serve(scenario)
    assert ACCEPT not in [operation for operation, _ in queue.settled]
