"""Sessions and replicas when something is lost, large or ends in between."""

from __future__ import annotations

import asyncio

import pytest

from headrace_broker.core.queue.messages.effect import LANE_PUBLISH
from headrace_broker.model.limits import COMMAND_BYTES_MAX, DELIVERY_WINDOW_BYTES, SETTLE_ITEMS_MAX
from headrace_broker.runtime.contract.port import ACCEPT, Attachment, PendingConfirm

BOTH = pytest.mark.parametrize("gateway", [1, 2], ids=["same_node", "other_node"])


def test_cancel_gives_back_what_never_left_the_leader(world, listener, publishes):
    session = world.open(2, listener)
    half = bytes(DELIVERY_WINDOW_BYTES // 2)
    world.run(session.attach(1, Attachment("c", 100)))
    for _ in range(4):
        session.publish(publishes(half), None)
        session.flush()
        world.settle_down()
    assert len(listener.bodies) == 2
    world.run(session.cancel(1))
    world.settle_down()
    machine = world.hosts[1].machine
    assert (machine.ready_count, machine.unsettled_count) == (2, 2)
    session.consumed(1, len(half))
    world.settle_down()
    assert len(listener.bodies) == 2


def test_cancel_gives_back_what_was_lost_on_the_way(world, listener, publishes):
    session = world.open(2, listener)
    world.run(session.attach(1, Attachment("c", 100)))
    other = world.open(1, type(listener)())
    world.cut = True
    other.publish(publishes(b"1", b"2"), None)
    other.flush()
    world.settle_down()
    world.cut = False
    world.run(session.cancel(1))
    world.settle_down()
    assert listener.bodies == []
    assert world.hosts[1].machine.ready_count == 2


@BOTH
def test_cancelled_consumers_leave_nothing_behind(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    for consumer in (1, 2, 3):
        world.run(session.attach(consumer, Attachment("c", 10)))
        session.publish(publishes(b"m"), None)
        session.flush()
        world.settle_down()
        world.run(session.cancel(consumer))
        session.settle(consumer, ACCEPT, 1, 1)
        session.flush()
        world.settle_down()
    assert len(listener.bodies) == 3
    assert session.consuming.subscriptions == {}
    assert world.hosts[1]._feeds.count == 0
    assert world.hosts[1].machine.unsettled_count == 0


@BOTH
def test_closed_session_leaves_no_feed(world, listener, gateway):
    session = world.open(gateway, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    assert world.hosts[1]._feeds.count == 1
    session.close()
    world.settle_down()
    assert world.hosts[1]._feeds.count == 0


def test_rebooted_node_leaves_no_feed(world, listener):
    session = world.open(2, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    world.hosts[1].node_down(2, 2)
    world.settle_down()
    assert world.hosts[1]._feeds.count == 0


@pytest.mark.parametrize("boot_kept", [0, 2], ids=["away", "restarted"])
def test_consumer_of_a_process_that_ended_while_its_attachment_was_under_way_gets_nothing(
    world, listener, publishes, boot_kept
):
    session = world.open(2, listener)

    async def attach():
        attaching = asyncio.ensure_future(session.attach(1, Attachment("c", 10)))
        await asyncio.sleep(0)
        world.carry()
        attaching.cancel()

    asyncio.run(attach())
    assert len(world.log) == 1
    world.break_links()
    assert world.hosts[1].node_down(2, boot_kept)
    other = world.open(1, type(listener)())
    other.publish(publishes(b"1"), None)
    other.flush()
    world.settle_down()
    machine = world.hosts[1].machine
    assert (machine.ready_count, machine.unsettled_count) == (1, 0)


def test_publishes_under_way_leave_no_session_of_a_process_that_ended(world, listener, publishes):
    session = world.open(2, listener)
    session.publish(publishes(b"1"), None)
    session.flush()
    world.carry()
    world.break_links()
    assert world.hosts[1].node_down(2, 2)
    world.settle_down()
    assert session.session not in world.hosts[1].machine._state.sessions
    assert world.hosts[1].machine.ready_count == 1


def test_node_that_has_no_sessions_and_nothing_under_way_costs_no_command(world, listener):
    session = world.open(1, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    before = len(world.log)
    assert world.hosts[1].node_down(2, 2)
    assert len(world.log) == before


def test_deposed_leader_tells_a_gateway_without_replica(world, listener, publishes):
    session = world.open(3, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    world.lead(2)
    world.settle_down()
    assert session.target == 2
    other = world.open(2, type(listener)())
    other.publish(publishes(b"2"), None)
    other.flush()
    world.settle_down()
    assert listener.bodies == [b"2"]


def test_resync_at_a_node_without_the_queue_is_refused(world, listener, publishes):
    session = world.open(2, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    session.relocate(3)
    world.settle_down()
    assert session.target == 0
    session.tick()
    session.publish(publishes(b"1"), None)
    session.flush()
    world.settle_down()
    assert listener.bodies == [b"1"]


def test_lost_resync_is_repeated_by_tick(world, listener, publishes):
    session = world.open(2, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    world.lead(2)
    world.lead(1)
    world.settle_down()
    world.full.add(1)
    session.relocate(1)
    world.full.clear()
    session.tick()
    world.settle_down()
    other = world.open(1, type(listener)())
    other.publish(publishes(b"1"), None)
    other.flush()
    world.settle_down()
    assert listener.bodies == [b"1"]


def test_lost_window_is_made_good_by_tick(world, listener, publishes):
    session = world.open(2, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    whole = bytes(DELIVERY_WINDOW_BYTES)
    for _ in range(2):
        session.publish(publishes(whole), None)
        session.flush()
        world.settle_down()
    assert len(listener.bodies) == 1
    world.full.add(1)
    session.consumed(1, len(whole))
    world.full.clear()
    session.tick()
    world.settle_down()
    assert len(listener.bodies) == 2


def test_runs_refused_by_a_full_outbox_come_later(world, listener, publishes):
    session = world.open(2, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    other = world.open(1, type(listener)())
    world.full.add(2)
    other.publish(publishes(b"1"), None)
    other.flush()
    world.settle_down()
    world.boards[1].mend()
    world.settle_down()
    assert listener.bodies == []
    world.full.clear()
    world.boards[1].mend()
    world.settle_down()
    session.tick()
    world.settle_down()
    assert listener.bodies == [b"1"]


def test_many_runs_behind_a_lost_one_ask_once(world, listener, publishes):
    session = world.open(2, listener)
    world.run(session.attach(1, Attachment("c", 1000)))
    other = world.open(1, type(listener)())
    for number in range(20):
        world.full = {2} if number == 0 else set()
        other.publish(publishes(b"%d" % number), None)
        other.flush()
        world.apply_new()
    before = world.sent.count((1, "resync"))
    world.settle_down()
    assert listener.bodies == [b"%d" % number for number in range(20)]
    assert world.sent.count((1, "resync")) == before + 1


def test_answer_lost_before_a_later_one_comes_at_last(world, listener, publishes):
    session = world.open(2, listener)
    session.publish(publishes(b"a"), None)
    session.flush()
    world.settle_down()

    async def work():
        waiting = asyncio.ensure_future(session.get())
        await asyncio.sleep(0)
        world.carry()
        world.full.add(2)
        world.apply_new()
        world.full.clear()
        session.settle(0, ACCEPT, 5, 5)
        session.flush()
        world.settle_down()
        for _ in range(10):
            session.tick()
        world.settle_down()
        return await waiting

    run, _ = asyncio.run(asyncio.wait_for(work(), 5))
    assert run.first == 1


def test_repeated_answer_of_a_get_is_not_kept(world, listener, publishes):
    session = world.open(2, listener)
    session.publish(publishes(b"a"), None)
    session.flush()

    async def work():
        waiting = asyncio.ensure_future(session.get())
        await asyncio.sleep(0)
        session.relocate(1)
        world.settle_down()
        return await waiting

    assert asyncio.run(work()) is not None
    assert session._got == {}
    assert world.traffic.deliver == 1


def test_silent_publish_lane_is_sent_again_though_controls_are_answered(world, listener, publishes):
    session = world.open(2, listener)
    assert world.run(session.get()) is None  # from now on consumer 0 can settle
    pending_confirm = PendingConfirm(1, 1)
    world.full.add(1)
    session.publish(publishes(b"a"), pending_confirm)
    session.flush()
    world.full.clear()
    session._gap_seen = (LANE_PUBLISH, 1)  # what said so is on its way, and gets lost
    for number in range(10):
        session.settle(0, ACCEPT, 10 + 2 * number, 10 + 2 * number)
        session.flush()
        world.settle_down()
        session.tick()
    world.settle_down()
    assert listener.confirmed == [pending_confirm]


def test_consumer_given_up_before_its_attach_was_answered_attaches_again(
    world, listener, publishes
):
    session = world.open(2, listener)

    async def work():
        waiting = asyncio.ensure_future(session.attach(1, Attachment("c", 10)))
        await asyncio.sleep(0)
        world.carry()
        world.cut = True
        world.settle_down()
        world.hosts[1].node_down(2, 0)
        world.settle_down()
        world.cut = False
        session.relocate(1)
        world.settle_down()
        await waiting
        world.settle_down()

    asyncio.run(work())
    session.publish(publishes(b"1"), None)
    session.flush()
    world.settle_down()
    assert listener.bodies == [b"1"]


def test_gathered_publishes_leave_in_commands_of_bounded_size(world, listener, publishes):
    session = world.open(1, listener)
    quarter = bytes(COMMAND_BYTES_MAX // 4)
    pending_confirms = [PendingConfirm(number, number) for number in range(1, 41)]
    for pending_confirm in pending_confirms:
        session.publish(publishes(quarter), pending_confirm)
    session.flush()
    world.settle_down()
    assert listener.confirmed == pending_confirms
    assert world.hosts[1].machine.ready_count == 40
    assert max(len(entry.data) for entry in world.log) <= COMMAND_BYTES_MAX + 4096


def test_close_sends_all_that_gathered_in_bounded_commands(world, listener, publishes):
    session = world.open(1, listener)
    for _ in range(12):
        session.publish(publishes(bytes(COMMAND_BYTES_MAX // 4)), None)
    session.close()
    world.settle_down()
    assert world.hosts[1].machine.ready_count == 12
    assert world.owner.closed == [session.session]
    assert max(len(entry.data) for entry in world.log) <= COMMAND_BYTES_MAX + 4096


def test_message_larger_than_a_command_leaves_alone(world, listener, publishes):
    session = world.open(1, listener)
    session.publish(publishes(b"a", bytes(COMMAND_BYTES_MAX * 2), b"b"), None)
    session.flush()
    world.settle_down()
    assert len(world.log) == 3
    assert world.hosts[1].machine.ready_count == 3


def test_many_settles_leave_in_commands_of_bounded_size(world, listener):
    session = world.open(1, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    count = SETTLE_ITEMS_MAX * 2 + 5
    for number in range(count):
        session.settle(1, ACCEPT, 2 * number + 1, 2 * number + 1)
    session.close()
    world.settle_down()
    sizes = [len(entry.data) for entry in world.log[1:-1]]
    assert len(sizes) == 3
    assert max(sizes) <= SETTLE_ITEMS_MAX * 21 + 64
    assert world.owner.closed == [session.session]


def test_queue_deleted_while_a_cancel_is_under_way_ends_it_in_peace(world, listener):
    session = world.open(1, listener)
    world.run(session.attach(1, Attachment("c", 10)))

    async def work():
        waiting = asyncio.ensure_future(session.cancel(1))
        await asyncio.sleep(0)
        session.on_deleted()
        await waiting

    asyncio.run(work())
    assert listener.cancelled == []
