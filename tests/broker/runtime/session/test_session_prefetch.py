"""The prefetch of running consumers, changed through sessions, wherever the queue is led."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.runtime.conftest import Listener

from headrace_broker.core.queue.command.command import (
    SET_PREFETCH,
    SETTLE,
    STAMP_BYTES,
    encode_node_down,
    stamp_command,
)
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.machine.versions import PREFETCH_VERSION
from headrace_broker.runtime.contract.port import ACCEPT, Attachment

BOTH = pytest.mark.parametrize("gateway", [1, 2, 3], ids=["leader", "replica", "elsewhere"])


@pytest.fixture
def upgraded(world):
    """A queue whose replicas are all of this release."""
    world.watcher.version = MACHINE_VERSION
    world.hosts[1].configure()
    world.settle_down()
    return world


def fill(world, publishes, count):
    session = world.open(1, Listener())
    session.publish(publishes(*[b"%d" % at for at in range(count)]), None)
    session.flush()
    world.settle_down()


def logged(world, kind):
    return sum(entry.data[STAMP_BYTES] == kind for entry in world.log)


def attached(world, listener, gateway, prefetch):
    session = world.open(gateway, listener)
    session.relocate(world.leader)
    world.run(session.attach(1, Attachment("tag", prefetch)))
    world.settle_down()
    return session


@BOTH
def test_more_comes_at_once_and_less_as_it_is_settled(upgraded, listener, publishes, gateway):
    fill(upgraded, publishes, 6)
    session = attached(upgraded, listener, gateway, 1)
    assert len(listener.bodies) == 1

    async def change(prefetch):
        assert session.set_prefetch([(1, prefetch)])

    upgraded.run(change(3))
    upgraded.settle_down()
    assert listener.bodies == [b"0", b"1", b"2"]
    upgraded.run(change(1))
    upgraded.settle_down()
    session.settle(1, ACCEPT, 1, 2)
    session.flush()
    upgraded.settle_down()
    assert len(listener.bodies) == 3
    session.settle(1, ACCEPT, 3, 3)
    session.flush()
    upgraded.settle_down()
    assert listener.bodies[3:] == [b"3"]
    for host in upgraded.hosts.values():
        assert [info.prefetch for info in host.machine.consumers()] == [1]


def test_changes_that_come_before_the_answer_gather(upgraded, listener):
    session = attached(upgraded, listener, 1, 1)

    async def change():
        for prefetch in range(2, 100):
            session.set_prefetch([(1, prefetch)])
        for _ in range(9):  # the answers are heard in turns of the loop
            upgraded.settle_down()
            await asyncio.sleep(0)

    upgraded.run(change())
    assert logged(upgraded, SET_PREFETCH) == 2
    assert [info.prefetch for info in upgraded.hosts[2].machine.consumers()] == [99]


def test_nothing_is_sent_where_nothing_changes(upgraded, listener):
    session = attached(upgraded, listener, 1, 5)

    async def change():
        session.set_prefetch([(1, 5), (2, 9)])

    upgraded.run(change())
    assert logged(upgraded, SET_PREFETCH) == 0


@BOTH
def test_an_older_member_keeps_all_as_it_was(world, listener, publishes, gateway):
    world.watcher.version = PREFETCH_VERSION - 1
    world.hosts[1].configure()
    world.settle_down()
    fill(world, publishes, 3)
    session = attached(world, listener, gateway, 1)
    before = len(world.log)
    assert not session.set_prefetch([(1, 3)])
    world.settle_down()
    assert (len(world.log), len(listener.bodies)) == (before, 1)
    assert session.consuming.subscriptions[1].attachment.prefetch == 1


@BOTH
def test_a_leader_whose_queue_is_not_brought_up_yet_lets_the_lane_go_on(
    world, listener, publishes, gateway
):
    fill(world, publishes, 3)
    session = attached(world, listener, gateway, 1)
    world.watcher.version = MACHINE_VERSION  # said by the catalog, and not by the queue's log

    async def change():
        assert session.set_prefetch([(1, 3)])

    world.run(change())
    world.settle_down()
    assert (logged(world, SET_PREFETCH), logged(world, SETTLE)) == (0, 1)
    assert (world.watcher.rejected, len(listener.bodies)) == ([], 1)
    session.settle(1, ACCEPT, 1, 1)
    session.flush()
    world.settle_down()
    assert listener.bodies == [b"0", b"1"]


def test_a_consumer_that_attaches_anew_does_so_with_what_holds(upgraded, listener, publishes):
    session = attached(upgraded, listener, 1, 1)

    async def change():
        session.set_prefetch([(1, 4)])

    upgraded.run(change())
    upgraded.settle_down()
    data = stamp_command(1, encode_node_down(1, 0))

    async def lose_and_return():
        upgraded.hosts[1].propose(data[STAMP_BYTES:])
        upgraded.settle_down()
        session.relocate(1)
        upgraded.settle_down()

    upgraded.run(lose_and_return())
    upgraded.settle_down()
    attached_now = [info for info in upgraded.hosts[2].machine.consumers() if info.attached]
    assert [info.prefetch for info in attached_now] == [4]


def test_a_change_that_was_lost_comes_again_to_the_next_leader(upgraded, listener, publishes):
    fill(upgraded, publishes, 3)
    session = attached(upgraded, listener, 3, 1)

    async def change():
        upgraded.break_links()
        session.set_prefetch([(1, 3)])
        upgraded.settle_down()
        upgraded.cut = False
        upgraded.lead(2)
        session.relocate(2)
        upgraded.settle_down()

    upgraded.run(change())
    assert listener.bodies == [b"0", b"1", b"2"]


def test_changes_go_on_after_a_long_time_without_a_leader(upgraded, listener, publishes):
    fill(upgraded, publishes, 5)
    session = attached(upgraded, listener, 3, 1)

    async def change():
        upgraded.break_links()
        session.set_prefetch([(1, 3)])
        session.unreachable("no leader")
        await asyncio.sleep(0)
        upgraded.cut = False
        session.relocate(1)
        upgraded.settle_down()
        await asyncio.sleep(0)
        session.set_prefetch([(1, 5)])
        upgraded.settle_down()

    upgraded.run(change())
    assert listener.bodies == [b"0", b"1", b"2", b"3", b"4"]
