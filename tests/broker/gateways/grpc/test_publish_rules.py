"""Publish streams that break a rule."""

from __future__ import annotations

import grpc
import pytest
from tests.broker.gateways.grpc.publisher import Stream, exhaust, message

from headrace_broker.model.limits import MESSAGE_BYTES_MAX, STREAM_BATCH_MESSAGES_MAX
from headrace_protos.broker.v1.messaging_pb2 import PublishBatch, PublishOpen, PublishRequest


@pytest.mark.parametrize(
    ("requests", "reason", "field"),
    [
        ([PublishRequest()], "INVALID_FIELD", "open"),
        ([PublishRequest(batch=PublishBatch())], "INVALID_FIELD", "open"),
        ([PublishRequest(open=PublishOpen(vhost="/"))] * 2, "INVALID_FIELD", "open"),
        ([PublishRequest(open=PublishOpen(vhost="/")), PublishRequest()], "INVALID_FIELD", "kind"),
        (
            [
                PublishRequest(open=PublishOpen(vhost="/")),
                PublishRequest(batch=PublishBatch(first_sequence=1)),
            ],
            "INVALID_FIELD",
            "batch.messages",
        ),
        (
            [
                PublishRequest(open=PublishOpen(vhost="/")),
                PublishRequest(batch=PublishBatch(first_sequence=2, messages=[message()])),
            ],
            "SEQUENCE_GAP",
            "batch.first_sequence",
        ),
        (
            [
                PublishRequest(open=PublishOpen(vhost="/")),
                PublishRequest(
                    batch=PublishBatch(
                        first_sequence=1, messages=[message()] * (STREAM_BATCH_MESSAGES_MAX + 1)
                    )
                ),
            ],
            "INVALID_FIELD",
            "batch.messages",
        ),
        (
            [
                PublishRequest(open=PublishOpen(vhost="/")),
                PublishRequest(
                    batch=PublishBatch(first_sequence=1, messages=[message(bytes(600_000))] * 2)
                ),
            ],
            "INVALID_FIELD",
            "batch",
        ),
        (
            [PublishRequest(open=PublishOpen(vhost="/", exchange="x" * 256))],
            "INVALID_FIELD",
            "open.exchange",
        ),
        (
            [PublishRequest(open=PublishOpen(vhost="/", name="x" * 256))],
            "INVALID_FIELD",
            "open.name",
        ),
    ],
)
def test_who_breaks_a_rule_hears_which_field(serve, broker, requests, reason, field) -> None:
    broker.add_queue("q")

    async def scenario(served) -> None:
        stream = Stream(served)
        for request in requests:
            await stream.call.write(request)
        error, info, fields = await stream.failure()
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert info.reason == reason
        assert fields == [field]

    serve(scenario)
    assert broker.connections == {}


def test_a_vhost_that_is_not_there_is_not_found(serve) -> None:
    async def scenario(served) -> None:
        stream = Stream(served, vhost="none")
        await stream.call.write(PublishRequest(open=stream.opening))
        error, info, _ = await stream.failure()
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert error.details() == "vhost 'none' not found"
        assert info.reason == "NOT_FOUND"

    serve(scenario)


def test_a_request_larger_than_any_message_ends_the_call(serve, broker) -> None:
    broker.add_queue("q")

    async def scenario(served) -> None:
        stream = await Stream(served, routing_key="q").open()
        await stream.send(message(bytes(MESSAGE_BYTES_MAX + (2 << 20))))
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await exhaust(stream.call)
        assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    serve(scenario)
    assert broker.connections == {}
