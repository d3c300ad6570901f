"""Looking at the messages of a queue without taking them, here and from other nodes."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.runtime.rpc_links import Links

from headrace_broker.model.definition import QUEUE_QUORUM, Queue
from headrace_broker.model.limits import (
    BROWSED_BYTES_MAX,
    BROWSED_MESSAGES_MAX,
    BROWSED_READ_BYTES_MAX,
)
from headrace_broker.runtime.inspect.browsing import Browse, BrowsingClient, page_of
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_broker.runtime.rpc import leader
from headrace_broker.runtime.rpc.leader import NOT_LEADING, Leaders, LeaderUnavailableError
from headrace_broker.runtime.rpc.protocol import RpcError

QUEUE = Queue("/", "work", QUEUE_QUORUM, 7, (1, 2))


@pytest.fixture
def fill(world, listener, publishes):
    """Publish messages with the given bodies, all in one entry."""
    session = world.open(1, listener)

    def publish(*bodies):
        session.publish(publishes(*bodies), None)
        session.flush()
        world.settle_down()

    return publish


def waiting(host, after, limit, body_bytes):
    """Return a page of a replica that has all in memory."""
    return page_of(host, Entries(host.log), after, limit, body_bytes)


def bodies(page):
    return [message.body for message in page.messages]


def test_messages_come_by_pages_and_stay(world, fill):
    fill(b"a", b"b")
    fill(b"c", b"d", b"e")
    host = world.hosts[1]
    page = waiting(host, 0, 2, 100)
    assert (bodies(page), page.more) == ([b"a", b"b"], True)
    page = waiting(host, page.messages[-1].id, 2, 100)
    assert (bodies(page), page.more) == ([b"c", b"d"], True)
    page = waiting(host, page.messages[-1].id, 2, 100)
    assert (bodies(page), page.more) == ([b"e"], False)
    assert host.machine.ready_count == 5
    assert waiting(host, 99, 2, 100) == ([], False)


def test_a_message_says_what_became_of_it_before(world, fill, listener):
    fill(b"hello")
    session = world.open(2, listener)
    run, _ = world.run(session.get())
    session.settle(0, 2, run.first, run.first)
    session.flush()
    world.settle_down()
    message = waiting(world.hosts[1], 0, 10, 3).messages[0]
    assert (message.id, message.byte_count, message.body) == (1, 5, b"hel")
    assert (message.acquired_count, message.delivery_count, message.priority) == (1, 0, 0)
    assert (message.route, message.properties) == (b"\x00\x04work", b"\x00\x00")
    assert message.arrived_ms == 1_000_000  # the clock of the test


def test_pages_are_bounded(world, fill):
    fill(*[b""] * (BROWSED_MESSAGES_MAX + 5))
    page = waiting(world.hosts[1], 0, 10**6, 0)
    assert (len(page.messages), page.more) == (BROWSED_MESSAGES_MAX, True)
    assert len(waiting(world.hosts[1], 0, 0, 0).messages) == 1


def test_a_page_ends_where_its_bytes_do_but_has_one_message(world, fill):
    half = bytes(BROWSED_BYTES_MAX // 2)
    fill(half + half, half, half, half)
    first = waiting(world.hosts[1], 0, 10, 1 << 30)
    assert [message.id for message in first.messages] == [1]
    assert first.more
    second = waiting(world.hosts[1], 1, 10, 1 << 30)
    assert [message.id for message in second.messages] == [2]
    short = waiting(world.hosts[1], 0, 10, 5)
    assert (len(short.messages), short.more) == (4, False)


def test_a_page_ends_where_enough_was_read(world, fill):
    for _ in range(5):
        fill(bytes(BROWSED_READ_BYTES_MAX // 2))
    page = waiting(world.hosts[1], 0, 10, 1)
    assert (len(page.messages), page.more) == (2, True)


def browsers(world, links):
    """Return clients on both nodes, of which the first leads."""
    return {
        node: BrowsingClient(
            Leaders(links.rpcs[node], {7: world.hosts[node]}, lambda q: 1, lambda q: True)
        )
        for node in (1, 2)
    }


def test_another_node_asks_the_leader(world, fill):
    fill(b"a", b"b", b"c")
    clients = browsers(world, Links((1, 2), soon=True))
    here = asyncio.run(clients[1].ask(QUEUE, 1, 1, 100))
    there = asyncio.run(clients[2].ask(QUEUE, 1, 1, 100))
    assert here == there
    assert (bodies(there), there.more) == ([b"b"], True)


def test_a_node_that_does_not_lead_says_so(world):
    links = Links((1, 2))
    browsers(world, links)
    with pytest.raises(RpcError) as refused:
        asyncio.run(links.rpcs[1].ask(2, Browse(7, 0, 1, 0)))
    assert refused.value.failure == NOT_LEADING


@pytest.mark.parametrize("node", [1, 2], ids=["here", "elsewhere"])
def test_a_page_on_a_slow_disk_is_whole_once_it_was_read(world, fill, node):
    for body in (b"a", b"b", b"c"):
        fill(body)
    world.disk_is_slow = True
    clients = browsers(world, Links((1, 2)))

    async def scenario():
        task = asyncio.ensure_future(clients[node].ask(QUEUE, 0, 10, 100))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        world.read_all()
        return await task

    page = asyncio.run(scenario())
    assert (bodies(page), page.more) == ([b"a", b"b", b"c"], False)


def test_a_page_of_a_hung_disk_is_refused_with_the_reason(world, fill, monkeypatch):
    monkeypatch.setattr(leader, "ANSWER_SECONDS_MAX", 0.01)
    fill(b"a")
    world.disk_is_slow = True
    links = Links((1, 2))
    client = browsers(world, links)[1]
    with pytest.raises(LeaderUnavailableError, match="the disk does not give back messages"):
        asyncio.run(client.ask(QUEUE, 0, 10, 100))
    assert links.sent == []
    assert [waiting for waiting in world.reading.values() if waiting] == []
