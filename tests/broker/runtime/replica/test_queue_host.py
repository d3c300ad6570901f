"""A replica between winning its election and serving."""

from __future__ import annotations

import asyncio

import pytest

from headrace_broker.codecs.batch import message_body
from headrace_broker.core.queue.command.command import encode_close, encode_purge
from headrace_broker.core.queue.machine.blank_states import shared
from headrace_broker.core.queue.snapshot.restoring import SnapshotError
from headrace_broker.model.limits import TURNED_AWAY_MAX
from headrace_broker.model.session import session_id
from headrace_broker.runtime.contract.port import ACCEPT, Attachment, PendingConfirm
from headrace_broker.runtime.replica.queue_host import QueueHost


def test_session_that_asked_too_early_is_called_when_the_leader_serves(world, listener, publishes):
    session = world.open(2, listener)
    world.hosts[1].leadership(1, 2, False)
    pending_confirm = PendingConfirm(1, 1)
    session.publish(publishes(b"x"), pending_confirm)
    session.flush()
    world.settle_down()
    assert (session.target, listener.confirmed) == (0, [])
    world.hosts[1].leadership(1, 2, True)
    world.settle_down()
    assert (session.target, listener.confirmed) == (1, [pending_confirm])
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


def test_session_whose_leader_took_nothing_follows_the_next_one_at_once(world, listener, publishes):
    session = world.open(3, listener)  # a node without a replica hears of leaders from them alone
    session.relocate(1)
    world.busy = True
    pending_confirm = PendingConfirm(1, 1)
    session.publish(publishes(b"x"), pending_confirm)
    session.flush()
    world.settle_down()
    assert (session.target, listener.confirmed) == (1, [])
    world.busy = False
    world.lead(2)
    world.settle_down()
    assert (session.target, listener.confirmed) == (2, [pending_confirm])


def test_sessions_that_are_told_of_the_next_leader_are_bounded(world, listener, publishes):
    world.busy = True
    for number in range(1, TURNED_AWAY_MAX + 10):
        session = session_id(3, 1, number)
        world.hosts[1].command(session, encode_close(session))
    world.settle_down()
    world.sent.clear()
    world.lead(2)
    assert [node for node, _ in world.sent] == [3] * TURNED_AWAY_MAX


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


# Messages that have to be read from the disk first


@pytest.fixture
def slow(world, listener, publishes):
    """A session at a queue with messages "a", "b" and "c" on a slow disk."""
    session = world.open(3, listener)
    for body in (b"a", b"b", b"c"):
        session.publish(publishes(body), None)
        session.flush()
        world.settle_down()
    world.disk_is_slow = True
    return session


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


def body_of(got):
    run, _ = got
    return message_body(run.blob, run.base, run.positions[0])


def test_gets_are_answered_once_their_messages_were_read(world, slow):
    async def scenario():
        gets = [asyncio.ensure_future(slow.get()) for _ in range(2)]
        await turns()
        assert [get.done() for get in gets] == [False, False]
        assert world.hosts[1].lead.gets.waiting_count == 2
        world.read_all()
        return await asyncio.gather(*gets)

    assert [body_of(got) for got in world.run(scenario())] == [b"a", b"b"]
    assert world.hosts[1].lead.gets.waiting_count == 0


def test_get_of_a_session_that_has_ended_answers_nobody(world, slow):
    async def scenario():
        get = asyncio.ensure_future(slow.get())
        await turns()
        slow.close()
        await turns()
        assert world.hosts[1].lead.gets.waiting_count == 1
        world.read_all()
        await turns()
        get.cancel()

    world.run(scenario())
    assert world.hosts[1].lead.gets.waiting_count == 0
    assert world.hosts[1].machine.ready_count == 3


def test_get_whose_leader_is_gone_is_answered_by_the_next(world, slow):
    async def scenario():
        get = asyncio.ensure_future(slow.get())
        await turns()
        former = world.hosts[1].lead.gets
        world.lead(2)
        slow.relocate(2)
        await turns()
        assert (former.waiting_count, world.hosts[2].lead.gets.waiting_count) == (0, 1)
        world.read_all()
        return await get

    assert body_of(world.run(scenario())) == b"a"


def test_get_beside_a_consumer_that_waits_for_the_disk(world, slow, listener):
    world.run(slow.attach(1, Attachment("c", 1)))

    async def scenario():
        get = asyncio.ensure_future(slow.get())
        await turns()
        assert (listener.bodies, get.done()) == ([], False)
        world.read_all()
        return await get

    assert body_of(world.run(scenario())) == b"b"
    assert listener.bodies == [b"a"]


def test_quiescent_queue_that_has_nothing_shares_its_state(world, listener, publishes):
    host = world.hosts[1]
    session = world.open(1, listener)
    session.publish(publishes(b"x"), None)
    session.flush()
    world.settle_down()
    machine = host.machine
    state = shared(machine.version, machine.settings)
    host.quiesced()
    assert machine._state is not state
    host.command(session.session, encode_purge(session.session, 1))
    host.command(session.session, encode_close(session.session))
    world.settle_down()
    assert machine._state is not state
    host.quiesced()
    assert machine._state is state
