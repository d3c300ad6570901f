"""A replica between winning its election and serving."""

from __future__ import annotations

import pytest

from headrace_broker.core.queue.restoring import SnapshotError
from headrace_broker.runtime.port import ACCEPT, Attachment, Ticket
from headrace_broker.runtime.queue_host import QueueHost


def test_session_that_asked_too_early_is_called_when_the_leader_serves(world, listener, publishes):
    session = world.open(2, listener)
    world.hosts[1].leadership(1, 2, False)
    ticket = Ticket(1, 1)
    session.publish(publishes(b"x"), ticket)
    session.flush()
    world.settle_down()
    assert (session.target, listener.confirmed) == (0, [])
    world.hosts[1].leadership(1, 2, True)
    world.settle_down()
    assert (session.target, listener.confirmed) == (1, [ticket])
    assert world.hosts[1].machine.ready_count == 1


def test_session_that_asked_too_early_is_sent_on_when_another_leads(world, listener, publishes):
    session = world.open(2, listener)
    world.hosts[1].leadership(1, 2, False)
    session.publish(publishes(b"x"), None)
    session.flush()
    world.settle_down()
    assert session.target == 0
    world.lead(2)
    world.settle_down()
    assert session.target == 2
    assert world.hosts[1].machine.ready_count == 1


def test_session_is_called_once(world, listener, publishes):
    session = world.open(2, listener)
    world.hosts[1].leadership(1, 2, False)
    session.publish(publishes(b"x"), None)
    session.flush()
    world.settle_down()
    world.hosts[1].leadership(1, 2, True)
    world.settle_down()
    before = len(world.sent)
    world.hosts[1].leadership(1, 3, True)
    assert len(world.sent) == before


def test_replica_restored_from_another_goes_on_like_it(world, listener, publishes):
    session = world.open(2, listener)
    session.publish(publishes(b"a", b"b"), None)
    session.flush()
    world.settle_down()
    world.run(session.attach(1, Attachment("c", 1)))
    state, live = world.hosts[1].snapshot()
    assert (live.typecode, list(live)) == ("Q", [1])
    late = QueueHost(world.queue, 4, world.hosts[1].log, world.boards[3], world.watcher)
    late.restore(state)
    assert late.snapshot() == (state, live)
    before = len(world.log)
    session.publish(publishes(b"c"), None)
    session.settle(1, ACCEPT, 1, 1)
    session.flush()
    world.settle_down()
    late.apply(world.log[before:])
    assert late.machine.digest() == world.hosts[1].machine.digest()
    assert listener.bodies == [b"a", b"b"]


def test_state_that_is_none_is_refused_and_changes_nothing(world):
    digest = world.hosts[2].machine.digest()
    with pytest.raises(SnapshotError):
        world.hosts[2].restore(b"nonsense")
    assert world.hosts[2].machine.digest() == digest


def test_settles_pass_publishes_at_the_leader(world, listener, publishes):
    session = world.open(1, listener)
    session.publish(publishes(b"a"), None)
    session.flush()
    world.settle_down()
    world.run(session.attach(1, Attachment("c", 1)))
    session.settle(1, ACCEPT, 1, 1)
    session.flush()
    world.settle_down()
    session.close()
    world.settle_down()
    assert world.urgent == [False, True, True, False]  # enqueue, attach, settle, close
