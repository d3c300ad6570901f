"""Requests of gateways for lease groups, here and on other nodes."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.runtime.rpc_links import Links

from headrace_broker.codecs.batch import batch_count, check_batch, message_body, message_route
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.state.lease_effect import (
    HELD,
    LEASE_FENCED,
    LEASE_GONE,
    LEASE_OK,
    LEASE_OUT_OF_ORDER,
)
from headrace_broker.model.session import session_id
from headrace_broker.runtime.contract.port import PendingConfirm
from headrace_broker.runtime.lease import group_commands
from headrace_broker.runtime.lease.chunk import HEAD_BYTES, cut_chunk
from headrace_broker.runtime.lease.group_commands import GroupCommands, TooEarlyError
from headrace_broker.runtime.lease.leasing import Fetch, LeaseClient, fetch
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_broker.runtime.rpc import leader
from headrace_broker.runtime.rpc.leader import Leaders, LeaderUnavailableError, QueueGoneError

EVERYWHERE = pytest.mark.parametrize("node", [1, 2, 3], ids=["leader", "replica", "elsewhere"])
TTL = 60_000


def here(host, *asked):
    """Fetch from a replica that has all in memory."""
    return fetch(host, Entries(host.log), Fetch(7, *asked))


class Nodes:
    """A `LeaseClient` on each of a world's nodes."""

    def __init__(self, world, version=MACHINE_VERSION):
        self.world = world
        self.exists = True
        self.requests = 0
        self.links = Links((1, 2, 3), held=True)
        self.commands, self.clients = {}, {}
        for node in (1, 2, 3):
            hosts = {7: world.hosts[node]} if node in world.hosts else {}
            leaders = Leaders(
                self.links.rpcs[node], hosts, lambda queue: world.leader, lambda queue: self.exists
            )
            self.commands[node] = GroupCommands(leaders, self._numberer(node))
            self.clients[node] = LeaseClient(leaders, self.commands[node])
        world.watcher.version = version
        world.watcher.group_answered = lambda queue, answer: self.commands[world.leader].answered(
            answer
        )
        world.hosts[1].configure()
        world.settle_down()

    def _numberer(self, node):
        def number():
            self.requests += 1
            return session_id(node, 1, self.requests)

        return number

    def carry(self):
        """Carry payloads between the nodes, and apply new entries."""
        self.links.carry()
        self.world.settle_down()

    def run(self, work):
        """Run a coroutine, carrying whenever it waits."""

        async def drive():
            task = asyncio.ensure_future(work)
            while not task.done():
                await asyncio.sleep(0)
                self.carry()
            return await task

        return asyncio.run(drive())


@pytest.fixture
def nodes(world, listener, publishes):
    """Three nodes whose queue has six messages in two entries."""
    nodes = Nodes(world)
    session = world.open(1, listener)
    for bodies in ((b"a", b"bb", b"ccc"), (b"d", b"", b"f")):
        session.publish(publishes(*bodies), PendingConfirm(1, 3))
        session.flush()
        world.settle_down()
    return nodes


@pytest.fixture
def at_once(monkeypatch):
    """Ask again without a pause, and give up soon."""
    monkeypatch.setattr(leader, "ATTEMPT_SECONDS", 0.01)
    monkeypatch.setattr(leader, "PAUSE_SECONDS", 0.0)


def bodies(fetched):
    assert check_batch(fetched.batch, 0)
    count = batch_count(fetched.batch, 0)
    assert len(fetched.heads) == count * HEAD_BYTES
    return [message_body(fetched.batch, 0, position) for position in range(count)]


def heads(fetched):
    """Id, arrival, acquisitions, failures, size and priority of each message."""
    fields = (8, 8, 4, 4, 4, 4)
    rows = []
    for base in range(0, len(fetched.heads), HEAD_BYTES):
        row, at = [], base
        for size in fields:
            row.append(int.from_bytes(fetched.heads[at : at + size], "big"))
            at += size
        rows.append(tuple(row))
    return rows


@EVERYWHERE
def test_group_works_from_every_node(nodes, node):
    client, queue = nodes.clients[node], nodes.world.queue
    opened = nodes.run(client.open_group(queue, b"g", TTL, b"a"))
    assert (opened.status, opened.group.epoch) == (LEASE_OK, 1)
    leased = nodes.run(client.lease(queue, b"g", 1, 1, 4, 1 << 20, TTL))
    assert (leased.status, leased.count, leased.byte_count, leased.ready) == (LEASE_OK, 4, 7, 2)
    fetched = nodes.run(client.fetch(queue, b"g", 1, 1, 0, 100, 1 << 20))
    assert (fetched.status, fetched.total) == (LEASE_OK, 4)
    assert bodies(fetched) == [b"a", b"bb", b"ccc", b"d"]
    now = nodes.world.clock.ms
    assert heads(fetched) == [
        (number, now, 0, 0, size, 0) for number, size in ((1, 1), (2, 2), (3, 3), (4, 1))
    ]
    assert message_route(fetched.batch, 0, 2) == b"\x00\x04work"
    rest = nodes.run(client.fetch(queue, b"g", 1, 1, 3, 100, 1 << 20))
    assert bodies(rest) == [b"d"]
    renewed = nodes.run(client.renew(queue, b"g", 1, 5000))
    assert renewed.group.deadline_ms == now + 5000
    (group,) = nodes.run(client.describe(queue))
    assert [(lease.number, lease.state, lease.count) for lease in group.leases] == [(1, HELD, 4)]
    settled = nodes.run(client.settle(queue, b"g", 1, 1))
    assert (settled.status, settled.count) == (LEASE_OK, 4)
    closed = nodes.run(client.close_group(queue, b"g", 1))
    assert (closed.status, closed.group) == (LEASE_OK, None)
    for host in nodes.world.hosts.values():
        assert (host.machine.ready_count, host.machine.unsettled_count) == (2, 0)
    assert nodes.world.hosts[1].machine.digest() == nodes.world.hosts[2].machine.digest()


@EVERYWHERE
def test_what_has_expired_is_told_with_its_messages(nodes, node):
    client, queue, world = nodes.clients[node], nodes.world.queue, nodes.world
    nodes.run(client.open_group(queue, b"g", TTL, b"a"))
    nodes.run(client.lease(queue, b"g", 1, 1, 4, 1 << 20, TTL))
    world.clock.ms += TTL
    world.hosts[1].tick(world.clock.ms)
    world.settle_down()
    assert [(gone.name, gone.lease.number) for gone in world.watcher.leases_gone] == [(b"g", 1)]
    assert nodes.run(client.fetch(queue, b"g", 1, 1, 0, 9, 99)).status == LEASE_GONE
    settled = nodes.run(client.settle(queue, b"g", 1, 1))
    assert settled.status == LEASE_GONE
    assert [(gone.number, gone.count, gone.rows) for gone in settled.gone] == [(1, 4, [1, 5])]


def test_other_driver_is_fenced(nodes):
    queue = nodes.world.queue
    nodes.run(nodes.clients[1].open_group(queue, b"g", TTL, b"a"))
    nodes.run(nodes.clients[2].open_group(queue, b"g", TTL, b"b"))
    assert nodes.run(nodes.clients[1].lease(queue, b"g", 1, 1, 4, 99, TTL)).status == LEASE_FENCED
    assert nodes.run(nodes.clients[3].fetch(queue, b"g", 1, 1, 0, 9, 99)).status == LEASE_FENCED
    status = nodes.run(nodes.clients[3].fetch(queue, b"g", 2, 1, 0, 9, 99)).status
    assert status == LEASE_OUT_OF_ORDER


@EVERYWHERE
def test_command_that_is_lost_with_its_leader_is_asked_again(nodes, node, at_once):
    world, queue, client = nodes.world, nodes.world.queue, nodes.clients[node]
    nodes.run(client.open_group(queue, b"g", TTL, b"a"))

    async def scenario():
        task = asyncio.ensure_future(client.lease(queue, b"g", 1, 1, 4, 1 << 20, TTL))
        while len(world.log) == before:
            await asyncio.sleep(0)
            nodes.links.carry()
        world.lose_uncommitted()
        world.lead(2)
        while not task.done():
            await asyncio.sleep(0)
            nodes.carry()
        return await task

    before = len(world.log)
    leased = asyncio.run(scenario())
    assert (leased.status, leased.count) == (LEASE_OK, 4)
    assert world.hosts[1].machine.leased_count == world.hosts[2].machine.leased_count == 4


@pytest.mark.parametrize("node", [2, 3])
def test_answer_that_is_lost_is_asked_for_again_and_nothing_is_done_twice(nodes, node, at_once):
    world, queue, client = nodes.world, nodes.world.queue, nodes.clients[node]
    nodes.run(client.open_group(queue, b"g", TTL, b"a"))

    async def scenario():
        nodes.links.lost = ["answer"] * 3
        task = asyncio.ensure_future(client.lease(queue, b"g", 1, 1, 4, 1 << 20, TTL))
        while not task.done():
            await asyncio.sleep(0)
            nodes.carry()
        return await task

    leased = asyncio.run(scenario())
    assert nodes.links.lost == []
    assert (leased.status, leased.count) == (LEASE_OK, 4)
    assert world.hosts[1].machine.leased_count == 4


@EVERYWHERE
def test_log_without_room_is_asked_again(nodes, node, at_once):
    world, queue, client = nodes.world, nodes.world.queue, nodes.clients[node]
    world.busy = True

    async def scenario():
        task = asyncio.ensure_future(client.open_group(queue, b"g", TTL, b"a"))
        for _ in range(50):
            await asyncio.sleep(0)
            nodes.carry()
        assert not task.done()
        world.busy = False
        while not task.done():
            await asyncio.sleep(0)
            nodes.carry()
        return await task

    assert asyncio.run(scenario()).status == LEASE_OK


def test_queue_that_is_gone_or_without_leader_is_said_so(nodes, at_once, monkeypatch):
    monkeypatch.setattr(leader, "ANSWER_SECONDS_MAX", 0.05)
    queue, client = nodes.world.queue, nodes.clients[3]
    nodes.world.leader = 0
    with pytest.raises(LeaderUnavailableError):
        nodes.run(client.open_group(queue, b"g", TTL, b"a"))
    with pytest.raises(LeaderUnavailableError):
        nodes.run(client.describe(queue))
    nodes.exists = False
    with pytest.raises(QueueGoneError):
        nodes.run(client.open_group(queue, b"g", TTL, b"a"))
    with pytest.raises(QueueGoneError):
        nodes.run(client.fetch(queue, b"g", 1, 1, 0, 1, 1))


def test_requests_that_wait_at_one_queue_hold_up_no_other(world, at_once, monkeypatch):
    monkeypatch.setattr(group_commands, "LEASE_REQUESTS_MAX", 1)
    monkeypatch.setattr(leader, "ANSWER_SECONDS_MAX", 1.0)
    nodes = Nodes(world)
    queue, client = world.queue, nodes.clients[3]
    led_by_nobody = msgspec.structs.replace(queue, name="other", group=8)

    async def scenario():
        waiting = [
            asyncio.ensure_future(client.open_group(led_by_nobody, b"g", TTL, b"a"))
            for _ in range(2)
        ]
        await asyncio.sleep(0)
        answer = await client.open_group(queue, b"g", TTL, b"a")
        assert not any(each.done() for each in waiting)
        for each in waiting:
            each.cancel()
        return answer

    assert nodes.run(scenario()).status == LEASE_OK


@EVERYWHERE
def test_queue_with_a_replica_of_an_earlier_release_takes_no_groups(world, node):
    nodes = Nodes(world, version=2)
    with pytest.raises(TooEarlyError, match="not all of its replicas"):
        nodes.run(nodes.clients[node].open_group(world.queue, b"g", TTL, b"a"))
    assert world.watcher.rejected == []


# Chunks


@settings(max_examples=60, deadline=None)
@given(
    entries=st.lists(st.lists(st.integers(0, 90), min_size=1, max_size=5), min_size=1, max_size=6),
    removed=st.sets(st.integers(1, 20)),
    most=st.integers(1, 9),
    byte_count=st.integers(1, 300),
)
def test_chunks_together_are_the_lease(
    make_world, make_listener, publishes, entries, removed, most, byte_count
):
    world = make_world()
    nodes = Nodes(world)
    session = world.open(1, make_listener())
    wanted: list[bytes] = []
    for sizes in entries:
        made = [bytes([len(wanted) + at]) * size for at, size in enumerate(sizes)]
        wanted += made
        session.publish(publishes(*made), PendingConfirm(1, len(sizes)))
        session.flush()
        world.settle_down()
    world.run(session.remove(sorted(removed)))
    wanted = [body for number, body in enumerate(wanted, 1) if number not in removed]
    if not wanted:
        return
    client = nodes.clients[1]
    nodes.run(client.open_group(world.queue, b"g", TTL, b"a"))
    nodes.run(client.lease(world.queue, b"g", 1, 1, 1000, 1 << 20, TTL))
    found: list[bytes] = []
    while len(found) < len(wanted):
        some = here(world.hosts[1], b"g", 1, 1, len(found), most, byte_count)
        assert some.total == len(wanted)
        cut = bodies(some)
        assert 1 <= len(cut) <= most
        assert len(some.batch) <= byte_count + 4 + 5 * len(cut) + 90 + 20
        assert [row[4] for row in heads(some)] == [len(body) for body in cut]
        found += cut
    assert found == wanted
    assert here(world.hosts[1], b"g", 1, 1, len(found), most, byte_count).batch == b""


def test_chunk_is_bounded_whatever_is_asked(nodes):
    client, queue = nodes.clients[1], nodes.world.queue
    nodes.run(client.open_group(queue, b"g", TTL, b"a"))
    nodes.run(client.lease(queue, b"g", 1, 1, 6, 1 << 20, TTL))
    assert len(bodies(here(nodes.world.hosts[1], b"g", 1, 1, 0, 1 << 60, 1 << 60))) == 6
    assert len(bodies(here(nodes.world.hosts[1], b"g", 1, 1, 0, 0, 0))) == 1
    _, messages = nodes.world.hosts[1].machine.leased(b"g", 1, 1)
    assert cut_chunk(Entries(nodes.world.hosts[1].log), messages, 5, 9, 9).count == 1


def test_the_wait_behind_others_is_bounded(nodes, monkeypatch):
    monkeypatch.setattr(group_commands, "LEASE_REQUESTS_MAX", 1)
    monkeypatch.setattr(leader, "ANSWER_SECONDS_MAX", 0.05)

    async def scenario():
        client, queue = nodes.clients[2], nodes.world.queue
        asked = [asyncio.ensure_future(client.open_group(queue, b"g", TTL, b"a")) for _ in "ab"]
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 5)

    first, second = asyncio.run(scenario())  # nothing is carried
    assert str(first).startswith("no leader of queue 'work' answers")
    assert isinstance(second, LeaderUnavailableError)
    assert "had no turn" in str(second)
