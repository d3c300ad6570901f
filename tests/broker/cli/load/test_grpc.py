"""Loads and single messages over gRPC, against a broker in this process."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.client.fake_broker import FakeBroker, come

from headrace_broker.cli.load.grpc import GrpcLoad, failure
from headrace_broker.cli.load.plan import Plan, Tally
from headrace_broker.cli.main import main
from headrace_client import (
    AccessRefusedError,
    ExhaustedError,
    HeldBackError,
    NotAuthenticatedError,
    NotFoundError,
    PublishRefusedError,
    UnavailableError,
    UnroutableError,
)
from headrace_client.loop_thread import LoopThread
from headrace_protos.broker.v1 import topology_pb2 as topology

new_broker: Any = FakeBroker  # its methods are made at run time
SECONDS = 60


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A broker in a thread of its own, with the queues a and b."""

    async def start() -> FakeBroker:
        made: FakeBroker = await new_broker("n1").start()
        made.pushes = True
        made.queues = {"a": deque(), "b": deque()}
        made.answers = {
            "DeclareQueue": topology.DeclareQueueResponse(),
            "DeleteQueue": topology.DeleteQueueResponse(),
        }
        return made

    async def stop() -> None:
        await made.stop()

    thread = LoopThread()
    made = thread.run(start())
    yield made
    thread.run(stop())
    thread.stop()


def run(broker: FakeBroker, *words: str) -> Result:
    words = (*words, "--protocol", "grpc", "--address", broker.endpoint)
    return CliRunner().invoke(main, list(words))


async def play(broker: FakeBroker, window: int, prefetch: int) -> Tally:
    """Run a load until some messages have come, and all that were sent."""
    plan = Plan(
        broker.endpoint, ("guest", "guest"), "/", ("a", "b"), 2, 2, 100, window, 0, prefetch, True
    )
    tally, ended = Tally(), asyncio.Event()
    load = GrpcLoad(plan, tally, ended)
    await load.declare({"x-max-length": 5})
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
        consumers = [group.create_task(load.consume(queue)) for queue in plan.queues]
        publishers = [group.create_task(load.publish(queue)) for queue in plan.queues]
        await come(lambda: tally.received >= 50)
        ended.set()
        await asyncio.wait(publishers)
        await come(lambda: tally.received == tally.sent)
        for consumer in consumers:
            consumer.cancel()
    await load.delete()
    return tally


@pytest.mark.parametrize(("window", "prefetch"), [(10, 20), (0, 0)])
def test_a_load_counts_what_it_sent_and_what_came(
    broker: FakeBroker, window: int, prefetch: int
) -> None:
    tally = asyncio.run(play(broker, window, prefetch))
    assert tally.confirmed == (tally.sent if window else 0)
    assert tally.latency.count == tally.received
    declared = [request.name for name, request in broker.calls if name == "DeclareQueue"]
    deleted = [request.name for name, request in broker.calls if name == "DeleteQueue"]
    assert declared == deleted == ["a", "b"]
    assert all(each.opening.confirms is bool(window) for each in broker.streams)
    assert all(each.opening.no_ack is (prefetch == 0) for each in broker.consumes)


def test_a_message_that_a_queue_refuses_ends_the_load(broker: FakeBroker) -> None:
    broker.refuses = {b"full"}
    refused = run(broker, "publish", "a", "full")
    assert refused.exit_code == 1
    assert "a queue refuses the message: a queue is full" in refused.output
    nowhere = run(broker, "publish", "lost", "x")
    assert nowhere.exit_code == 3
    assert "the message reaches no queue" in nowhere.output


def test_messages_are_published_and_taken(broker: FakeBroker) -> None:
    done = run(broker, "publish", "a", "hello", "--count", "3", "-p", "priority=3")
    assert (done.exit_code, done.output) == (0, "published 3\n")
    taken = run(broker, "consume", "a", "--until-empty")
    assert (taken.exit_code, taken.output) == (0, "hello\n" * 3)
    assert run(broker, "consume", "a", "--until-empty").output == ""


def test_as_many_are_taken_as_were_asked_for(broker: FakeBroker) -> None:
    assert run(broker, "publish", "b", "x", "--count", "5").exit_code == 0
    taken = run(broker, "consume", "b", "--count", "2", "-o", "json")
    assert taken.exit_code == 0
    assert len(taken.output.splitlines()) == 2
    assert len(run(broker, "consume", "b", "--until-empty").output.splitlines()) == 3


def test_a_queue_that_is_not_there_and_an_address_that_is_none_are_errors(
    broker: FakeBroker,
) -> None:
    missing = run(broker, "consume", "gone", "--until-empty")
    assert missing.exit_code == 3
    assert "no queue 'gone'" in missing.output
    words = ["publish", "a", "x", "--protocol", "grpc", "--address", "a:b:c"]
    wrong = CliRunner().invoke(main, words)
    assert wrong.exit_code == 2
    assert "--address: endpoints: 'a:b:c'" in wrong.output


@pytest.mark.parametrize("command", [["perf"], ["publish", "q", "x"], ["consume", "q"]])
def test_without_the_client_it_is_said_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "headrace_client", None)
    result = CliRunner().invoke(main, [*command, "--protocol", "grpc"])
    assert result.exit_code == 1
    assert "--protocol grpc needs the Python client: pip install" in result.output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnroutableError("x"), 3),
        (PublishRefusedError("x"), 1),
        (NotFoundError("x"), 3),
        (AccessRefusedError("x"), 4),
        (NotAuthenticatedError("x"), 4),
        (UnavailableError("x"), 5),
        (HeldBackError("x"), 5),
        (ExhaustedError("x"), 1),
    ],
)
def test_an_error_has_an_exit_code(error: Exception, code: int) -> None:
    assert failure(error)[1] == code
