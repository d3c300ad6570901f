"""The call Consume against a real server with queues in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from tests.broker.gateways.grpc.consumer import Consumer, accepted, bodies, publish
from tests.broker.gateways.grpc.publisher import failed, pairs, until

from headrace_broker.gateways.grpc.messaging import consuming, stream_control
from headrace_broker.gateways.grpc.values.properties import encode_properties
from headrace_broker.model.limits import MESSAGE_BYTES_WHOLE, STREAM_CREDIT_MAX
from headrace_broker.model.stats import CLIENT_FIGURES
from headrace_broker.runtime.contract.port import ACCEPT, MODIFY_FAILED, REJECT, RELEASE
from headrace_protos.broker.v1.message_pb2 import Properties, Range
from headrace_protos.broker.v1.messaging_pb2 import (
    Cancel,
    ConsumeOpen,
    ConsumeRequest,
    Credit,
    Outcome,
    Settle,
)
from headrace_protos.broker.v1.value_pb2 import Table, Value


@pytest.fixture
def queue(broker):
    return broker.add_queue("q")


def test_deliveries_come_with_everything_and_are_settled_in_ranges(serve, broker, queue) -> None:
    headers = Table(fields={"n": Value(int16=-5)})
    properties = Properties(headers=headers, content_type="a/b")
    publish(queue, b"1", b"2", b"3", properties=encode_properties(properties))

    async def scenario(served) -> None:
        consumer = await Consumer(served, credit=Credit(messages=3), consumer_tag="c").open()
        assert consumer.opened.consumer_tag == "c"
        found = await consumer.receive(3)
        assert [each.delivery_id for each in found] == [1, 2, 3]
        assert bodies(found) == [b"1", b"2", b"3"]
        assert (found[0].exchange, found[0].routing_key) == ("e", "k")
        assert found[0].properties == properties
        assert not found[0].redelivered
        await consumer.settle((1, 2))
        assert pairs((await consumer.answer("settled")).ranges) == [(1, 2)]
        await consumer.call.done_writing()
        assert await consumer.call.read() is grpc.aio.EOF  # type: ignore[attr-defined]

    serve(scenario)
    assert queue.settled == [(ACCEPT, 1), (ACCEPT, 2)]
    assert [message.number for message in queue.ready] == [3]
    assert broker.connections == {}


def test_a_settle_is_answered_after_the_client_has_closed_its_side(serve, broker, queue) -> None:
    publish(queue, b"1")

    async def scenario(served) -> None:
        consumer = await Consumer(served, credit=Credit(messages=1)).open()
        await consumer.receive(1)
        broker.gate.opened = False
        await consumer.settle((1, 1))
        await until(lambda: accepted(queue) == [1])
        await consumer.call.done_writing()
        asyncio.get_running_loop().call_later(0.05, setattr, broker.gate, "opened", True)
        assert pairs((await consumer.answer("settled")).ranges) == [(1, 1)]
        assert await consumer.call.read() is grpc.aio.EOF  # type: ignore[attr-defined]

    serve(scenario)


def test_what_goes_back_comes_again_with_its_counts(serve, queue) -> None:
    publish(queue, b"m")

    async def scenario(served) -> None:
        consumer = await Consumer(served, credit=Credit(messages=3)).open()
        assert not (await consumer.receive(1))[0].redelivered
        await consumer.settle((1, 1), outcome=Outcome.MODIFY, delivery_failed=True)
        (again,) = await consumer.receive(1)
        assert (again.delivery_id, again.redelivered) == (2, True)
        assert (again.delivery_count, again.acquired_count) == (1, 1)

    serve(scenario)


@pytest.mark.parametrize(
    ("asked", "operation"),
    [
        ({"outcome": Outcome.ACCEPT}, ACCEPT),
        ({"outcome": Outcome.RELEASE}, RELEASE),
        ({"outcome": Outcome.REJECT}, REJECT),
        ({"outcome": Outcome.MODIFY}, RELEASE),
        ({"outcome": Outcome.MODIFY, "delivery_failed": True}, MODIFY_FAILED),
        ({"outcome": Outcome.MODIFY, "undeliverable_here": True}, REJECT),
        ({"outcome": Outcome.MODIFY, "undeliverable_here": True, "delivery_failed": True}, REJECT),
    ],
)
def test_outcomes(serve, broker, queue, asked, operation) -> None:
    publish(queue, b"m")

    async def scenario(served) -> None:
        consumer = await Consumer(served, credit=Credit(messages=1)).open()
        await consumer.receive(1)
        await consumer.settle((1, 1), **asked)
        await until(lambda: broker.clients[0].settle_calls)
        assert broker.clients[0].settle_calls[0] == (1, operation, 1, 1)

    serve(scenario)


def test_no_credit_no_deliveries_and_settling_gives_none(serve, queue) -> None:
    publish(queue, *[b"%d" % number for number in range(6)])

    async def scenario(served) -> None:
        consumer = await Consumer(served).open()
        assert queue.consumers == []
        await consumer.credit(2)
        await consumer.receive(2)
        await consumer.settle((1, 2))
        # The queue thinks that there is room for more; that goes back.
        await consumer.answer("settled")
        await until(lambda: len(queue.ready) == 4 and not queue.consumers)
        await consumer.credit(3)
        found = await consumer.receive(3)
        assert [each.delivery_id for each in found] == [3, 4, 5]
        assert bodies(found) == [b"2", b"3", b"4"]
        await consumer.settle((4, 4))
        assert pairs((await consumer.answer("settled")).ranges) == [(4, 4)]
        await consumer.settle((3, 3), (5, 5))
        assert pairs((await consumer.answer("settled")).ranges) == [(3, 3), (5, 5)]

    serve(scenario)
    assert accepted(queue) == [1, 2, 4, 3, 5]


def test_credit_beyond_what_is_unsettled_is_served_too(serve, queue) -> None:
    publish(queue, *[b"%d" % number for number in range(10)])

    async def scenario(served) -> None:
        consumer = await Consumer(served, credit=Credit(messages=2)).open()
        await consumer.receive(2)
        await consumer.credit(3)  # without settling anything
        assert bodies(await consumer.receive(3)) == [b"2", b"3", b"4"]
        await consumer.settle((1, 5))  # of two consumers of the queue
        assert pairs((await consumer.answer("settled")).ranges) == [(1, 5)]

    serve(scenario)
    assert accepted(queue) == [1, 2, 3, 4, 5]


def test_credit_in_bytes_lets_one_message_exceed_it(serve, queue) -> None:
    publish(queue, *[bytes(100)] * 5)

    async def scenario(served) -> None:
        consumer = await Consumer(served, credit=Credit(messages=100, octets=150)).open()
        await consumer.receive(2)
        await until(lambda: len(queue.ready) == 3)
        await consumer.credit(0, byte_count=51)  # one more than is owed
        await consumer.receive(1)

    serve(scenario)


def test_drain_sends_what_waits_and_forgets_the_rest(serve, queue) -> None:
    publish(queue, b"1", b"2", b"3")

    async def scenario(served) -> None:
        consumer = await Consumer(served, credit=Credit(messages=5, drain=True)).open()
        assert bodies(await consumer.receive(3)) == [b"1", b"2", b"3"]
        assert (await consumer.answer("drained")).messages == 2
        publish(queue, b"4")
        await consumer.credit(0, drain=True)
        assert (await consumer.answer("drained")).messages == 0
        assert len(queue.ready) == 1
        await consumer.settle((1, 3))
        assert pairs((await consumer.answer("settled")).ranges) == [(1, 3)]
        await consumer.credit(1)
        assert bodies(await consumer.receive(1)) == [b"4"]

    serve(scenario)
    assert accepted(queue) == [1, 2, 3]


def test_what_a_drain_has_no_credit_for_any_more_goes_back(serve, broker, queue) -> None:
    publish(queue, b"1", b"2", b"3")

    async def scenario(served) -> None:
        consumer = await Consumer(served).open()
        (stream,) = [client.listener for client in broker.clients]
        broker.gate.opened = False
        await consumer.credit(3, drain=True)
        await until(lambda: stream.credit.messages == 3)
        for _ in range(20):  # until it fetches
            await asyncio.sleep(0)
        await consumer.credit(0, byte_count=1)
        await until(lambda: stream.credit.is_limited)
        broker.gate.opened = True
        assert bodies(await consumer.receive(1)) == [b"1"]
        assert (await consumer.answer("drained")).messages == 2
        assert len(queue.ready) == 2

    serve(scenario)


def test_no_ack_settles_what_is_sent(serve, queue) -> None:
    publish(queue, b"1", b"2", b"3")

    async def scenario(served) -> None:
        consumer = await Consumer(served, no_ack=True, credit=Credit(messages=2)).open()
        await consumer.receive(2)
        await until(lambda: len(accepted(queue)) == 2 and len(queue.ready) == 1)
        await consumer.settle((1, 1))
        error, info, _ = await failed(consumer.call)
        assert (error.code(), info.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "UNKNOWN_DELIVERY")

    serve(scenario)
    assert accepted(queue) == [1, 2]


def test_after_a_cancel_the_rest_may_still_be_settled(serve, queue) -> None:
    publish(queue, b"1", b"2")

    async def scenario(served) -> None:
        consumer = await Consumer(served, credit=Credit(messages=10)).open()
        await consumer.receive(2)
        await consumer.send(cancel=Cancel())
        cancelled = await consumer.answer("cancelled")
        assert (cancelled.code, cancelled.reason) == (0, "")
        publish(queue, b"3")
        await consumer.settle((2, 2))
        assert pairs((await consumer.answer("settled")).ranges) == [(2, 2)]
        await consumer.call.done_writing()
        assert await consumer.call.read() is grpc.aio.EOF  # type: ignore[attr-defined]

    serve(scenario)
    assert queue.settled == [(ACCEPT, 2)]
    assert [message.number for message in queue.ready] == [1, 3]


def test_a_queue_that_goes_cancels_the_consumer(serve, broker, queue) -> None:
    async def scenario(served) -> None:
        consumer = await Consumer(served, credit=Credit(messages=10)).open()
        broker.remove_queue("q")
        cancelled = await consumer.answer("cancelled")
        assert cancelled.code == grpc.StatusCode.NOT_FOUND.value[0]
        assert cancelled.reason == "deleted"
        assert await consumer.call.read() is grpc.aio.EOF  # type: ignore[attr-defined]
        assert await consumer.call.code() is grpc.StatusCode.OK

    serve(scenario)


def test_who_holds_a_delivery_for_too_long_is_cancelled(serve, queue) -> None:
    publish(queue, b"m")

    async def scenario(served) -> None:
        consumer = await Consumer(served, credit=Credit(messages=10)).open()
        await consumer.receive(1)
        queue.time_out()
        cancelled = await consumer.answer("cancelled")
        assert cancelled.code == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]

    serve(scenario)
    assert len(queue.ready) == 1


def test_a_client_that_goes_away_gives_everything_back(serve, broker, queue) -> None:
    publish(queue, b"1", b"2")

    async def scenario(served) -> None:
        consumer = await Consumer(served, credit=Credit(messages=10)).open()
        await consumer.receive(2)
        consumer.call.cancel()
        await until(lambda: not broker.connections)

    serve(scenario)
    assert len(queue.ready) == 2
    assert broker.clients[0].closed


def test_a_client_that_reads_nothing_is_cut_off_when_it_is_closed(
    serve, broker, queue, monkeypatch
) -> None:
    cut = []

    class Observed:
        def __init__(self, task: Any) -> None:
            self._task = task

        def cancel(self) -> None:
            cut.append(self._task.cancel())

    def cut_off_later(task: Any) -> asyncio.TimerHandle:
        observed: Any = Observed(task)
        return stream_control.cut_off_later(observed)

    monkeypatch.setattr(stream_control, "CLOSE_SECONDS_MAX", 0.05)
    monkeypatch.setattr(consuming, "cut_off_later", cut_off_later)
    publish(queue, bytes(12 << 20))

    async def scenario(served) -> None:
        consumer = await Consumer(served, credit=Credit(messages=10)).open()
        control = next(iter(broker.connections.values())).control
        # One message is more than a client that reads nothing lets in: its write waits.
        await until(lambda: control.channels(0)[0].messages_unacknowledged > 0)
        control.shut_down("enough")
        await until(lambda: not broker.connections)
        del consumer

    serve(scenario)
    assert cut == [True]  # it did not end by itself
    assert len(queue.ready) == 1


def test_a_consumer_is_listed_and_may_be_closed_from_outside(serve, broker, queue) -> None:
    publish(queue, b"1")

    async def scenario(served) -> None:
        consumer = await Consumer(
            served, credit=Credit(messages=10), consumer_tag="c", exclusive=True, name="me"
        ).open()
        await consumer.receive(1)
        info = next(iter(broker.connections.values()))
        assert (info.protocol, info.client_properties) == (
            "gRPC Consume",
            {"connection_name": "me"},
        )
        (channel,) = info.control.channels(0)
        assert channel.messages_unacknowledged == 1
        (listed,) = channel.consumers
        assert (listed.tag, listed.queue, listed.ack_required, listed.exclusive) == (
            "c",
            "q",
            True,
            True,
        )
        assert listed.prefetch_count == 10
        second = Consumer(served, credit=Credit(messages=1))
        await second.send(open=second.opening)
        error, detail, _ = await failed(second.call)
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
        assert detail.reason == "ACCESS_REFUSED"
        info.control.limits_changed()
        info.control.shut_down("enough")
        error, detail, _ = await failed(consumer.call)
        assert (error.code(), error.details()) == (grpc.StatusCode.ABORTED, "enough")

    serve(scenario)


OPEN = ConsumeRequest(open=ConsumeOpen(vhost="/", queue="q"))


def opening(**more):
    return ConsumeRequest(open=ConsumeOpen(**{"vhost": "/", "queue": "q", **more}))


def settling(first, last, outcome=Outcome.ACCEPT, **more):
    ranges = [Range(first=first, last=last)]
    return ConsumeRequest(settle=Settle(ranges=ranges, outcome=outcome, **more))


@pytest.mark.parametrize(
    ("requests", "code", "field"),
    [
        ([ConsumeRequest()], "INVALID_ARGUMENT", "open"),
        ([ConsumeRequest(credit=Credit(messages=1))], "INVALID_ARGUMENT", "open"),
        ([OPEN, OPEN], "INVALID_ARGUMENT", "open"),
        ([OPEN, ConsumeRequest()], "INVALID_ARGUMENT", "kind"),
        ([OPEN, settling(1, 1)], "INVALID_ARGUMENT", "settle.ranges[0]"),
        ([OPEN, settling(0, 1)], "INVALID_ARGUMENT", "settle.ranges[0]"),
        ([OPEN, settling(2, 1)], "INVALID_ARGUMENT", "settle.ranges[0]"),
        ([OPEN, settling(1, (1 << 64) - 1)], "INVALID_ARGUMENT", "settle.ranges[0]"),
        ([OPEN, settling(1, 1, Outcome.OUTCOME_UNSPECIFIED)], "INVALID_ARGUMENT", "settle.outcome"),
        (
            [OPEN, settling(1, 1, Outcome.ACCEPT, delivery_failed=True)],
            "INVALID_ARGUMENT",
            "settle.outcome",
        ),
        (
            [OPEN, ConsumeRequest(credit=Credit(messages=STREAM_CREDIT_MAX + 1))],
            "INVALID_ARGUMENT",
            "credit.messages",
        ),
        (
            [OPEN, ConsumeRequest(credit=Credit(octets=(1 << 64) - 1))],
            "INVALID_ARGUMENT",
            "credit.octets",
        ),
        ([opening(consumer_tag="x" * 256)], "INVALID_ARGUMENT", "open.consumer_tag"),
        ([opening(vhost="none")], "NOT_FOUND", ""),
        ([opening(queue="none")], "NOT_FOUND", ""),
        (
            [opening(arguments=Table(fields={"x-consumer-timeout": Value(int64=-1)}))],
            "FAILED_PRECONDITION",
            "",
        ),
        (
            [opening(arguments=Table(fields={"x-a": Value(int8=1000)}))],
            "INVALID_ARGUMENT",
            'open.arguments.fields["x-a"].int8',
        ),
        (
            [
                opening(
                    arguments=Table(fields={"x-filter": Value(string="a = 1")}),
                    credit=Credit(drain=True),
                )
            ],
            "INVALID_ARGUMENT",
            "credit.drain",
        ),
    ],
)
def test_who_breaks_a_rule_hears_which(serve, broker, queue, requests, code, field) -> None:
    async def scenario(served) -> None:
        call = served.messaging.Consume(metadata=served.GUEST)
        for request in requests:
            await call.write(request)
        error, _, fields = await failed(call)
        assert error.code().name == code
        assert fields == ([field] if field else [])

    serve(scenario)
    assert broker.connections == {}


def test_an_exclusive_queue_is_its_connections(serve, broker) -> None:
    broker.add_queue("q", exclusive=True, owner="n1/1/1")

    async def scenario(served) -> None:
        call = served.messaging.Consume(metadata=served.GUEST)
        await call.write(OPEN)
        error, info, _ = await failed(call)
        assert (error.code(), info.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "RESOURCE_LOCKED",
        )

    serve(scenario)


def test_a_queue_declared_elsewhere_a_moment_ago_is_found(serve, broker) -> None:
    broker.behind.append(lambda: broker.add_queue("q"))

    async def scenario(served) -> None:
        await Consumer(served, credit=Credit(messages=1)).open()

    serve(scenario)


def test_what_passes_a_consumer_is_counted_as_on_a_channel(serve, broker, queue) -> None:
    publish(queue, b"1", b"2", b"3")

    async def scenario(served) -> None:
        consumer = await Consumer(served, credit=Credit(messages=3)).open()
        await consumer.receive(3)
        info = next(iter(broker.connections.values()))
        await consumer.settle((1, 2))
        await until(lambda: dict(info.control.traffic())[1].ack == 2)
        counts = dict(zip(CLIENT_FIGURES, info.traffic(), strict=True))
        assert {name: count for name, count in counts.items() if count} == {"deliver": 3, "ack": 2}

    serve(scenario)


def test_message_that_is_too_large_for_grpc_ends_the_stream_and_stays(serve, queue) -> None:
    publish(queue, b"1", bytes(MESSAGE_BYTES_WHOLE + 1), b"3")

    async def scenario(served) -> None:
        consumer = await Consumer(served, credit=Credit(messages=3)).open()
        assert bodies(await consumer.receive(1)) == [b"1"]
        failure, info, _ = await failed(consumer.call)
        assert failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert info.reason == "MESSAGE_TOO_LARGE"
        assert failure.details() == (
            f"the next message has a body of {MESSAGE_BYTES_WHOLE + 1} bytes; over gRPC a message "
            f"has at most {MESSAGE_BYTES_WHOLE}: consume it over AMQP"
        )

    serve(scenario)
    assert [number for operation, number in queue.settled if operation == RELEASE] == [2]
