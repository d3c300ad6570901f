"""The client for programs without asyncio."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.client.conftest import new_broker

from headrace_client import AdviceItem, NotAuthenticatedError, PublishRefusedError, TooLateError
from headrace_client.advice import CONSUMERS
from headrace_client.blocking import Client
from headrace_client.loop_thread import SHARED, LoopThread
from headrace_protos.broker.v1 import advice_pb2 as advice
from headrace_protos.broker.v1 import flow_pb2 as flow
from headrace_protos.broker.v1 import message_pb2 as message
from headrace_protos.broker.v1 import topology_pb2 as topology


@pytest.fixture
def broker() -> Iterator[Any]:
    """A broker in the clients' own loop, since gRPC does not like two."""
    thread = SHARED.acquire()
    try:

        async def start() -> Any:
            return await new_broker().start()

        broker = thread.run(start())
        yield broker
        thread.run(broker.stop())
    finally:
        SHARED.release()


@pytest.fixture
def client(broker: Any) -> Iterator[Client]:
    with Client.connect(broker.endpoint) as client:
        yield client


def test_messages_go_there_and_come_back(broker: Any, client: Client) -> None:
    broker.queues["q"] = deque()
    with client.publisher(routing_key="q") as publisher:
        confirm = publisher.publish(b"0")
        confirm.wait()
        assert (confirm.sequence, confirm.is_done, confirm.resent) == (1, True, False)
        for each in publisher.publish_many(b"%d" % number for number in range(1, 10)):
            each.wait()
        publisher.flush()
        assert (publisher.node, publisher.unconfirmed_count) == ("n1", 0)
    with client.consumer("q", prefetch=4) as consumer:
        found = []
        for delivery in consumer:
            found.append(delivery.body)
            settlement = delivery.accept()
            if len(found) == 10:
                break
        settlement.wait()
        with pytest.raises(TooLateError):
            consumer.next(timeout_s=0.01)
        with pytest.raises(ValueError, match="settled already"):
            delivery.reject()
    assert found == [b"%d" % number for number in range(10)]


def test_messages_may_have_numbers_of_the_application(broker: Any, client: Client) -> None:
    with client.publisher(routing_key="q", publisher_id="job") as publisher:
        confirms = publisher.publish_many([b"a", b"b"], sequence=7)
        assert [confirm.sequence for confirm in confirms] == [7, 8]
    assert broker.streams[0].sequences == [7, 8]


def test_outcomes_and_the_end_of_a_queue(broker: Any, client: Client) -> None:
    broker.queues["q"] = deque([b"a", b"b", b"c", b"d"])
    with client.consumer("q", until_empty=True) as consumer:
        first, second, third, fourth = consumer
        first.accept()
        second.reject()
        third.release()
        fourth.modify(failed=False).wait()
        assert fourth.properties.headers == {}
    assert [outcome for outcome, _, _ in broker.settles] == [1, 3, 2, 4]
    with pytest.raises(ValueError, match="settled already"):
        first.accept()


def test_what_fails_is_raised_in_the_thread_that_asked(broker: Any, client: Client) -> None:
    broker.refuses = {b"bad"}
    with pytest.raises(NotAuthenticatedError):
        Client.connect(broker.endpoint, password="wrong")
    publisher = client.publisher().open()
    with pytest.raises(PublishRefusedError):
        publisher.publish(b"bad").wait()
    publisher.publish(b"bad")
    with pytest.raises(PublishRefusedError):
        publisher.close()


def test_several_threads_share_a_client(broker: Any, client: Client) -> None:
    broker.queues["q"] = deque()
    with client.publisher(routing_key="q") as publisher, ThreadPoolExecutor(4) as pool:
        for confirm in pool.map(publisher.publish, [b"x"] * 100):
            confirm.wait()
    assert len(broker.queues["q"]) == 100
    assert [each.body for each in client.get("q", 2)] == [b"x", b"x"]


def test_topology_flow_and_watches(broker: Any, client: Client) -> None:
    broker.answers = {
        "DeclareQueue": topology.DeclareQueueResponse(name="q", created=True),
        "ListQueues": topology.ListQueuesResponse(
            queues=[topology.QueueDescription(name=name) for name in "abc"]
        ),
        "Why": flow.WhyResponse(sentence="it is slow"),
        "GetLimit": flow.Limit(name="credit", value=flow.LimitValue(number=5)),
    }
    assert client.topology.declare_queue("q", durable=True).created
    assert [queue.name for queue in client.topology.queues()] == ["a", "b", "c"]
    assert client.why("q").sentence == "it is slow"
    assert client.flow.limit("credit").value == 5
    broker.alarms = [flow.Alarm(node="n1", kind=flow.MEMORY, stage=flow.ALARM_BLOCKED)]
    with client.watch_alarms() as watch:
        assert next(watch).node == "n1"
        assert [each.stage for each in watch.snapshot()] == ["blocked"]
    assert list(watch) == []


def test_the_thread_ends_with_the_last_client(broker: Any) -> None:
    names = {thread.name for thread in threading.enumerate()}
    assert "headrace-client" in names
    client = Client.connect(broker.endpoint)
    client.close()
    client.close()
    thread = LoopThread()

    async def inside() -> None:
        async def nothing() -> None:
            raise AssertionError("it is not begun")

        with pytest.raises(RuntimeError, match="use the asyncio client here"):
            thread.run(nothing())

    thread.run(inside())
    thread.stop()


def test_advice_is_given_and_told(broker: Any, client: Client) -> None:
    item = AdviceItem("/", "q", CONSUMERS, 8, 2, "busy", 1_700_000_000_000)
    broker.answers = {
        "Put": advice.PutAdviceResponse(),
        "List": lambda _: advice.ListAdviceResponse(items=broker.calls[-2][1].items),
        "Delete": advice.DeleteAdviceResponse(items=1),
    }
    client.advice.put([item])
    assert client.advice.list() == (item,)
    assert client.advice.delete("q") == 1


def test_ready_messages_go_together(broker: Any, client: Client) -> None:
    broker.queues["q"] = deque()
    broker.refuses = {b"bad"}
    broker.message_bytes_max = 10
    bodies = [b"a", b"bad", b"x" * 11, b"b"]
    given = [message.Message(body=body, routing_key="q") for body in bodies]
    with client.publisher(publisher_id="job", epoch=3) as publisher:
        confirms = publisher.publish_all(given)
        with pytest.raises(PublishRefusedError, match="a queue is full"):
            publisher.flush()
    assert [each.sequence for each in confirms] == [1, 2, 3, 4]
    kinds = [type(each.error).__name__ for each in confirms]
    assert kinds == ["NoneType", "PublishRefusedError", "InvalidArgumentError", "NoneType"]
    assert list(broker.queues["q"]) == [b"a", b"b"]
    assert broker.streams[0].sequences == [1, 2, 4]


def test_ready_messages_may_have_numbers_of_the_application(broker: Any, client: Client) -> None:
    broker.queues["q"] = deque()
    given = [message.Message(body=b"a"), message.Message(body=b"b")]
    with client.publisher(routing_key="q", publisher_id="job") as publisher:
        publisher.publish_all(given, [5, 9])
        with pytest.raises(ValueError, match="must be from 10"):
            publisher.publish_all(given, [9, 10])
    assert broker.streams[0].sequences == [5, 9]
