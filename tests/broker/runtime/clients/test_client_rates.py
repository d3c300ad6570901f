"""Counters and rates of connections, channels, exchanges and vhosts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace_broker.catalog.event import ExchangeAdded, VhostRemoved
from headrace_broker.model.definition import Exchange, Vhost
from headrace_broker.model.limits import RATED_CLIENTS_MAX, SAMPLE_TURN_ROWS
from headrace_broker.model.stats import (
    BYTE_FIGURES,
    CLIENT_FIGURES,
    CONNECTION_FIGURES,
    EXCHANGE_FIGURES,
    VHOST_FIGURES,
    ExchangeStats,
    VhostStats,
)
from headrace_broker.runtime.clients.client_rates import ClientRates
from headrace_broker.runtime.clients.sample_turns import SampleTurns
from headrace_broker.runtime.contract.port import ConnectionControl, ConnectionInfo
from headrace_broker.runtime.contract.traffic import ClientTraffic, ExchangeTraffic
from headrace_broker.runtime.routing.router import Router
from headrace_broker.runtime.rpc.question import Stats

TO_X = b"\x01x\x00"


class Control(ConnectionControl):
    def __init__(self) -> None:
        self.open: dict[int, ClientTraffic] = {}

    def shut_down(self, reason: str) -> None: ...

    def limits_changed(self) -> None: ...

    def channels(self, now_us: int) -> list[Any]:
        return []

    def traffic(self) -> list[tuple[int, ClientTraffic]]:
        return list(self.open.items())


class View:
    """Two vhosts."""

    def __init__(self) -> None:
        self.names = ["/", "v"]

    def vhosts(self) -> list[Vhost]:
        return [Vhost(name) for name in self.names]


class World:
    def __init__(self) -> None:
        self.view = View()
        self.router = Router()
        self.connections: dict[str, ConnectionInfo] = {}
        self.rates = ClientRates(self.connections, self.router, self.view)  # type: ignore[arg-type]
        self.now = 0

    def connect(self, name: str, vhost: str = "v") -> tuple[ConnectionInfo, Control]:
        info = ConnectionInfo(name, f"{name} -> here", name, 0)
        info.vhost = vhost
        control = Control()
        info.control = control
        self.connections[name] = info
        return info, control

    def sample(self, lengths: dict[str, tuple[int, int, int]] | None = None) -> None:
        self.now += 5_000
        asyncio.run(self.rates.sample(lambda: self.now, lengths or {}, SampleTurns(0)))

    def vhost(self, name: str) -> dict[str, int]:
        for row in self.rates.rows(Stats(vhosts=True)):
            if isinstance(row, VhostStats) and row.name == name:
                return dict(zip(VHOST_FIGURES, row.last[-1][1:], strict=True))
        return {}


@pytest.fixture
def world() -> World:
    return World()


def test_counters_are_those_that_the_figures_name():
    for names, traffic in (
        (CLIENT_FIGURES, ClientTraffic()),
        (EXCHANGE_FIGURES, ExchangeTraffic()),
    ):
        for at, name in enumerate(names, 1):
            setattr(traffic, name, at)
        assert traffic.counts() == tuple(range(1, len(names) + 1))
    info = ConnectionInfo("c", "c", "c", 0)
    for at, name in enumerate(BYTE_FIGURES, 1):
        setattr(info, name, at)
    assert info.byte_counts() == (1, 2, 3, 4)


def test_one_traffic_is_added_to_another_with_all_its_counters():
    total, one = ClientTraffic(), ClientTraffic()
    for at, name in enumerate(CLIENT_FIGURES, 1):
        setattr(one, name, at)
    total.add(one)
    total.add(one)
    assert total.counts() == tuple(2 * at for at in range(1, len(CLIENT_FIGURES) + 1))


def test_rates_are_those_between_the_last_two_samples(world):
    info, control = world.connect("c")
    control.open[3] = traffic = ClientTraffic()
    world.sample()
    assert world.rates.rates("c") == ()
    traffic.publish += 50
    traffic.delivered(b"\0\1\1", no_ack=True)
    info.recv_oct += 1000
    world.sample()
    of_channel = dict(zip(CLIENT_FIGURES, world.rates.rates("c", 3), strict=True))
    assert (of_channel["publish"], of_channel["deliver_no_ack"]) == (10.0, 0.6)
    assert (of_channel["redeliver"], of_channel["deliver"]) == (0.4, 0.0)
    of_connection = dict(zip(CONNECTION_FIGURES, world.rates.rates("c"), strict=True))
    assert (of_connection["publish"], of_connection["recv_oct"]) == (10.0, 200.0)
    world.sample()
    assert set(world.rates.rates("c", 3)) == {0.0}


def test_a_channel_that_is_gone_still_counts_for_its_connection(world):
    info, control = world.connect("c")
    control.open[1] = traffic = ClientTraffic()
    world.sample()
    traffic.publish += 5
    info.passed.add(control.open.pop(1))
    world.sample()
    assert world.rates.rates("c")[CONNECTION_FIGURES.index("publish")] == 1.0
    assert world.rates.rates("c", 1) == ()


def test_what_begins_anew_has_no_rate_and_none_is_negative(world):
    _, control = world.connect("c")
    control.open[1] = ClientTraffic()
    control.open[1].publish += 5
    world.sample()
    control.open[1] = ClientTraffic()
    world.sample()
    assert world.rates.rates("c", 1) == ()


def test_no_more_clients_have_rates_than_there_is_room_for(world):
    _, control = world.connect("c")
    same = ClientTraffic()
    control.open = dict.fromkeys(range(1, RATED_CLIENTS_MAX + 10), same)
    world.sample()
    world.sample()
    assert world.rates.rates("c", RATED_CLIENTS_MAX - 1)
    assert world.rates.rates("c", RATED_CLIENTS_MAX) == ()
    control.open = {
        RATED_CLIENTS_MAX + 50: same,
        **control.open,
    }  # those that are known stay so, whoever comes first
    world.sample()
    world.sample()
    assert world.rates.rates("c", RATED_CLIENTS_MAX - 1)
    control.open.pop(1)  # and there is room for another one once one is gone
    world.sample()
    world.sample()
    world.sample()
    assert world.rates.rates("c", RATED_CLIENTS_MAX - 1)
    assert world.rates.rates("c", RATED_CLIENTS_MAX + 50)
    assert world.rates.rates("c", 1) == ()


def test_a_sample_of_many_channels_lets_others_have_their_turns(world):
    _, control = world.connect("c")
    control.open = {number: ClientTraffic() for number in range(1, 10 * SAMPLE_TURN_ROWS)}
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def beside() -> None:
        task = asyncio.create_task(others())
        await world.rates.sample(lambda: 5_000, {}, SampleTurns(0))
        task.cancel()

    asyncio.run(beside())
    assert turns >= 10


def test_a_sample_that_was_spread_long_enough_pauses_no_more() -> None:
    async def late() -> None:
        turns = SampleTurns(pause_s=3600.0)
        turns._until = 0.0
        async with asyncio.timeout(30):
            for _ in range(10 * SAMPLE_TURN_ROWS):
                await turns.row()

    asyncio.run(late())


def test_a_vhost_has_what_its_open_and_its_closed_connections_have_passed(world):
    info, control = world.connect("c")
    other, _ = world.connect("d", "/")
    other.recv_oct += 7
    control.open[1] = ClientTraffic()
    control.open[1].publish += 5
    world.sample({"v": (3, 1, 0)})
    found = world.vhost("v")
    assert (found["publish"], found["recv_oct"]) == (5, 0)
    assert (found["messages_ready"], found["messages_unacknowledged"]) == (3, 1)
    del world.connections["c"]
    world.rates.closed(info)
    world.connect("e")[0].passed.publish += 2
    world.sample()
    assert world.vhost("v")["publish"] == 7
    assert world.vhost("/")["recv_oct"] == 7


def test_a_vhost_that_is_gone_is_forgotten(world):
    info, control = world.connect("c")
    control.open[1] = ClientTraffic()
    control.open[1].publish += 5
    world.sample()
    del world.connections["c"]
    world.rates.closed(info)
    world.view.names = ["/"]
    world.sample()
    assert world.vhost("v") == {}
    world.view.names = ["/", "v"]
    world.connect("d")[0].recv_oct += 1
    world.sample()
    assert world.vhost("v")["publish"] == 0


def test_what_is_published_to_an_exchange_counts_there_once_and_out_for_each_queue(world):
    world.router.on_events([ExchangeAdded(Exchange("v", "x", "fanout"))])
    route = world.router.route("v", TO_X)
    route.traffic.routed(10, 3)
    assert world.router.route("v", TO_X).traffic is route.traffic
    world.router.route("v", b"\x04gone\x00").traffic.routed(1, 1)  # there is no such exchange
    world.sample()
    rows = list(world.rates.rows(Stats(exchanges=None)))
    assert [(row.vhost, row.name) for row in rows if isinstance(row, ExchangeStats)] == [("v", "x")]
    assert rows[0].last[-1][1:] == (10, 30)
    assert list(world.rates.rows(Stats(exchanges=(("v", "y"),)))) == []
    assert list(world.rates.rows(Stats())) == []
    world.router.on_events([VhostRemoved(Vhost("v"))])
    world.sample()
    assert list(world.rates.rows(Stats(exchanges=None))) == []
