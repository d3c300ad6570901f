"""Consuming: credit, outcomes, and streams that are lost."""

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
    NotFoundError,
    StaleDeliveryError,
    TooLateError,
)
from headrace_client import consumer as consumer_module
from headrace_protos.broker.v1 import messaging_pb2 as messaging


def bodies(count: int) -> deque[bytes]:
    return deque(b"%d" % number for number in range(count))


def test_deliveries_come_in_order_and_credit_is_renewed_as_they_are_settled(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = bodies(20)
        async with client.consumer("q", prefetch=3) as consumer:
            assert (consumer.node, consumer.consumer_tag) == ("n1", "tag")
            for number in range(20):
                delivery = await consumer.next()
                assert (delivery.body, delivery.delivery_id) == (b"%d" % number, number + 1)
                assert consumer.unsettled_count <= 3
                settlement = delivery.accept()
            await settlement
        assert sum(last - first + 1 for _, first, last in broker.settles) == 20
        assert broker.credits[0] == (3, 0, False)
        assert broker.consumes[0].unsettled == {}

    play(scenario)


def test_not_more_than_the_prefetch_comes_before_something_is_settled(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = bodies(10)
        async with client.consumer("q", prefetch=2) as consumer:
            first, second = [await consumer.next() for _ in range(2)]
            with pytest.raises(TooLateError, match="no delivery within"):
                await consumer.next(timeout_s=0.01)
            await second.accept()
            assert (await consumer.next()).body == b"2"
            await first.accept()
            assert (await consumer.next()).body == b"3"

    play(scenario)


def test_outcomes_are_told_in_order_and_as_ranges(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = bodies(8)
        async with client.consumer("q") as consumer:
            found = [await consumer.next() for _ in range(8)]
            for delivery in found[:3]:
                delivery.accept()
            found[4].accept()
            found[3].reject()
            found[5].release()
            found[6].modify()
            await found[7].modify(failed=False, undeliverable=True)
            with pytest.raises(ValueError, match="delivery 1 is settled already"):
                found[0].reject()
        assert broker.settles == [
            (messaging.ACCEPT, 1, 3),
            (messaging.ACCEPT, 5, 5),
            (messaging.REJECT, 4, 4),
            (messaging.RELEASE, 6, 6),
            (messaging.MODIFY, 7, 7),
            (messaging.MODIFY, 8, 8),
        ]

    play(scenario)


def test_what_was_settled_is_told_before_the_consumer_is_closed(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = bodies(5)
        async with client.consumer("q", prefetch=5) as consumer:
            found = [await consumer.next() for _ in range(4)]
            for delivery in found[:2]:
                delivery.accept()
        await broker.consumes[0].ended.wait()
        assert broker.settles == [(messaging.ACCEPT, 1, 2)]
        assert list(broker.queues["q"]) == [b"2", b"3", b"4"]
        with pytest.raises(ClosedError):
            await found[2].accept()
        assert await consumer.next() is None

    play(scenario)


def test_bytes_may_be_bounded_too(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = deque([b"x" * 100, b"y" * 50])
        async with client.consumer("q", prefetch=2, prefetch_bytes=500) as consumer:
            for _ in range(2):
                await (await consumer.next()).accept()
            await broker.until(lambda: sum(each[0] for each in broker.credits) == 4)
        assert broker.credits[0] == (2, 500, False)
        assert sum(each[1] for each in broker.credits) == 650

    play(scenario)


def test_without_acknowledgements_credit_comes_back_as_deliveries_are_taken(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = bodies(6)
        async with client.consumer("q", prefetch=2, no_ack=True) as consumer:
            for _ in range(6):
                delivery = await consumer.next()
            with pytest.raises(ValueError, match="settled before it came"):
                delivery.accept()
        assert broker.settles == []

    play(scenario)


def test_a_consumer_may_end_when_nothing_is_left(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = bodies(7)
        found = []
        async with client.consumer("q", prefetch=3, until_empty=True) as consumer:
            async for delivery in consumer:
                found.append(delivery.body)
                delivery.accept()
        assert found == [b"%d" % number for number in range(7)]
        await broker.consumes[0].ended.wait()
        assert sum(last - first + 1 for _, first, last in broker.settles) == 7
        assert all(drain for _, _, drain in broker.credits)
        assert len(broker.consumes) == 1
        async with client.consumer("q", until_empty=True) as consumer:
            assert [each async for each in consumer] == []

    play(scenario)


def test_what_goes_back_to_the_queue_is_waited_for_before_it_counts_as_empty(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = deque([b"a", b"b", b"c", b"d"])
        seen = []
        async with client.consumer("q", prefetch=3, until_empty=True) as consumer:
            async for delivery in consumer:
                seen.append(delivery.body)
                if seen.count(delivery.body) > 1 or delivery.body == b"a":
                    delivery.accept()
                elif delivery.body == b"b":
                    delivery.modify(failed=True)
                elif delivery.body == b"c":
                    delivery.release()
                else:
                    delivery.modify(undeliverable=True)
        assert sorted(seen) == [b"a", b"b", b"b", b"c", b"c", b"d"]
        assert consumer.unsettled_count == 0
        assert broker.credits[-1][2]

    play(scenario)


def test_who_holds_deliveries_sees_the_end_of_the_queue_all_the_same(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = deque([b"a", b"b"])
        async with client.consumer("q", until_empty=True) as consumer:
            held = [delivery async for delivery in consumer]
            for delivery in held:
                delivery.accept()
        assert [delivery.body for delivery in held] == [b"a", b"b"]
        assert not broker.queues["q"]

    play(scenario)


def test_a_lost_stream_is_opened_elsewhere_and_what_came_on_it_is_stale(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        first.queues["q"], second.queues["q"] = bodies(3), bodies(2)
        async with client.consumer("q", prefetch=3) as consumer:
            old = await consumer.next()
            await first.stop()
            await come(lambda: consumer.node == "n2")
            new = await consumer.next()
            assert (new.body, new.delivery_id) == (b"0", 1)  # the same number on another stream
            with pytest.raises(StaleDeliveryError, match="stream of delivery 1 is gone"):
                await old.accept()
            assert consumer.stale_count == 1
            await new.accept()
            assert second.settles == [(messaging.ACCEPT, 1, 1)]
            assert (await consumer.next()).body == b"1"

    play_two(scenario)


def test_an_outcome_that_the_queue_has_not_answered_fails_with_its_stream(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = bodies(1)
        async with client.consumer("q") as consumer:
            delivery = await consumer.next()
            broker.consumes[0].answers_settles = False
            settlement = delivery.accept()
            await broker.until(lambda: broker.settles)
            broker.consumes[0].end()
            with pytest.raises(StaleDeliveryError, match="lost before the queue knew: closed"):
                await settlement
            await broker.until(lambda: len(broker.consumes) == 2)

    play(scenario)


def test_a_queue_that_is_gone_ends_its_consumer(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        with pytest.raises(NotFoundError, match="no queue 'q'"):
            await client.consumer("q").open()
        broker.queues["q"] = bodies(0)
        async with client.consumer("q") as consumer:
            waiting = asyncio.create_task(consumer.next())
            await broker.until(lambda: broker.consumes)
            gone = messaging.Cancelled(reason="the queue was deleted", code=5)
            await broker.consumes[0].write(cancelled=gone)
            with pytest.raises(NotFoundError, match="the queue was deleted"):
                await waiting
        assert len(broker.consumes) == 1

    play(scenario)


def test_a_consumer_that_took_too_long_is_not_begun_anew(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = bodies(0)
        async with client.consumer("q") as consumer:
            await broker.until(lambda: broker.consumes)
            late = messaging.Cancelled(reason="not settled in time", code=4)
            await broker.consumes[0].write(cancelled=late)
            with pytest.raises(TooLateError, match="not settled in time"):
                await consumer.next()
        assert len(broker.consumes) == 1

    play(scenario)


def test_a_broker_that_sends_more_than_was_asked_for_is_left(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = bodies(1)
        async with client.consumer("q", prefetch=1) as consumer:
            await consumer.next()
            extra = [messaging.Delivery(delivery_id=number, body=b"") for number in (2, 3)]
            await broker.consumes[0].write(deliveries=messaging.Deliveries(deliveries=extra))
            await broker.until(lambda: len(broker.consumes) == 2)

    play(scenario)


def test_what_another_attempt_would_not_mend_is_raised(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = bodies(0)
        async with client.consumer("q") as consumer:
            await broker.until(lambda: broker.consumes)
            broker.failure = (grpc.StatusCode.PERMISSION_DENIED, "no", "ACCESS_REFUSED")
            broker.consumes[0].end()
            with pytest.raises(AccessRefusedError):
                await consumer.next()

    play(scenario)


def test_who_settles_faster_than_the_broker_takes_it_waits(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "SETTLES_WAITING_MAX", 2)

    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = bodies(50)
        async with client.consumer("q", prefetch=10) as consumer:
            for _ in range(50):
                (await consumer.next()).accept()
        assert sum(last - first + 1 for _, first, last in broker.settles) == 50

    play(scenario)


def test_a_delivery_knows_where_it_came_from(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = bodies(2)
        async with client.consumer("q") as consumer:
            delivery = await consumer.next()
            assert (delivery.exchange, delivery.routing_key) == ("", "q")
            assert delivery.properties.headers == {}
            assert "Delivery 1 of 1 bytes" in repr(delivery)
        [taken] = await client.get("q")
        assert (taken.body, taken.is_settled) == (b"0", True)

    play(scenario)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"prefetch": 0}, "prefetch: must be 1 to 65535, not 0"),
        ({"prefetch": 65536}, "prefetch: must be 1 to 65535, not 65536"),
        ({"prefetch_bytes": -1}, "prefetch_bytes: must not be negative"),
        ({"prefetch_bytes": 1, "until_empty": True}, "does not go with until_empty"),
    ],
)
def test_arguments_that_cannot_be_are_refused_here(play: Any, options: Any, text: str) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        with pytest.raises(ValueError, match=text):
            client.consumer("q", **options)
        with pytest.raises(ValueError, match="messages_max: must be 1 to 1000, not 0"):
            await client.get("q", 0)

    play(scenario)
