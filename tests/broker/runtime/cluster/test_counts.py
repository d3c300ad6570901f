"""Asking leaders how much is in a queue."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.runtime.rpc_links import Links

from headrace_broker.core.queue.command.leader_command import encode_tick
from headrace_broker.core.queue.command.lease_command import encode_lease, encode_open_group
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.settings import (
    DEAD_LETTER_AT_LEAST_ONCE,
    RETRY_ALL,
    QueueSettings,
)
from headrace_broker.model.definition import QUEUE_QUORUM, Queue
from headrace_broker.model.status import QueueCounts
from headrace_broker.runtime.cluster.counts import AskCounts, CountsClient
from headrace_broker.runtime.rpc import leader as module
from headrace_broker.runtime.rpc.leader import (
    NOT_LEADING,
    Leaders,
    LeaderUnavailableError,
    QueueGoneError,
)
from headrace_broker.runtime.rpc.protocol import RpcError

QUEUE = Queue("/", "work", QUEUE_QUORUM, 7, (1, 2))


def three(counts: QueueCounts) -> tuple[int, int, int]:
    return counts.ready, counts.unsettled, counts.consumers


class Pair:
    """Nodes 1 and 2 that carry each other's payloads in the next turn of the loop."""

    def __init__(self, world):
        self.world = world
        self.located = [1]
        self.deleted = []
        self.links = Links((1, 2), soon=True)
        self.leaders = {node: self._leaders(node) for node in (1, 2)}
        self.clients = {node: CountsClient(each) for node, each in self.leaders.items()}

    def _leaders(self, node):
        hosts = {7: self.world.hosts[node]}
        locate = (lambda queue: 0) if node == 1 else (lambda queue: self.located[0])
        return Leaders(self.links.rpcs[node], hosts, locate, self.exists)

    def exists(self, queue):
        return queue not in self.deleted

    @property
    def requests(self):
        return [kind for _, _, kind in self.links.sent].count("counts")

    @property
    def outstanding(self):
        return self.links.rpcs[2].outstanding


@pytest.fixture
def pair(world, publishes, listener):
    """Two nodes; node 1 leads a queue with two messages."""
    session = world.open(1, listener)
    session.publish(publishes(b"a", b"b"), None)
    session.flush()
    world.settle_down()
    return Pair(world)


@pytest.fixture
def hurried(monkeypatch):
    """Let the pauses be short and the patience too."""
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(module, "ATTEMPT_SECONDS", 0.0)
    monkeypatch.setattr(module, "ANSWER_SECONDS_MAX", 0.01)


def test_leader_here_answers_at_once(pair):
    assert three(asyncio.run(pair.clients[1].ask(QUEUE))) == (2, 0, 0)
    assert pair.requests == 0


def test_leader_elsewhere_is_asked(pair):
    assert three(asyncio.run(pair.clients[2].ask(QUEUE))) == (2, 0, 0)
    assert pair.requests == 1
    assert pair.outstanding == 0


@pytest.mark.parametrize("node", [1, 2])
def test_what_is_leased_is_among_the_unsettled(pair, node):
    pair.world.watcher.version = MACHINE_VERSION
    pair.world.hosts[1].configure()
    pair.world.hosts[1].propose(encode_open_group(1, b"g", 60_000, b"a"))
    pair.world.hosts[1].propose(encode_lease(2, b"g", 1, 1, 1, 1, 60_000))
    pair.world.settle_down()
    counts = asyncio.run(pair.clients[node].ask(QUEUE))
    assert (counts.ready, counts.unsettled, counts.leased) == (1, 1, 1)


@pytest.mark.parametrize("node", [1, 2])
def test_what_is_delayed_or_dead_keeps_a_queue_from_being_empty(pair, node, listener, publishes):
    settings = QueueSettings()
    settings.dead_letter = DEAD_LETTER_AT_LEAST_ONCE
    settings.message_ttl_ms = 10
    settings.retry_type, settings.retry_min_ms, settings.retry_max_ms = RETRY_ALL, 60_000, 60_000
    world = pair.world
    world.watcher.version, world.watcher.settings = MACHINE_VERSION, settings
    world.hosts[1].configure()
    session = world.open(1, listener)
    assert world.run(session.purge()) == 2
    assert asyncio.run(pair.clients[node].ask(QUEUE)).is_empty
    session.publish(publishes(b"c", b"d"), None)
    session.flush()
    world.settle_down()
    world.run(session.get())
    session.close()
    world.settle_down()
    world.clock.ms += 20
    world.hosts[1].propose(encode_tick())
    world.settle_down()
    counts = asyncio.run(pair.clients[node].ask(QUEUE))
    assert (counts.ready, counts.unsettled, counts.delayed, counts.dead) == (0, 0, 1, 1)
    assert counts.held == 2
    assert not counts.is_empty


def test_election_is_waited_for_with_pauses(pair, monkeypatch):
    pauses = []
    sleep = asyncio.sleep

    async def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 20:
            pair.world.hosts[1].leadership(1, 2, True)
        await sleep(0)

    monkeypatch.setattr("headrace_broker.runtime.rpc.leader.asyncio.sleep", pause)
    pair.world.hosts[1].leadership(0, 1, False)
    assert three(asyncio.run(pair.clients[2].ask(QUEUE))) == (2, 0, 0)
    assert pauses == [module.PAUSE_SECONDS] * 20


@pytest.mark.parametrize("located", [0, 2, 1], ids=["unknown", "itself", "unreachable"])
def test_nobody_answers(pair, hurried, located):
    pair.located = [located]
    pair.links.down = {1}
    with pytest.raises(LeaderUnavailableError, match="'work'"):
        asyncio.run(pair.clients[2].ask(QUEUE))
    assert pair.outstanding == 0


def test_only_who_uses_a_queue_keeps_it_alive(pair):
    host = pair.world.hosts[1]
    for client in (1, 2):
        host.used_ms = -1
        asyncio.run(pair.clients[client].ask(QUEUE))
        assert host.used_ms == -1
        asyncio.run(pair.clients[client].ask(QUEUE, using=True))
        assert host.used_ms > 0


def test_request_for_a_queue_that_is_led_elsewhere_names_the_leader(pair):
    asked = pair.links.rpcs[1].ask

    def refusal(group):
        with pytest.raises(RpcError) as refused:
            asyncio.run(asked(2, AskCounts(group)))
        return refused.value.failure, refused.value.detail

    assert refusal(7) == (NOT_LEADING, 1)
    assert refusal(8) == (NOT_LEADING, 0)


def test_leader_that_is_named_is_asked_at_once_and_only_once(world, pair, monkeypatch):
    pauses = []

    sleep = asyncio.sleep

    async def pause(seconds):
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("headrace_broker.runtime.rpc.leader.asyncio.sleep", pause)
    pair.links = Links((1, 2, 3), soon=True)
    for node in (1, 2):
        hosts = {7: world.hosts[node]}
        CountsClient(Leaders(pair.links.rpcs[node], hosts, lambda q: world.leader, pair.exists))
    client = CountsClient(Leaders(pair.links.rpcs[3], {}, lambda q: 2, pair.exists))
    assert three(asyncio.run(client.ask(QUEUE))) == (2, 0, 0)
    assert [target for source, target, _ in pair.links.sent if source == 3] == [2, 1]
    assert pauses == []
    world.hosts[1].leadership(0, 2, False)  # now the first of them still names itself
    monkeypatch.setattr(module, "ANSWER_SECONDS_MAX", 0.05)
    with pytest.raises(LeaderUnavailableError):
        asyncio.run(client.ask(QUEUE))
    asked = [target for source, target, _ in pair.links.sent if source == 3][2:]
    assert asked[:4] == [2, 1, 2, 1]
    assert len(pauses) >= len(asked) // 2 - 1


def test_deleted_queue_is_not_waited_for(pair, monkeypatch):
    """A delete or a passive declare may race with another delete."""

    async def pause(seconds):
        assert QUEUE not in pair.deleted, "a pause after the delete was applied"
        pair.deleted.append(QUEUE)

    monkeypatch.setattr("headrace_broker.runtime.rpc.leader.asyncio.sleep", pause)
    pair.world.hosts[1].leadership(0, 1, False)
    with pytest.raises(QueueGoneError, match="no queue 'work' in vhost '/'"):
        asyncio.run(pair.clients[2].ask(QUEUE))
    assert pair.outstanding == 0
