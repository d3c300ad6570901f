"""Sessions and replicas together: confirms, resends, feeds, windows, the end of things."""

from __future__ import annotations

import asyncio
import gc

import pytest

from headrace_broker.codecs.batch import encode_batch
from headrace_broker.core.queue.command.command import encode_enqueue
from headrace_broker.model.limits import DELIVERY_WINDOW_BYTES, PIPELINE_COMMANDS, SESSION_BYTES_MAX
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.contract.port import ACCEPT, RELEASE, Attachment, PendingConfirm
from headrace_broker.runtime.session.link import SessionLink
from headrace_broker.runtime.session.session import QueueSession

BOTH = pytest.mark.parametrize("gateway", [1, 2], ids=["same_node", "other_node"])


@BOTH
def test_publish_applied_confirms_pending_confirm(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    pending_confirm = PendingConfirm(1, 2)
    assert session.publish(publishes(b"a", b"b"), pending_confirm)
    session.flush()
    assert listener.confirmed == []
    world.settle_down()
    assert listener.confirmed == [pending_confirm]
    assert [host.machine.ready_count for host in world.hosts.values()] == [2, 2]


@BOTH
def test_consume_delivers_in_order_and_settles(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    session.publish(publishes(b"a", b"b", b"c"), None)
    session.flush()
    world.settle_down()
    assert listener.deliveries == [(1, 1, b"a", False), (1, 2, b"b", False), (1, 3, b"c", False)]
    session.settle(1, ACCEPT, 1, 3)
    session.flush()
    world.settle_down()
    assert [host.machine.unsettled_count for host in world.hosts.values()] == [0, 0]
    assert world.hosts[1].machine.digest() == world.hosts[2].machine.digest()


def test_pipeline_full_gathers_into_next_command(world, listener, publishes):
    session = world.open(1, listener)
    for number in range(PIPELINE_COMMANDS + 3):
        session.publish(publishes(b"%d" % number), None)
        session.flush()
    assert len(world.log) == PIPELINE_COMMANDS
    world.settle_down()
    assert len(world.log) == PIPELINE_COMMANDS + 1
    assert world.hosts[1].machine.ready_count == PIPELINE_COMMANDS + 3


def test_too_many_bytes_congest_until_half_is_applied(world, listener, publishes):
    session = world.open(1, listener)
    big = bytes(SESSION_BYTES_MAX // 4)
    answers = []
    for _ in range(5):
        answers.append(session.publish(publishes(big), None))
        session.flush()
    assert answers == [True, True, True, False, False]
    assert listener.writable == 0
    world.settle_down()
    assert listener.writable == 1


@BOTH
def test_leader_lost_before_commit_resends_once_and_in_order(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    world.run(session.attach(1, Attachment("c", 100)))
    session.publish(publishes(b"1"), None)
    session.flush()
    world.settle_down()
    pending_confirms = [PendingConfirm(2, 2), PendingConfirm(3, 3)]
    session.publish(publishes(b"2"), pending_confirms[0])
    session.flush()
    session.publish(publishes(b"3"), pending_confirms[1])
    session.flush()
    world.cut = True
    world.lose_uncommitted()
    world.lead(2)
    world.cut = False
    session.relocate(2)
    world.settle_down()
    assert listener.bodies == [b"1", b"2", b"3"]
    assert listener.confirmed == pending_confirms


def test_answers_lost_after_commit_do_not_duplicate(world, listener, publishes):
    session = world.open(2, listener)
    pending_confirm = PendingConfirm(1, 1)
    session.publish(publishes(b"x"), pending_confirm)
    session.flush()
    world.carry()
    world.cut = True
    world.settle_down()
    assert listener.confirmed == []
    world.cut = False
    session.relocate(1)
    world.settle_down()
    assert listener.confirmed == [pending_confirm]
    assert world.hosts[1].machine.ready_count == 1


def test_lost_command_in_the_middle_is_sent_again(world, listener, publishes):
    session = world.open(2, listener)
    world.cut = True
    session.publish(publishes(b"1"), None)
    session.flush()
    world.cut = False
    session.publish(publishes(b"2"), None)
    session.flush()
    world.run(session.attach(1, Attachment("c", 10)))
    world.settle_down()
    assert listener.bodies == [b"1", b"2"]


def test_deliveries_lost_on_the_way_come_after_resync(world, listener, publishes):
    session = world.open(2, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    session.publish(publishes(b"1"), None)
    session.flush()
    world.settle_down()
    other = world.open(1, type(listener)())
    world.cut = True
    other.publish(publishes(b"2", b"3"), None)
    other.flush()
    world.settle_down()
    assert listener.bodies == [b"1"]
    world.cut = False
    session.relocate(1)
    world.settle_down()
    assert listener.deliveries[1:] == [(1, 2, b"2", False), (1, 3, b"3", False)]


def test_new_leader_repeats_what_did_not_arrive(world, listener, publishes):
    session = world.open(2, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    other = world.open(1, type(listener)())
    world.cut = True
    other.publish(publishes(b"1", b"2"), None)
    other.flush()
    world.settle_down()
    world.cut = False
    world.lead(2)
    session.relocate(2)
    world.settle_down()
    assert listener.bodies == [b"1", b"2"]


def test_suspected_node_attaches_again_and_old_deliveries_are_void(world, listener, publishes):
    session = world.open(2, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    session.publish(publishes(b"1", b"2"), None)
    session.flush()
    world.settle_down()
    world.cut = True
    world.hosts[1].node_down(2, 0)
    world.settle_down()
    assert world.hosts[1].machine.ready_count == 2
    world.cut = False
    session.relocate(1)
    world.run(_tick(session))
    assert listener.deliveries[2:] == [(1, 3, b"1", True), (1, 4, b"2", True)]
    session.settle(1, ACCEPT, 1, 2)
    session.flush()
    world.settle_down()
    assert world.hosts[1].machine.unsettled_count == 2
    session.settle(1, ACCEPT, 3, 4)
    session.flush()
    world.settle_down()
    assert world.hosts[1].machine.unsettled_count == 0


def test_consumer_is_served_whose_node_was_back_before_it_was_given_up(world, listener, publishes):
    """A leader without a quorum may propose that a node is down, and commit it when it is back."""
    session = world.open(2, listener)

    async def scenario():
        attached = asyncio.ensure_future(session.attach(1, Attachment("c", 10)))
        await asyncio.sleep(0)
        world.settle_down()
        await attached
        world.hosts[1].node_down(2, 0)
        world.settle_down()
        await asyncio.sleep(0)
        world.settle_down()

    asyncio.run(scenario())
    session.publish(publishes(b"1"), None)
    session.flush()
    world.settle_down()
    assert listener.bodies == [b"1"]


async def _tick(session):
    session.tick()


@BOTH
def test_window_holds_deliveries_back_until_consumed(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    half = bytes(DELIVERY_WINDOW_BYTES // 2)
    world.run(session.attach(1, Attachment("c", 100)))
    for _ in range(4):
        session.publish(publishes(half), None)
        session.flush()
        world.settle_down()
    assert len(listener.bodies) == 2
    session.consumed(1, len(half))
    world.settle_down()
    assert len(listener.bodies) == 3


def test_message_larger_than_the_window_passes(world, listener, publishes):
    session = world.open(1, listener)
    world.run(session.attach(1, Attachment("c", 100)))
    session.publish(publishes(bytes(DELIVERY_WINDOW_BYTES * 2), b"next"), None)
    session.flush()
    world.settle_down()
    assert [len(body) for body in listener.bodies] == [DELIVERY_WINDOW_BYTES * 2]
    session.consumed(1, DELIVERY_WINDOW_BYTES * 2)
    world.settle_down()
    assert listener.bodies[1:] == [b"next"]


@BOTH
def test_get_and_release_gives_it_back_flagged(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    session.publish(publishes(b"a", b"b"), None)
    session.flush()
    world.settle_down()
    run, left = world.run(session.get())
    assert (run.first, left) == (1, 1)
    session.settle(0, RELEASE, 1, 1)
    session.flush()
    world.settle_down()
    again, _ = world.run(session.get())
    assert bytes(again.redelivered) == b"\x01"
    assert again.first == 2


def test_get_from_empty_queue_gives_none(world, listener):
    session = world.open(2, listener)
    assert world.run(session.get()) is None


def test_purge_counts(world, listener, publishes):
    session = world.open(2, listener)
    session.publish(publishes(b"a", b"b", b"c"), None)
    session.flush()
    world.settle_down()
    assert world.run(session.purge()) == 3
    assert world.run(session.purge()) == 0


def test_exclusive_consumer_refuses_another(world, listener):
    first = world.open(1, listener)
    world.run(first.attach(1, Attachment("c", 10, exclusive=True)))
    second = world.open(2, listener)
    with pytest.raises(AmqpError, match="in exclusive use"):
        world.run(second.attach(1, Attachment("d", 10)))


@BOTH
def test_close_keeps_publishes_and_releases_unsettled(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    world.run(session.attach(1, Attachment("c", 1)))
    for number in range(4):
        session.publish(publishes(b"%d" % number), None)
        session.flush()
    session.close()
    world.settle_down()
    assert world.owner.closed == [session.session]
    assert world.hosts[1].machine.ready_count == 4
    assert session.session not in world.hosts[1].machine._state.sessions
    assert world.watcher.unused == 1


def test_settles_before_close_count(world, listener, publishes):
    session = world.open(2, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    session.publish(publishes(b"a", b"b"), None)
    session.flush()
    world.settle_down()
    session.settle(1, ACCEPT, 1, 1)
    session.close()
    world.settle_down()
    assert world.hosts[1].machine.ready_count == 1


def test_queue_deleted_confirms_cancels_and_refuses(world, listener, publishes):
    session = world.open(1, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    pending_confirm = PendingConfirm(1, 1)
    session.publish(publishes(b"a"), pending_confirm)
    session.flush()
    session.on_deleted()
    assert listener.confirmed == [pending_confirm]
    assert listener.cancelled == [(1, "queue deleted")]
    with pytest.raises(AmqpError, match="no queue 'work'"):
        world.run(session.get())


def test_busy_leader_is_asked_again_by_tick(world, listener, publishes):
    session = world.open(1, listener)
    pending_confirm = PendingConfirm(1, 1)
    world.busy = True
    session.publish(publishes(b"a"), pending_confirm)
    session.flush()
    world.settle_down()
    assert listener.confirmed == []
    world.busy = False
    for _ in range(10):
        session.tick()
    world.settle_down()
    assert listener.confirmed == [pending_confirm]
    assert world.hosts[1].machine.ready_count == 1


def test_wrong_leader_hint_is_followed(world, listener, publishes):
    session = world.open(1, listener)
    world.lead(2)
    pending_confirm = PendingConfirm(1, 1)
    session.publish(publishes(b"a"), pending_confirm)
    session.flush()
    world.settle_down()
    assert listener.confirmed == [pending_confirm]
    assert session.target == 2


def test_garbage_command_is_reported_and_changes_nothing(world):
    before = world.hosts[1].machine.digest()
    world.hosts[1].propose(b"\xff\xffgarbage")
    world.settle_down()
    assert len(world.watcher.rejected) == 2
    assert world.hosts[1].machine.digest() == before


def test_what_is_sent_again_has_arrived_once(world, listener, publishes):
    session = world.open(2, listener)
    session.publish(publishes(b"a", b"b"), None)
    session.flush()
    world.settle_down()
    arrived = int(world.hosts[1].moves.arrived)
    command = encode_enqueue(session.session, 1, encode_batch(publishes(b"a", b"b")))
    world.hosts[1].command(session.session, command)
    world.settle_down()
    assert (arrived, int(world.hosts[1].moves.arrived)) == (2, 2)


def test_a_session_that_is_over_leaves_nothing_to_the_garbage_collector(world, listener, publishes):
    def once():
        session = world.open(1, listener)
        world.run(session.attach(1, Attachment("t", 10)))
        session.publish(publishes(b"x"), None)
        session.flush()
        world.settle_down()
        listener.deliveries.clear()
        session.close()
        world.settle_down()
        del world.boards[1].sessions[session.session]  # as the node does
        return session.link

    assert once().reached
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        once()
        gc.collect()
        found = [each for each in gc.garbage if isinstance(each, (QueueSession, SessionLink))]
        assert found == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_what_comes_after_the_end_of_a_session_means_nothing(world, listener):
    session = world.open(1, listener)
    world.run(session.attach(1, Attachment("t", 10)))
    session.close()
    world.settle_down()
    end = session.end
    end.controlled(0, 0, 0)
    end.enqueued(1, 1)
    end.refused(2, False, False)
    end.detached(1)
    session.on_deleted()
