"""Publishes that their publisher has numbered, through sessions and leader changes."""

from __future__ import annotations

import pytest

from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.machine.versions import LEASES_VERSION
from headrace_broker.model.message import Publisher
from headrace_broker.runtime.contract.port import PendingConfirm

BOTH = pytest.mark.parametrize("gateway", [1, 2, 3], ids=["leader", "replica", "elsewhere"])
ANNA = Publisher(b"anna", 1)


@pytest.fixture
def upgraded(world):
    """A queue whose replicas are all of this release."""
    world.watcher.version = MACHINE_VERSION
    world.hosts[1].configure()
    world.settle_down()
    return world


def counts(world):
    return [int(host.machine.ready_count) for host in world.hosts.values()]


@BOTH
def test_repetition_in_another_session_is_dropped_and_confirmed(
    upgraded, make_listener, publishes, gateway
):
    for numbers, expected in (([1, 2, 3], 3), ([2, 3, 5], 4)):
        listener = make_listener()
        session = upgraded.open(gateway, listener)
        pending_confirm = PendingConfirm(1, 3)
        session.publish_named(publishes(b"a", b"b", b"c"), pending_confirm, ANNA, numbers)
        session.flush()
        upgraded.settle_down()
        if listener.confirmed != [pending_confirm]:  # one who had to ask who leads
            session.tick()
            upgraded.settle_down()
        assert listener.confirmed == [pending_confirm]
        assert pending_confirm.refused is None
        assert counts(upgraded) == [expected, expected]


@BOTH
def test_publisher_that_comes_back_after_a_leader_change_has_each_message_once(
    upgraded, make_listener, publishes, gateway
):
    first, second = make_listener(), make_listener()
    session = upgraded.open(gateway, first)
    session.publish_named(publishes(b"1", b"2"), PendingConfirm(1, 2), ANNA, [1, 2])
    session.flush()
    upgraded.settle_down()
    session.publish_named(publishes(b"3"), PendingConfirm(3, 3), ANNA, [3])
    session.flush()
    upgraded.lose_uncommitted()
    upgraded.lead(2)
    upgraded.settle_down()
    again = upgraded.open(gateway, second)  # the client has lost its connection
    again.publish_named(publishes(b"2", b"3", b"4"), PendingConfirm(1, 3), ANNA, [2, 3, 4])
    again.flush()
    again.relocate(2)
    upgraded.settle_down()
    session.relocate(2)  # what the lost connection had handed over comes late
    upgraded.settle_down()
    assert (len(first.confirmed), len(second.confirmed)) == (2, 1)
    assert counts(upgraded) == [4, 4]


@BOTH
def test_publisher_of_an_epoch_that_is_over_is_refused(upgraded, make_listener, publishes, gateway):
    first, second = make_listener(), make_listener()
    later = upgraded.open(1, second)
    later.publish_named(publishes(b"a"), PendingConfirm(1, 1), Publisher(b"anna", 2), [1])
    later.flush()
    upgraded.settle_down()
    session = upgraded.open(gateway, first)
    pending_confirm = PendingConfirm(1, 2)
    session.publish_named(publishes(b"b", b"c"), pending_confirm, ANNA, [1, 2])
    session.flush()
    upgraded.settle_down()
    if not first.rejected:  # one who had to ask who leads
        session.tick()
        upgraded.settle_down()
    assert (first.rejected, first.confirmed) == ([pending_confirm], [])
    assert (pending_confirm.refused, pending_confirm.fenced) == ({1, 2}, True)
    assert counts(upgraded) == [1, 1]


def test_publishes_wait_until_all_replicas_know_of_numbers(world, listener, publishes):
    session = world.open(1, listener)
    session.publish_named(publishes(b"a"), PendingConfirm(1, 1), ANNA, [1])
    session.flush()
    world.settle_down()
    assert (listener.confirmed, counts(world)) == ([], [0, 0])
    assert world.watcher.rejected == []
    world.watcher.version = LEASES_VERSION
    world.hosts[1].configure()
    world.settle_down()
    session.relocate(1)
    world.settle_down()
    assert (len(listener.confirmed), counts(world)) == (1, [1, 1])


def test_queue_that_is_gone_confirms_what_has_numbers(upgraded, listener, publishes):
    session = upgraded.open(1, listener)
    session.on_deleted()
    pending_confirm = PendingConfirm(1, 1)
    assert session.publish_named(publishes(b"a"), pending_confirm, ANNA, [1])
    assert listener.confirmed == [pending_confirm]
