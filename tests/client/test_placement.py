"""Streams begin at the node that leads their queue, where that can be found out."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import grpc
import pytest

from headrace_client import placement
from headrace_protos.broker.v1 import topology_pb2 as topology


def led_by(node: str) -> topology.QueueDescription:
    return topology.QueueDescription(name="q", leader=node)


def both_know(first: Any, second: Any, node: str) -> None:
    """Both brokers have the queue, and say who leads it."""
    for broker in (first, second):
        broker.queues["q"] = deque([b"x"])
        broker.answers["DescribeQueue"] = led_by(node)


def test_publishers_and_consumers_begin_at_the_leader(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        both_know(first, second, "n2")
        async with client.publisher(routing_key="q") as publisher:
            assert publisher.node == "n2"
        async with client.consumer("q") as consumer:
            assert consumer.node == "n2"
        assert client.endpoint == first.endpoint  # of all other calls
        assert client.link.nodes == {first.endpoint: "n1", second.endpoint: "n2"}
        asked = [name for name, _ in second.calls]
        assert asked == ["DescribeExchange"]  # who it is, once

    play_two(scenario)


def test_who_does_not_want_that_goes_to_the_preferred_node(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        both_know(first, second, "n2")
        async with client.publisher(routing_key="q", at_leader=False) as publisher:
            assert publisher.node == "n1"
        async with client.consumer("q", at_leader=False) as consumer:
            assert consumer.node == "n1"
        async with client.publisher("x", "q") as publisher:  # to any number of queues
            assert publisher.node == "n1"
        assert [name for name, _ in first.calls] == ["DescribeExchange"]  # of connect

    play_two(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        led_by(""),  # it is being elected
        led_by("n9"),  # which has no endpoint here
        (grpc.StatusCode.NOT_FOUND, "no queue 'q'", "NOT_FOUND"),
        (grpc.StatusCode.PERMISSION_DENIED, "no", "ACCESS_REFUSED"),
    ],
)
def test_where_the_leader_is_not_known_any_node_does(play_two: Any, answer: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        first.answers["DescribeQueue"] = answer
        async with client.publisher(routing_key="q") as publisher:
            assert publisher.node == "n1"

    play_two(scenario)


def test_a_leader_that_nobody_tells_in_time_is_not_waited_for(
    play_two: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "LEADER_SECONDS", 0.01)

    async def scenario(first: Any, second: Any, client: Any) -> None:
        first.answers["DescribeQueue"] = second.answers["DescribeQueue"] = asyncio.Event()
        async with client.publisher(routing_key="q") as publisher:
            assert publisher.node in ("n1", "n2")

    play_two(scenario)


def test_a_leader_that_dies_is_not_looked_for_again(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        both_know(first, second, "n2")
        async with client.publisher(routing_key="q") as publisher:
            await second.stop()
            await (await publisher.publish(b"y"))
            assert publisher.node == "n1"
        assert first.queues["q"][-1] == b"y"
        assert client.link.endpoint_of("n2") is None

    play_two(scenario)


def test_a_leader_that_cannot_be_reached_is_passed_over(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        both_know(first, second, "n2")
        await second.stop()
        client.link.nodes[second.endpoint] = "n2"
        async with client.publisher(routing_key="q") as publisher:
            assert publisher.node == "n1"

    play_two(scenario)
