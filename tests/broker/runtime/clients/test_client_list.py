"""Connections of several nodes, with links that can be cut; no sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.broker.runtime.rpc_links import Links

from headrace_broker.catalog.event import VhostRemoved
from headrace_broker.model.definition import Vhost
from headrace_broker.model.limits import LISTING_TURN_ROWS
from headrace_broker.model.status import ChannelStatus
from headrace_broker.model.tls import TlsSession
from headrace_broker.runtime.clients.client_list import ClientList
from headrace_broker.runtime.contract.port import ConnectionControl, ConnectionInfo
from headrace_broker.runtime.rpc import correlator
from headrace_broker.runtime.rpc import listing as listings
from headrace_broker.runtime.rpc.listing import serve_rows
from headrace_broker.runtime.rpc.protocol import RpcError
from headrace_broker.runtime.rpc.question import Close, List


class Control(ConnectionControl):
    def __init__(self, channels: int) -> None:
        self.reasons: list[str] = []
        self._channels = channels

    def shut_down(self, reason: str) -> None:
        self.reasons.append(reason)

    def limits_changed(self) -> None: ...

    def channels(self, now_us: int) -> list[Any]:
        return [ChannelStatus(n, 0, 0, False, 0, 0) for n in range(1, self._channels + 1)]


class World:
    """Three nodes; a payload arrives within the call that sends it."""

    def __init__(self) -> None:
        self.names = {1: "n1", 2: "n2", 3: "n3"}
        self.connections: dict[int, dict[str, ConnectionInfo]] = {1: {}, 2: {}, 3: {}}
        self.links = Links(self.names)
        self.nodes = {node: self._node(node) for node in self.names}

    def _node(self, node: int) -> ClientList:
        peers = {peer: name for peer, name in self.names.items() if peer != node}
        rpc = self.links.rpcs[node]
        return ClientList(self.names[node], lambda: self.connections[node], peers, rpc)

    def connect(self, node: int, number: int, channels: int = 1) -> Control:
        info = ConnectionInfo(
            f"n{node}/1/{number}", f"10.0.0.{node}:{number} -> h:5672", f"10.0.0.{node}", 1700
        )
        info.user, info.vhost, info.mechanism = "guest", "/", "PLAIN"
        info.client_properties = {"product": "x", "raw": b"\xff", "nested": {"n": [b"a"]}}
        control = Control(channels)
        info.control = control
        self.connections[node][info.id] = info
        return control


@pytest.fixture
def world() -> World:
    return World()


def run(world: World, work: Callable[[ClientList], Any]) -> Any:
    """Make node 1 do something."""

    async def session() -> Any:
        async with asyncio.timeout(20):
            return await work(world.nodes[1])

    return asyncio.run(session())


def test_connections_of_all_nodes_are_listed(world):
    for node in (1, 2, 3):
        world.connect(node, 5000)
    world.connections[2]["n2/1/5000"].tls = TlsSession("TLSv1.3", "AES", "CN=a", "CN=ca", "then")
    listing = run(world, ClientList.everyone)
    assert (listing.missing, listing.left_out) == ((), 0)
    assert [row.connection.node for row in listing.rows] == ["n1", "n2", "n3"]
    status = listing.rows[1].connection
    assert (status.peer, status.local) == (("10.0.0.2", 5000), ("h", 5672))
    assert status.tls.subject == "CN=a"
    properties = {"product": "x", "raw": "/w==", "nested": {"n": ["a"]}}
    assert [row.connection.client_properties for row in listing.rows] == [properties] * 3


def test_channels_come_one_by_one_and_without_their_clients_properties(world):
    world.connect(1, 5000, channels=2)
    world.connect(2, 5000, channels=1)
    world.connections[1]["n1/1/5000"].control = None  # it is closing
    rows = run(world, lambda clients: clients.everyone(channels=True)).rows
    assert [(row.connection.node, row.channel.number) for row in rows] == [("n2", 1)]
    assert rows[0].connection.client_properties == {}


def test_a_long_listing_comes_in_pages(world, monkeypatch):
    monkeypatch.setattr(listings, "ANSWER_BYTES_MAX", 2000)
    for number in range(30):
        world.connect(2, number)
    rows = run(world, ClientList.everyone).rows
    assert [row.connection.peer[1] for row in rows] == list(range(30))
    assert len(world.links.sent) == 12  # one page of n3, five of n2, and the questions


def test_a_row_that_is_too_large_is_left_out_and_counted(world, monkeypatch):
    monkeypatch.setattr(listings, "ANSWER_BYTES_MAX", 2000)
    for number in range(20):
        world.connect(2, number)
    for number in (0, 7, 19):
        info = world.connections[2][f"n2/1/{number}"]
        info.client_properties = {"product": "x" * 3000}
    listing = run(world, ClientList.everyone)
    assert listing.left_out == 3
    ports = [row.connection.peer[1] for row in listing.rows]
    assert ports == [n for n in range(20) if n not in (0, 7, 19)]


def test_a_listing_is_bounded_and_says_how_much_it_lacks(world):
    for number in range(4):
        world.connect(1, number)
        world.connect(2, number)
    listing = run(world, lambda each: each.everyone(rows_max=5))
    assert len(listing.rows) == 5
    assert listing.left_out == 3


def test_nodes_that_are_down_or_silent_are_named(world, monkeypatch):
    monkeypatch.setattr(correlator, "ANSWER_SECONDS_MAX", 0.01)
    for node in (1, 2, 3):
        world.connect(node, 5000)
    world.links.down.add(2)
    world.links.deaf.add(3)
    listing = run(world, ClientList.everyone)
    assert listing.missing == ("n2", "n3")
    assert [row.connection.node for row in listing.rows] == ["n1"]
    assert run(world, lambda clients: clients.close("gone", "")) == (0, ("n2", "n3"))


@pytest.mark.parametrize("node", [1, 3])
@pytest.mark.parametrize("by", ["id", "name"])
def test_a_connection_is_closed_wherever_it_is(world, node, by):
    others = [world.connect(each, 6000) for each in (1, 2, 3)]
    control = world.connect(node, 5000)
    name = f"n{node}/1/5000" if by == "id" else f"10.0.0.{node}:5000 -> h:5672"
    assert run(world, lambda clients: clients.close(name, "too loud")) == (1, ())
    assert control.reasons == ["too loud"]
    assert [other.reasons for other in others] == [[], [], []]


def test_connections_whose_vhost_was_deleted_are_closed(world):
    kept, of_vhost = (world.connect(1, number) for number in (1, 2))
    world.connections[1]["n1/1/2"].vhost = "v"
    world.nodes[1].on_events([VhostRemoved(Vhost("v"))])
    assert (kept.reasons, of_vhost.reasons) == ([], ["vhost 'v' was deleted"])


def test_a_connection_that_is_closing_already_is_not_there(world):
    world.connect(1, 5000)
    world.connections[1]["n1/1/5000"].control = None
    assert run(world, lambda clients: clients.close("n1/1/5000", "")) == (0, ())


def test_without_a_reason_there_is_one(world):
    control = world.connect(2, 5000)
    run(world, lambda clients: clients.close("n2/1/5000", ""))
    assert control.reasons == ["Closed via management API"]


def test_a_long_listing_lets_others_have_their_turns(world: World) -> None:
    count = 4 * LISTING_TURN_ROWS
    world.connect(1, 1, channels=count)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def talk() -> int:
        beside = asyncio.create_task(others())
        listing = await world.nodes[1].everyone(channels=True)
        beside.cancel()
        return len(listing.rows)

    world.links.down = {2, 3}
    assert asyncio.run(talk()) == count
    assert turns >= 4


def test_a_node_whose_rows_are_not_understood_is_named(world: World) -> None:
    class Odd(msgspec.Struct):
        connection: int = 5

    world.connect(1, 5000)
    world.connect(3, 5000)
    rpc = world.links.rpcs[2]
    rpc.answering.handlers.clear()
    serve_rows(rpc, List, lambda question: iter([Odd()]))
    listing = run(world, ClientList.everyone)
    assert listing.missing == ("n2",)
    assert [row.connection.node for row in listing.rows] == ["n1", "n3"]


def test_a_node_that_refuses_to_close_is_named(world: World) -> None:
    def refuse(*_: Any) -> int:
        raise RpcError("odd", "no")

    world.links.rpcs[2].answering.handlers[Close] = refuse
    control = world.connect(3, 5)
    found = asyncio.run(world.nodes[1].close("n3/1/5", ""))
    assert found == (1, ("n2",))
    assert len(control.reasons) == 1
