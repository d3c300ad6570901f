"""Peers that come, go and move while a transport runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from e2e.harness.ports import free_addresses

from headrace_raftlog.transport.identity import StreamIdentity

pytestmark = pytest.mark.usefixtures("over_grpc")

Addresses = dict[int, str]
Identify = Callable[..., StreamIdentity]
Until = Callable[..., Awaitable[None]]


async def stop_all(nodes: list[Any]) -> None:
    for node in nodes:
        await node.stop()


def without(addresses: Addresses, *nodes: int) -> Addresses:
    return {node: address for node, address in addresses.items() if node not in nodes}


def test_stranger_is_told_why_and_is_up_once_all_know_it(
    node_type: Any, addresses: Addresses, until: Until
) -> None:
    async def body() -> None:
        known = without(addresses, 3)
        one, two = node_type(1, known), node_type(2, known)
        three = node_type(3, addresses)
        nodes = [one, two, three]
        for node in nodes:
            await node.start()
        await one.events.until(lambda: bool(one.events.strangers))
        assert one.events.strangers[0].node == 3
        link = three.transport.sessions[1].link
        await until(lambda: link.refusal == "node 3 may come later")
        await one.transport.set_peers(addresses)
        await two.transport.set_peers(addresses)
        await three.events.until(lambda: {(1, True, 1), (2, True, 1)} <= set(three.events.peers))
        await one.events.until(lambda: (3, True, 1) in one.events.peers)
        assert one.transport.send(3, b"x")
        await three.events.until(lambda: three.events.payloads == [(1, b"x")])
        assert link.refusal == ""
        assert (2, False, 1) not in one.events.peers
        await stop_all(nodes)

    asyncio.run(body())


def test_peer_that_is_dropped_is_down_and_calls_in_vain(
    node_type: Any, addresses: Addresses, until: Until
) -> None:
    async def body() -> None:
        nodes = one, _, three = [node_type(node, addresses) for node in (1, 2, 3)]
        for node in nodes:
            await node.start()
        for node in nodes:
            await node.events.until(lambda n=node: len(n.events.peers) == 2)
        disk = three.transport.identity.disk
        await one.transport.set_peers(without(addresses, 3), [(3, disk)])
        assert one.events.peers[-1] == (3, False, 1)
        assert not one.transport.send(3, b"x")
        await three.events.until(lambda: (1, False, 1) in three.events.peers)
        link = three.transport.sessions[1].link
        await until(lambda: "was removed from cluster 'test'" in link.refusal)
        assert three.events.removals > 0
        assert one.events.strangers == []
        assert (2, False, 1) not in three.events.peers
        await stop_all(nodes)

    asyncio.run(body())


def test_removed_disk_is_refused_though_its_node_is_known(
    node_type: Any, addresses: Addresses, identity_of: Identify, until: Until
) -> None:
    async def body() -> None:
        one = node_type(1, addresses)
        await one.start()
        await one.transport.set_peers(addresses, [(3, 77)])
        removed = node_type(3, addresses, identity=identity_of(3, disk=77))
        await removed.start()
        link = removed.transport.sessions[1].link
        await until(lambda: "was removed from cluster 'test'" in link.refusal)
        assert removed.events.removals > 0
        await removed.stop()
        other = node_type(3, addresses, identity=identity_of(3, disk=78))
        await other.start()
        await one.events.until(lambda: (3, True, 1) in one.events.peers)
        assert other.events.removals == 0
        await stop_all([one, other])

    asyncio.run(body())


def moved(addresses: Addresses) -> Addresses:
    """Return the addresses with another one for node 2."""
    return {**addresses, 2: free_addresses(1)[1]}


def test_peer_at_another_address_is_found_there(
    node_type: Any, addresses: Addresses, until: Until
) -> None:
    async def body() -> None:
        elsewhere = moved(addresses)
        one, two = node_type(1, addresses), node_type(2, elsewhere)
        await one.start()
        await two.start()
        await until(lambda: bool(two.transport.sessions[1].link.connected))
        assert one.events.peers == []
        await one.transport.set_peers(elsewhere)
        await one.events.until(lambda: one.events.peers == [(2, True, 1)])
        await stop_all([one, two])

    asyncio.run(body())


def test_peer_that_calls_says_where_it_is_now(
    node_type: Any, addresses: Addresses, identity_of: Identify
) -> None:
    async def body() -> None:
        elsewhere = moved(addresses)
        known = identity_of(2)
        says = StreamIdentity(known.cluster, 2, 1, known.disk, known.formed, "n2", elsewhere[2])
        one, two = node_type(1, addresses), node_type(2, elsewhere, identity=says)
        await one.start()
        await two.start()
        await one.events.until(lambda: one.events.peers == [(2, True, 1)])
        await stop_all([one, two])

    asyncio.run(body())
