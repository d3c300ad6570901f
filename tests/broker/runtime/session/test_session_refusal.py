"""Refused publishes, consumers that time out, and commands that are to be whole."""

from __future__ import annotations

import asyncio

import pytest

from headrace_broker.core.queue.command.command import Attach, Enqueue, Settle, stamp_command
from headrace_broker.core.queue.command.decoder import decode_command
from headrace_broker.core.queue.command.leader_command import encode_tick
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.settings import OVERFLOW_REJECT_PUBLISH
from headrace_broker.model.limits import COMMAND_BYTES_MAX, PIPELINE_COMMANDS
from headrace_broker.runtime.contract.port import (
    ACCEPT,
    MODIFY_FAILED,
    REJECT,
    RELEASE,
    Attachment,
    PendingConfirm,
)
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry

BOTH = pytest.mark.parametrize("gateway", [1, 2], ids=["same_node", "other_node"])


def commands(world, kind):
    found = [decode_command(entry.data) for entry in world.log]
    return [command for command in found if isinstance(command, kind)]


def configure(world, **values):
    """Give the queue settings."""
    world.watcher.version = MACHINE_VERSION
    for name, value in values.items():
        setattr(world.watcher.settings, name, value)
    assert world.hosts[world.leader].configure()
    world.settle_down()


def bodies_left(world):
    """Ready messages at each replica."""
    return [host.machine.ready_count for host in world.hosts.values()]


# Refusals


@BOTH
def test_full_queue_refuses_exactly_what_it_does_not_take(world, listener, publishes, gateway):
    configure(world, max_length=3, overflow=OVERFLOW_REJECT_PUBLISH)
    session = world.open(gateway, listener)
    first, second, third = PendingConfirm(1, 2), PendingConfirm(3, 5), PendingConfirm(6, 6)
    session.publish(publishes(b"a", b"b"), first)
    session.publish(publishes(b"c", b"d", b"e"), second)
    session.flush()
    session.publish(publishes(b"f"), third)
    session.flush()
    world.settle_down()
    assert (listener.confirmed, listener.rejected) == ([first], [second, third])
    assert (first.refused, second.refused, third.refused) == (None, {4, 5}, {6})
    assert bodies_left(world) == [3, 3]


@pytest.mark.parametrize("gateway", [1, 2, 3])
def test_repetition_at_the_next_leader_refuses_again(world, listener, publishes, gateway):
    configure(world, max_length=1, overflow=OVERFLOW_REJECT_PUBLISH)
    session = world.open(gateway, listener)
    pending_confirms = [PendingConfirm(1, 2), PendingConfirm(3, 3)]
    session.publish(publishes(b"a", b"b"), pending_confirms[0])
    session.flush()
    session.publish(publishes(b"c"), pending_confirms[1])
    session.flush()
    if gateway == 3:
        session.tick()
    world.carry()
    world.carry()
    if gateway != 1:
        world.break_links()
    else:
        world.boards[1].sessions.clear()  # as if its answers were lost
    world.apply_new()
    assert (listener.confirmed, listener.rejected) == ([], [])
    world.cut = False
    world.boards[gateway].sessions[session.session] = session.end
    world.lead(2)
    session.relocate(2)
    world.settle_down()
    assert (listener.confirmed, listener.rejected) == ([], pending_confirms)
    assert [pending_confirm.refused for pending_confirm in pending_confirms] == [{2}, {3}]
    assert bodies_left(world) == [1, 1]


@BOTH
def test_immediate_publish_that_no_consumer_takes_is_refused(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    world.run(session.attach(1, Attachment("c", 1)))
    immediate = publishes(b"a", b"b")
    for publish in immediate:
        publish.immediate = True
    pending_confirms = [PendingConfirm(1, 1), PendingConfirm(2, 2)]
    for publish, pending_confirm in zip(immediate, pending_confirms, strict=True):
        session.publish([publish], pending_confirm)
    session.flush()
    world.settle_down()
    assert (listener.confirmed, listener.rejected) == ([pending_confirms[0]], [pending_confirms[1]])
    assert listener.bodies == [b"a"]


def test_refused_publishes_are_told_apart_from_those_of_the_same_pending_confirm(
    world, listener, publishes
):
    session = world.open(1, listener)
    first, second = PendingConfirm(1, 3), PendingConfirm(4, 4)
    session.publish(publishes(b"a", b"b", b"c"), first)
    session.publish(publishes(b"d"), second)
    session.flush()
    session.end.rejected(2, 3, False)
    assert (listener.confirmed, listener.rejected) == ([], [])
    session.end.enqueued(1, 4)
    assert (listener.confirmed, listener.rejected) == ([second], [first])
    assert (first.refused, second.refused) == ({2, 3}, None)


def test_publishes_without_a_pending_confirm_are_refused_silently(world, listener, publishes):
    session = world.open(1, listener)
    session.publish(publishes(b"a"), None)
    session.flush()
    session.end.rejected(1, 1, False)
    session.end.enqueued(1, 1)
    assert (listener.confirmed, listener.rejected) == ([], [])


def test_answer_behind_a_lost_one_confirms_nothing_until_both_are_known(world, listener, publishes):
    session = world.open(1, listener)
    first, second = PendingConfirm(1, 1), PendingConfirm(2, 2)
    for pending_confirm in (first, second):
        session.publish(publishes(b"x"), pending_confirm)
        session.flush()
    assert [(each.seq, each.sizes.count) for each in commands(world, Enqueue)] == [(1, 1), (2, 1)]
    session.end.enqueued(2, 2)  # that of the first command was lost, and with it a refusal
    assert (listener.confirmed, listener.rejected) == ([], [])
    session.tick()
    assert [each.seq for each in commands(world, Enqueue)] == [1, 2, 1, 2]
    session.end.rejected(1, 1, False)
    session.end.enqueued(1, 2)
    assert (listener.confirmed, listener.rejected) == ([second], [first])


def test_gap_is_no_answer_to_what_lies_before_it(world, listener, publishes):
    session = world.open(1, listener)
    first, second = PendingConfirm(1, 1), PendingConfirm(2, 2)
    for pending_confirm in (first, second):
        session.publish(publishes(b"x"), pending_confirm)
        session.flush()
    session.end.gap(1, 2)
    assert listener.confirmed == []
    assert [each.seq for each in commands(world, Enqueue)] == [1, 2, 1, 2]


@BOTH
def test_refused_transaction_tells_which_of_its_publishes(world, listener, publishes, gateway):
    configure(world, max_length=1, overflow=OVERFLOW_REJECT_PUBLISH)
    session = world.open(gateway, listener)
    pending_confirm = PendingConfirm(1, 2)

    async def commit():
        session.publish_whole(publishes(b"a", b"b"), pending_confirm)
        await session.applied()

    world.run(commit())
    assert (listener.rejected, pending_confirm.refused) == ([pending_confirm], {2})


# Timeouts


@pytest.mark.parametrize("gateway", [1, 2, 3])
def test_consumer_that_holds_a_delivery_too_long_is_ended(world, listener, publishes, gateway):
    configure(world)
    session = world.open(gateway, listener)
    world.run(session.attach(1, Attachment("c", 10, timeout_ms=60_000)))
    session.publish(publishes(b"a"), None)
    session.flush()
    world.settle_down()
    assert listener.bodies == [b"a"]
    due = world.hosts[1].machine.due_ms()
    tick = stamp_command(due, encode_tick())
    world.log.append(Entry(len(world.log) + 1, 1, ENTRY_NORMAL, tick))
    world.settle_down()
    assert listener.timed_out == [1]
    assert world.hosts[1]._feeds.count == 0
    assert bodies_left(world) == [1, 1]


@BOTH
def test_consumer_attaches_as_it_was_asked_to(world, listener, gateway):
    session = world.open(gateway, listener)
    attachment = Attachment("c", 10, False, -7, 1000, 60_000, b"table")
    world.run(session.attach(1, attachment))
    (attach,) = commands(world, Attach)
    assert (attach.tag, attach.prefetch, attach.exclusive, attach.filtered) == (
        b"c",
        10,
        False,
        True,
    )
    assert (attach.priority, attach.prefetch_bytes, attach.timeout_ms) == (-7, 1000, 60_000)


@BOTH
def test_bytes_unsettled_bound_what_a_consumer_gets(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    world.run(session.attach(1, Attachment("c", 100, prefetch_bytes=25)))
    session.publish(publishes(*[b"0123456789"] * 5), None)
    session.flush()
    world.settle_down()
    got = len(listener.bodies)
    assert 2 <= got <= 3
    session.settle(1, ACCEPT, 1, 1)
    session.flush()
    world.settle_down()
    assert len(listener.bodies) == got + 1


def test_timed_out_consumer_ends_and_its_settles_are_void(world, listener, publishes):
    session = world.open(1, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    session.publish(publishes(b"a"), None)
    session.flush()
    world.settle_down()
    assert listener.bodies == [b"a"]
    session.end.timed_out(1)
    assert listener.timed_out == [1]
    session.settle(1, ACCEPT, 1, 1)
    session.flush()
    session.end.timed_out(1)
    assert listener.timed_out == [1]
    assert commands(world, Settle) == []


def test_get_goes_on_after_what_it_took_has_timed_out(world, listener, publishes):
    session = world.open(1, listener)
    session.publish(publishes(b"a", b"b"), None)
    session.flush()
    world.settle_down()
    world.run(session.get())
    session.end.timed_out(0)
    assert listener.timed_out == [0]
    run, _ = world.run(session.get())
    session.settle(0, ACCEPT, run.first, run.first)
    session.flush()
    world.settle_down()
    assert world.hosts[1].machine.unsettled_count == 1  # the machine here times nothing out


# What comes again


@BOTH
def test_redelivered_message_says_how_often_it_was_handed_out(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    runs = []
    listener.on_delivery = lambda client, run: runs.append(run)
    session.publish(publishes(b"a", b"b"), None)
    session.flush()
    world.run(session.attach(1, Attachment("c", 10)))
    session.settle(1, MODIFY_FAILED, 1, 1)
    session.flush()
    world.settle_down()
    session.settle(1, RELEASE, 3, 3)
    session.flush()
    world.settle_down()
    assert [run.counts for run in runs] == [
        b"",
        b"\x00\x00\x00\x01\x00\x00\x00\x01",
        b"\x00\x00\x00\x01\x00\x00\x00\x02",
    ]


# Whole commands


@BOTH
def test_transaction_is_one_command_though_it_is_large(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    pending_confirm = PendingConfirm(1, 4)
    body = b"x" * (COMMAND_BYTES_MAX // 2)
    session.publish(publishes(b"before"), None)
    session.publish_whole(publishes(*[body] * 4), pending_confirm)
    world.settle_down()
    assert [each.sizes.count for each in commands(world, Enqueue)] == [1, 4]
    assert listener.confirmed == [pending_confirm]


def test_whole_command_does_not_wait_for_the_pipeline(world, listener, publishes):
    session = world.open(1, listener)
    for _ in range(PIPELINE_COMMANDS + 1):
        session.publish(publishes(b"x"), None)
        session.flush()
    session.publish_whole(publishes(b"y", b"z"), PendingConfirm(1, 2))
    assert [each.sizes.count for each in commands(world, Enqueue)] == [1, 1, 1, 2]


@BOTH
def test_settles_of_a_transaction_are_one_command(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    session.publish(publishes(b"a", b"b", b"c", b"d"), None)
    session.flush()
    world.settle_down()
    session.settle(1, ACCEPT, 4, 4)
    session.settle_whole([(1, ACCEPT, 1, 1), (1, REJECT, 2, 2), (1, ACCEPT, 3, 3)])
    world.settle_down()
    assert [len(each.items) for each in commands(world, Settle)] == [1, 3]
    assert world.hosts[1].machine.unsettled_count == 0


@BOTH
def test_applied_waits_for_what_was_sent(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    pending_confirm = PendingConfirm(1, 1)

    async def commit():
        session.publish_whole(publishes(b"a"), pending_confirm)
        assert listener.confirmed == []
        await session.applied()
        assert listener.confirmed == [pending_confirm]

    world.run(commit())


@pytest.mark.parametrize("end", ["closed", "deleted"])
def test_nobody_waits_for_a_session_that_ends(world, listener, publishes, end):
    session = world.open(1, listener)

    async def commit():
        session.publish_whole(publishes(b"a"), PendingConfirm(1, 1))
        waiting = asyncio.ensure_future(session.applied())
        await asyncio.sleep(0)
        assert not waiting.done()
        if end == "closed":
            session.close()
        else:
            session.on_deleted()
        await waiting
        await session.applied()

    asyncio.run(commit())
