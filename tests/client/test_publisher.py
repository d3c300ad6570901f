"""Publishing: back-pressure, answers, and streams that are lost."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import grpc
import pytest
from tests.client.fake_broker import come

from headrace_client import (
    AccessRefusedError,
    ClosedError,
    ConnectFailedError,
    FencedError,
    HeadraceError,
    HeldBackError,
    InvalidArgumentError,
    Properties,
    PublishRefusedError,
    UnavailableError,
    UnroutableError,
)
from headrace_protos.broker.v1 import messaging_pb2 as messaging


def test_messages_arrive_in_order_and_are_confirmed(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = deque()
        async with client.publisher(routing_key="q") as publisher:
            assert publisher.node == "n1"
            confirms = [await publisher.publish(b"%d" % number) for number in range(100)]
            for confirm in confirms:
                await confirm
            assert [confirm.sequence for confirm in confirms] == list(range(1, 101))
            assert not any(confirm.resent for confirm in confirms)
            assert publisher.unconfirmed_count == 0
        assert list(broker.queues["q"]) == [b"%d" % number for number in range(100)]
        assert broker.streams[0].opening.confirms

    play(scenario)


def test_what_is_sent_in_the_last_moment_was_not_held_back(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.window, broker.renews = (1, 1 << 20), False
        publisher = await client.publisher().open()
        await (await publisher.publish(b"x"))

        def send() -> None:
            publisher._buffer.renew(messaging.Window(messages=2, octets=1 << 20))
            publisher._admit()
            assert publisher._buffer.next_request() is not None

        late = asyncio.create_task(publisher.publish(b"y", timeout_s=0))
        asyncio.get_running_loop().call_soon(send)  # it waits by then, and its time is not over
        assert (await late).sequence == 2
        with pytest.raises(HeldBackError):
            await publisher.publish(b"z", timeout_s=0)
        await publisher._end()

    play(scenario)


def test_a_fault_while_writing_is_told_to_who_waits(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        publisher = await client.publisher(routing_key="q").open()

        def fail() -> None:
            raise RuntimeError("a batch that cannot be")

        publisher._buffer.next_request = fail
        confirm = await publisher.publish(b"x")
        with pytest.raises(HeadraceError, match=r"a fault of the client.*a batch that cannot be"):
            await confirm
        with pytest.raises(HeadraceError, match="a batch that cannot be"):
            await publisher.publish(b"y")
        assert len(broker.streams) == 1
        await publisher._end()

    play(scenario)


def test_what_was_not_opened_to_the_end_can_be_opened_again(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        publisher = client.publisher(routing_key="q")
        opening = asyncio.create_task(publisher.open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        with pytest.raises(ClosedError, match="not open"):
            await publisher.publish(b"x")
        async with publisher:
            assert publisher.is_connected

    play(scenario)


def test_options_and_properties_are_sent(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["k"] = deque()
        options = {"exchange": "x", "mandatory": True, "confirms": False, "name": "till"}
        async with client.publisher(**options, vhost="v") as publisher:
            properties = Properties(priority=3, headers={"a": 1})
            confirm = await publisher.publish(b"", "k", exchange="", properties=properties)
            await confirm  # known to be written
        opening = broker.streams[0].opening
        assert (opening.vhost, opening.exchange, opening.name) == ("v", "x", "till")
        assert (opening.mandatory, opening.confirms) == (True, False)

    play(scenario)


def test_to_publish_waits_while_the_window_is_shut_and_says_why(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.window, broker.renews = (2, 1 << 20), False
        async with client.publisher() as publisher:
            for _ in range(2):
                await publisher.publish(b"x")
            third = asyncio.create_task(publisher.publish(b"y"))
            await broker.until(lambda: len(broker.taken) == 2)
            assert not third.done()
            stop = messaging.Stop(limit="watermark", queue="q", node="n1", text="q is full")
            await broker.streams[0].window(2, stop=stop)
            await come(lambda: publisher.stopped_by is not None)
            assert publisher.stopped_by.limit == "watermark"
            with pytest.raises(HeldBackError, match="q is full") as caught:
                await publisher.publish(b"z", timeout_s=0.001)
            assert caught.value.metadata["queue"] == "q"
            await broker.streams[0].window(3)
            await (await third)
            assert publisher.stopped_by is None
        assert broker.streams[0].sequences == [1, 2, 3]

    play(scenario)


def test_who_waits_first_goes_first_and_who_gives_up_is_not_sent(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = deque()
        broker.window, broker.renews = (0, 1 << 20), False
        async with client.publisher(routing_key="q") as publisher:
            tasks = [asyncio.create_task(publisher.publish(b"%d" % each)) for each in range(4)]
            await asyncio.sleep(0)
            tasks[1].cancel()
            await asyncio.wait({tasks[1]})
            await broker.until(lambda: broker.streams)
            await broker.streams[0].window(10)
            for each in (0, 2, 3):
                await (await tasks[each])
        assert list(broker.queues["q"]) == [b"0", b"2", b"3"]

    play(scenario)


def test_messages_that_are_not_answered_are_bounded(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.confirms = False
        async with client.publisher(unconfirmed_max=3, unconfirmed_bytes_max=1000) as publisher:
            for _ in range(3):
                await publisher.publish(b"x")
            with pytest.raises(HeldBackError, match="3 messages are not confirmed"):
                await publisher.publish(b"x", timeout_s=0.001)
            await broker.until(lambda: broker.taken == [1, 2, 3])
            await broker.streams[0].confirm(1, 2, 3)
            await publisher.flush()
            await publisher.publish(b"x" * 900)
            with pytest.raises(HeldBackError):
                await publisher.publish(b"x" * 900, timeout_s=0.001)
            await broker.until(lambda: len(broker.taken) == 4)
            await broker.streams[0].confirm(4)

    play(scenario)


def test_one_message_larger_than_all_bounds_goes_alone(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = deque()
        broker.window = (10, 1000)
        async with client.publisher(routing_key="q", unconfirmed_bytes_max=10) as publisher:
            for size in (100_000, 5, 100_000):
                await (await publisher.publish(b"x" * size))
        assert [len(body) for body in broker.queues["q"]] == [100_000, 5, 100_000]

    play(scenario)


def test_a_message_that_is_too_large_is_refused_before_it_is_sent(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.message_bytes_max = 100
        async with client.publisher() as publisher:
            with pytest.raises(InvalidArgumentError, match="body: has 101 bytes") as caught:
                await publisher.publish(b"x" * 101)
            assert caught.value.fields[0].field == "body"
            headers = {"h": "x" * (300 << 10)}
            with pytest.raises(InvalidArgumentError, match="properties: has"):
                await publisher.publish(b"", properties=Properties(headers=headers))
            await (await publisher.publish(b"x" * 100))

    play(scenario)


# Answers


def test_a_refused_message_fails_its_confirm_only(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.refuses = {b"bad"}
        async with client.publisher() as publisher:
            good = await publisher.publish(b"good")
            bad = await publisher.publish(b"bad")
            await good
            with pytest.raises(PublishRefusedError, match="a queue is full") as caught:
                await bad
            error = caught.value
            assert (error.limit, error.reason, error.code) == (
                "max-length",
                "QUEUE_REFUSED",
                "RESOURCE_EXHAUSTED",
            )
            assert publisher.refused_count == 1
            await publisher.flush()  # somebody has asked about it

    play(scenario)


def test_a_refusal_that_nobody_asked_about_is_raised_by_flush_and_close(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.refuses = {b"bad"}
        publisher = await client.publisher().open()
        await publisher.publish(b"bad")
        with pytest.raises(PublishRefusedError):
            await publisher.flush()
        await publisher.flush()  # told once
        await publisher.publish(b"bad")
        with pytest.raises(PublishRefusedError):
            await publisher.close()

    play(scenario)


def test_without_confirms_a_refusal_is_raised_by_close(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.refuses = {b"bad"}
        publisher = await client.publisher(confirms=False).open()
        await (await publisher.publish(b"bad"))
        with pytest.raises(PublishRefusedError):
            await publisher.close()

    play(scenario)


@pytest.mark.parametrize("confirms", [True, False])
def test_a_mandatory_message_without_a_queue_is_an_error(play: Any, confirms: bool) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        publisher = await client.publisher(mandatory=True, confirms=confirms).open()
        confirm = await publisher.publish(b"x", "nowhere")
        if confirms:
            with pytest.raises(UnroutableError):
                await confirm
            await publisher.close()
        else:
            with pytest.raises(UnroutableError):
                await publisher.close()

    play(scenario)


# Streams that are lost


def test_what_was_not_confirmed_is_sent_again_elsewhere_in_order(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        first.confirms = False
        second.queues["q"] = deque()
        async with client.publisher(routing_key="q") as publisher:
            confirms = [await publisher.publish(b"%d" % number) for number in range(5)]
            await first.until(lambda: first.taken == [1, 2, 3, 4, 5])
            await first.streams[0].confirm(2)
            await confirms[1]
            await first.stop()
            await come(lambda: not publisher.is_connected)
            confirms.append(await publisher.publish(b"5"))
            for confirm in confirms:
                await confirm
            assert publisher.node == "n2"
            assert [each.resent for each in confirms] == [True, False, True, True, True, False]
            assert publisher.resent_count == 4
        assert list(second.queues["q"]) == [b"0", b"2", b"3", b"4", b"5"]
        assert second.streams[0].sequences == [1, 2, 3, 4, 5]

    play_two(scenario)


def test_a_publisher_with_an_id_sends_again_with_the_same_sequences(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        first.confirms = False
        options = {"publisher_id": "job", "epoch": 7}
        async with client.publisher(**options) as publisher:
            numbers = (10, 11, 12, 20)
            confirms = [await publisher.publish(b"x", sequence=each) for each in numbers]
            await first.until(lambda: first.taken == [10, 11, 12, 20])
            await first.streams[0].confirm(11)
            await confirms[1]
            await first.stop()
            await publisher.flush()
            assert (await publisher.publish(b"y")).sequence == 21
            with pytest.raises(ValueError, match="sequence: must be from 22"):
                await publisher.publish(b"y", sequence=21)
        opening = second.streams[0].opening
        assert (opening.publisher_id, opening.epoch) == ("job", 7)
        assert second.streams[0].sequences == [10, 12, 20, 21]

    play_two(scenario)


def test_a_publisher_id_without_an_epoch_takes_sequences_of_the_application(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        async with client.publisher(publisher_id="job") as publisher:
            with pytest.raises(ValueError, match="sequence: must be given, or an epoch"):
                await publisher.publish(b"x")
            await (await publisher.publish(b"x", sequence=5))
        async with client.publisher(publisher_id="job", epoch=0) as publisher:
            assert (await publisher.publish(b"x")).sequence == 1
        assert [each.sequences for each in broker.streams] == [[5], [1]]
        assert [each.opening.epoch for each in broker.streams] == [0, 0]

    play(scenario)


def test_a_publisher_that_is_fenced_fails_and_sends_nothing_again(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.confirms = False
        broker.refuses = {b"late"}
        broker.refusal = {"code": 10, "reason": "FENCED", "text": "epoch 2 has taken over"}
        publisher = await client.publisher(publisher_id="job", epoch=1).open()
        confirms = [await publisher.publish(each) for each in (b"x", b"late")]
        for confirm in confirms:
            with pytest.raises(FencedError, match="epoch 2 has taken over") as caught:
                await confirm
            assert (caught.value.code, caught.value.reason) == ("ABORTED", "FENCED")
        with pytest.raises(FencedError):
            await publisher.publish(b"y")
        with pytest.raises(FencedError):
            await publisher.close()
        assert len(broker.streams) == 1

    play(scenario)


def test_without_confirms_nothing_is_sent_again(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        async with client.publisher(confirms=False) as publisher:
            await (await publisher.publish(b"x"))
            await first.until(lambda: first.taken == [1])
            await first.stop()
            await come(lambda: not publisher.is_connected)
            await (await publisher.publish(b"y"))
        assert second.streams[0].sequences == [1]

    play_two(scenario)


def test_a_stream_that_the_broker_closes_is_opened_again(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        async with client.publisher() as publisher:
            await (await publisher.publish(b"x"))
            broker.streams[0].end()
            await (await publisher.publish(b"y"))
        assert len(broker.streams) == 2

    play(scenario)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        ((grpc.StatusCode.PERMISSION_DENIED, "no", "ACCESS_REFUSED"), AccessRefusedError),
        ((grpc.StatusCode.ABORTED, "fenced", "FENCED"), FencedError),
        ((grpc.StatusCode.INVALID_ARGUMENT, "bad", "X", [("open", "r")]), InvalidArgumentError),
    ],
)
def test_what_another_attempt_would_not_mend_is_raised_everywhere(
    play: Any, failure: Any, kind: type[Exception]
) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.confirms = False
        publisher = await client.publisher().open()
        confirm = await publisher.publish(b"x")
        await broker.until(lambda: broker.taken == [1])
        broker.failure = failure
        broker.streams[0].end()
        with pytest.raises(kind):
            await confirm
        with pytest.raises(kind):
            await publisher.publish(b"y")
        with pytest.raises(kind):
            await publisher.close()
        with pytest.raises(kind):
            await client.publisher().open()

    play(scenario)


def test_a_publisher_that_finds_no_node_for_too_long_fails(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        publisher = await client.publisher(give_up_after_s=0.05).open()
        await broker.stop()
        await come(lambda: not publisher.is_connected)
        with pytest.raises(UnavailableError):
            await publisher.publish(b"x" * 10)
        with pytest.raises(UnavailableError):
            await publisher.close()

    play(scenario)


def test_a_publisher_that_is_not_open_or_closed_says_so(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        publisher = client.publisher()
        with pytest.raises(ClosedError, match="not open"):
            await publisher.publish(b"x")
        await publisher.close()
        publisher = await client.publisher().open()
        await publisher.close()
        with pytest.raises(ClosedError, match="closed"):
            await publisher.publish(b"x")
        await publisher.close()

    play(scenario)


def test_an_exception_within_does_not_wait_for_answers(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.confirms = False
        publisher = client.publisher()
        confirms = []

        async def fails() -> None:
            async with publisher:
                confirms.append(await publisher.publish(b"x"))
                raise KeyError

        with pytest.raises(KeyError):
            await fails()
        with pytest.raises(ClosedError):
            await confirms[0]

    play(scenario)


def test_arguments_that_cannot_be_are_refused_here(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        with pytest.raises(ValueError, match="epoch: belongs to a publisher_id"):
            client.publisher(epoch=1)
        with pytest.raises(ValueError, match="epoch: must be from 0"):
            client.publisher(publisher_id="p", epoch=-1)
        async with client.publisher() as publisher:
            with pytest.raises(ValueError, match="sequence: belongs to"):
                await publisher.publish(b"x", sequence=1)
            with pytest.raises(TypeError, match="headers"):
                await publisher.publish(b"x", properties=Properties(headers={"a": object()}))

    play(scenario)


def test_without_any_node_to_connect_to_all_are_named() -> None:
    from headrace_client import Client

    async def scenario() -> None:
        with pytest.raises(ConnectFailedError, match=r"127.0.0.1:1: .*; 127.0.0.1:2: "):
            await Client.connect("127.0.0.1:1,127.0.0.1:2", timeout_s=0.5)

    asyncio.run(scenario())
