"""Groups that lease messages, listed over nodes and closed."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.runtime.rpc_links import Links

from headrace_broker.core.queue.command.lease_command import encode_lease, encode_open_group
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.model.reply_code import INTERNAL_ERROR, NOT_FOUND, AmqpError
from headrace_broker.model.session import session_id
from headrace_broker.runtime.lease.group_commands import GroupCommands
from headrace_broker.runtime.lease.leasing import LeaseClient
from headrace_broker.runtime.lease.listing import LeaseListing
from headrace_broker.runtime.rpc import leader
from headrace_broker.runtime.rpc.leader import Leaders


class Nodes:
    """Nodes 1 and 2 of a world; node 1 leads a queue with a group. A payload arrives at once."""

    def __init__(self, world):
        self.world = world
        self.names = {1: "n1", 2: "n2"}
        self.links = Links(self.names)
        self.exists = True
        numbers = iter(range(1, 1000))
        commands, self.listings = {}, {}
        for node, rpc in self.links.rpcs.items():
            hosts = {7: world.hosts[node]}
            leaders = Leaders(rpc, hosts, self._locate, lambda queue: self.exists)
            commands[node] = GroupCommands(leaders, self._numberer(node, numbers))
            leases = LeaseClient(leaders, commands[node])
            self.listings[node] = LeaseListing(self.names, hosts, rpc, leases, self._locate)
        world.watcher.version = MACHINE_VERSION
        world.watcher.group_answered = lambda queue, answer: commands[1].answered(answer)
        world.hosts[1].configure()
        for encoded in (
            encode_open_group(session_id(1, 1, 1000), b"job", 60_000, b"a"),
            encode_lease(session_id(1, 1, 1001), b"job", 1, 1, 2, 99, 60_000),
        ):
            world.hosts[1].propose(encoded)
        world.settle_down()

    def _locate(self, queue):
        return self.world.leader

    @staticmethod
    def _numberer(node, numbers):
        return lambda: session_id(node, 1, next(numbers))

    def run(self, work):
        async def drive():
            task = asyncio.ensure_future(work)
            while not task.done():
                await asyncio.sleep(0)
                self.world.settle_down()
            return await task

        return asyncio.run(drive())


@pytest.fixture
def nodes(world, listener, publishes):
    session = world.open(1, listener)
    session.publish(publishes(b"a", b"bb", b"c"), None)
    session.flush()
    world.settle_down()
    return Nodes(world)


BOTH = pytest.mark.parametrize("node", [1, 2])


@BOTH
def test_groups_of_all_nodes_are_listed(nodes, node):
    [group], missing = nodes.run(nodes.listings[node].everyone())
    assert missing == ()
    assert (group.vhost, group.queue, group.name, group.node) == ("/", "work", "job", "n1")
    assert (group.epoch, group.next_lease, group.settled) == (1, 2, 0)
    assert (group.leases, group.messages, group.byte_count) == (1, 2, 3)
    assert nodes.run(nodes.listings[node].of(nodes.world.queue)) == [group]


def test_node_that_does_not_answer_is_named(nodes):
    nodes.links.down = {1}
    assert nodes.run(nodes.listings[2].everyone()) == ([], ("n1",))


@BOTH
def test_group_is_closed_and_what_it_held_goes_back(nodes, node):
    queue = nodes.world.queue
    assert nodes.run(nodes.listings[node].close(queue, "job")) == 2
    assert nodes.world.hosts[1].machine.ready_count == 3
    with pytest.raises(AmqpError) as refused:
        nodes.run(nodes.listings[node].close(queue, "job"))
    assert refused.value.code == NOT_FOUND


def test_queue_that_is_gone_or_has_no_leader(nodes, monkeypatch):
    monkeypatch.setattr(leader, "ANSWER_SECONDS_MAX", 0.01)
    nodes.world.leader = 0
    with pytest.raises(AmqpError) as refused:
        nodes.run(nodes.listings[2].of(nodes.world.queue))
    assert refused.value.code == INTERNAL_ERROR
    nodes.exists = False
    with pytest.raises(AmqpError) as refused:
        nodes.run(nodes.listings[2].of(nodes.world.queue))
    assert refused.value.code == NOT_FOUND
