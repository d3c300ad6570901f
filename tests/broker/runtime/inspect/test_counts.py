"""Asking leaders how much is in a queue."""

from __future__ import annotations

import asyncio

import pytest

from headrace_broker.core.queue.command.leader_command import encode_tick
from headrace_broker.core.queue.command.lease_command import encode_lease, encode_open_group
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.settings import (
    DEAD_LETTER_AT_LEAST_ONCE,
    RETRY_ALL,
    QueueSettings,
)
from headrace_broker.model.definition import QUEUE_QUORUM, Queue
from headrace_broker.runtime.inspect.counts import CountsClient
from headrace_broker.runtime.rpc import leader_client as module
from headrace_broker.runtime.rpc.leader_client import LeaderUnavailableError, QueueGoneError, Reach
from headrace_protos.cluster.v1.cluster_pb2 import ClusterPayload, Counts, CountsRequest

QUEUE = Queue("/", "work", QUEUE_QUORUM, 7, (1, 2))


class Pair:
    """Nodes 1 and 2 that carry each other's payloads in the next turn of the loop."""

    def __init__(self, world):
        self.world = world
        self.located = [1]
        self.requests = 0
        self.lost = False
        self.deleted = []
        hosts = world.hosts
        self.clients = {
            1: CountsClient(Reach(1, {7: hosts[1]}, lambda queue: 0, self.sender(1), self.exists)),
            2: CountsClient(
                Reach(2, {7: hosts[2]}, lambda queue: self.located[0], self.sender(2), self.exists)
            ),
        }

    def exists(self, queue):
        return queue not in self.deleted

    def sender(self, source):
        def send(target, data):
            if self.lost:
                return False
            asyncio.get_running_loop().call_soon(self.receive, source, target, data)
            return True

        return send

    def receive(self, source, target, data):
        payload = ClusterPayload.FromString(data)
        if payload.WhichOneof("body") == "counts_request":
            self.requests += 1
            self.clients[target].receive_request(source, payload.counts_request)
        else:
            self.clients[target].receive_answer(payload.counts)


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
    assert asyncio.run(pair.clients[1].ask(QUEUE))[:3] == (2, 0, 0)
    assert pair.requests == 0


def test_leader_elsewhere_is_asked(pair):
    assert asyncio.run(pair.clients[2].ask(QUEUE))[:3] == (2, 0, 0)
    assert pair.requests == 1
    assert pair.clients[2]._leaders._waiting == {}


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


def test_leader_of_an_older_release_does_not_tell_what_is_delayed(pair):
    answers = []
    client = pair.clients[2]
    client._leaders.receive = lambda number, counts: answers.append(counts)
    client.receive_answer(Counts(request=1, serving=True, unsettled=1))
    assert (answers[0].delayed, answers[0].dead, answers[0].held) == (None, None, 1)


def test_election_is_waited_for_with_pauses(pair, monkeypatch):
    pauses = []
    sleep = asyncio.sleep

    async def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 20:
            pair.world.hosts[1].leadership(1, 2, True)
        await sleep(0)

    monkeypatch.setattr("headrace_broker.runtime.rpc.leader_client.asyncio.sleep", pause)
    pair.world.hosts[1].leadership(0, 1, False)
    assert asyncio.run(pair.clients[2].ask(QUEUE))[:3] == (2, 0, 0)
    assert pauses == [module.PAUSE_SECONDS] * 20


@pytest.mark.parametrize("located", [0, 2, 1], ids=["unknown", "itself", "unreachable"])
def test_nobody_answers(pair, hurried, located):
    pair.located = [located]
    pair.lost = True
    with pytest.raises(LeaderUnavailableError, match="'work'"):
        asyncio.run(pair.clients[2].ask(QUEUE))
    assert pair.clients[2]._leaders._waiting == {}


def test_only_who_uses_a_queue_keeps_it_alive(pair):
    host = pair.world.hosts[1]
    for client in (1, 2):
        host.used_ms = -1
        asyncio.run(pair.clients[client].ask(QUEUE))
        assert host.used_ms == -1
        asyncio.run(pair.clients[client].ask(QUEUE, using=True))
        assert host.used_ms > 0


def test_late_answer_is_dropped(pair):
    pair.clients[2].receive_answer(Counts(request=99, serving=True))
    assert pair.clients[2]._leaders._waiting == {}


def test_request_for_an_unknown_queue_is_answered():
    sent = []

    def send(target, data):
        sent.append((target, ClusterPayload.FromString(data).counts))
        return True

    client = CountsClient(Reach(1, {}, lambda queue: 0, send, lambda queue: True))
    client.receive_request(2, CountsRequest(group=8, request=5))
    assert sent == [(2, Counts(request=5, serving=False))]


def test_deleted_queue_is_not_waited_for(pair, monkeypatch):
    """A delete or a passive declare may race with another delete."""

    async def pause(seconds):
        assert QUEUE not in pair.deleted, "a pause after the delete was applied"
        pair.deleted.append(QUEUE)

    monkeypatch.setattr("headrace_broker.runtime.rpc.leader_client.asyncio.sleep", pause)
    pair.world.hosts[1].leadership(0, 1, False)
    with pytest.raises(QueueGoneError, match="no queue 'work' in vhost '/'"):
        asyncio.run(pair.clients[2].ask(QUEUE))
    assert pair.clients[2]._leaders._waiting == {}
