"""A replica between winning its election and serving."""

from __future__ import annotations

from headrace_broker.runtime.port import Ticket


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
