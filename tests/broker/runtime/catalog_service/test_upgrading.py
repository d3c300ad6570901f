"""Proposals of an upgraded node that wait until all other nodes know them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import AnnounceNode, encode_request
from headrace_broker.catalog.request import Request, encode_envelope
from headrace_broker.catalog.result import Exists, Ok, UpgradePending
from headrace_broker.catalog.version import CATALOG_VERSION, CatalogVersionError
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.runtime.cluster.catalog_service import CatalogUnavailableError
from headrace_broker.runtime.cluster.version_gate import ANNOUNCEMENT_SECONDS_MAX

ADVICE = commands.DeleteAdvice("/", "q")


def says(node: int, catalog: int = CATALOG_VERSION) -> AnnounceNode:
    return AnnounceNode(node, MACHINE_VERSION, 70 + node, catalog_version=catalog)


async def announce(cluster: Any, *older: int) -> None:
    """Announce what all nodes run; the older ones know no catalog versions."""
    cluster.elect(1)
    for node, service in cluster.services.items():
        service.announce(says(node, 0 if node in older else CATALOG_VERSION))
    await cluster.settle()


def test_command_is_refused_until_the_last_node_is_upgraded(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await announce(cluster, 3)
        written = len(cluster.log)
        for node in (1, 2):
            result = await cluster.services[node].submit(ADVICE)
            assert isinstance(result, UpgradePending)
            assert "node 'n3' runs an older version: upgrade it" in result.text
        assert len(cluster.log) == written
        assert isinstance(await cluster.services[2].submit(commands.SetMaintenance(3, True)), Ok)
        cluster.services[3].announce(says(3))
        await cluster.settle()
        assert isinstance(await cluster.services[2].submit(ADVICE), Exists)
        assert len(cluster.digests()) == 1

    run(scenario)


def test_nodes_that_are_about_to_say_what_they_run_are_waited_for(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.elect(1)
        loop = asyncio.get_running_loop()
        drain = asyncio.create_task(cluster.services[2].submit(commands.SetMaintenance(1, True)))
        await asyncio.sleep(ANNOUNCEMENT_SECONDS_MAX / 2)
        assert not drain.done()
        await announce(cluster)
        assert isinstance(await drain, Ok)
        assert loop.time() < ANNOUNCEMENT_SECONDS_MAX

    run(scenario)


def test_node_that_never_says_anything_is_named(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.elect(1)
        for node in (1, 2):
            cluster.services[node].announce(says(node))
        await cluster.settle()
        began = asyncio.get_running_loop().time()
        result = await cluster.services[1].submit(commands.SetMaintenance(2, True))
        assert isinstance(result, UpgradePending)
        assert "node 'n3' has not said which release it runs" in result.text
        assert asyncio.get_running_loop().time() - began <= ANNOUNCEMENT_SECONDS_MAX + 0.1

    run(scenario)


def test_leader_proposes_nothing_that_another_node_forwards_too_early(
    run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Any) -> None:
        await announce(cluster, 3)
        written = len(cluster.log)
        leader = cluster.services[1]
        for number in (50, 51):
            leader.handle_forward(2, encode_request(Request(2, 1, number), ADVICE))
        unknown = msgspec.msgpack.encode({"do": "split_queue"})
        leader.handle_forward(2, encode_envelope(Request(2, 1, 52), unknown))
        await cluster.settle()
        assert len(cluster.log) == written
        assert leader.dropped_count == 3
        told = [text for text in caplog.messages if "catalog change held back" in text]
        assert len(told) == 2
        assert "'n3'" in told[0]

    run(scenario)


def test_command_that_was_overtaken_by_an_older_node_is_not_answered(run: Any) -> None:
    """The asking node has yet to hear that a node went back to an older release."""

    async def scenario(cluster: Any) -> None:
        await announce(cluster)
        cluster.deaf.add(2)
        cluster.services[3].announce(says(3, 0))
        await cluster.settle()
        task = asyncio.create_task(cluster.services[2].submit(ADVICE, seconds=5.0))
        await cluster.settle()
        cluster.deaf.clear()
        cluster.deliver()
        with pytest.raises(CatalogUnavailableError):
            await task
        assert not any(b"delete_advice" in data for data in cluster.log)

    run(scenario)


def test_committed_command_of_a_later_release_stops_the_node(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await announce(cluster)
        unknown = msgspec.msgpack.encode({"do": "split_queue"})
        cluster.log.append(encode_envelope(Request(2, 1, 90), unknown))
        with pytest.raises(CatalogVersionError, match="'split_queue'"):
            cluster.commit()

    run(scenario)


def test_move_onto_an_older_queue_machine_is_not_proposed(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.elect(1)
        for node in (1, 2):
            cluster.services[node].announce(says(node))
        cluster.services[3].announce(AnnounceNode(3, MACHINE_VERSION - 1, 73))
        await cluster.settle()
        declare = commands.DeclareQueue("/", "q", "quorum", preferred_node=1)
        queue = (await cluster.services[1].submit(declare)).value
        assert queue.members == (1,)
        move = commands.SetMembers("/", "q", queue.group, add=(3,))
        result = await cluster.services[1].submit(move)
        assert isinstance(result, UpgradePending)
        assert "node 'n3'" in result.text

    run(scenario)
