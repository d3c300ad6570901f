"""Publishes of large messages: copied in turns for a leader on the same node, sent in pieces."""

from __future__ import annotations

import pytest

from headrace_broker.codecs.batch import message_body
from headrace_broker.core.queue.command.command import ENQUEUE_BATCH_OFFSET
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.model.limits import COPY_TURN_BYTES, LARGE_BYTES, TX_EXTRA_BYTES
from headrace_broker.model.message import Publisher
from headrace_broker.runtime.contract.port import Attachment, PendingConfirm

BOTH = pytest.mark.parametrize("gateway", [1, 2], ids=["same_node", "other_node"])
LARGE = bytes(range(256)) * (4 * LARGE_BYTES // 256)


def bodies(world):
    """Return the first body of each entry with messages."""
    return [message_body(each.data, ENQUEUE_BATCH_OFFSET, 0) for each in world.log]


@BOTH
def test_large_messages_are_confirmed_and_delivered_in_order(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    pending_confirm = PendingConfirm(1, 3)
    session.publish(publishes(b"1", LARGE, b"2"), pending_confirm)
    session.flush()
    world.settle_down()
    assert listener.confirmed == [pending_confirm]
    assert [host.machine.ready_count for host in world.hosts.values()] == [3, 3]
    world.run(session.attach(1, Attachment("c", 10)))
    for _ in range(4):
        session.consumed(1, len(LARGE))
        world.settle_down()
    assert listener.bodies == [b"1", LARGE, b"2"]


def test_no_turn_copies_more_than_its_share_for_a_leader_on_the_same_node(
    world, listener, publishes
):
    session = world.open(1, listener)
    session.publish(publishes(LARGE), None)
    session.flush()
    session.publish(publishes(b"behind"), None)
    session.flush()
    turns = 0
    while world.owner.copying:
        assert world.log == []
        world.owner.turn()
        turns += 1
    assert turns == len(LARGE) // COPY_TURN_BYTES + 1
    assert bodies(world) == [LARGE, b"behind"]


def test_a_leader_on_another_node_is_sent_pieces_at_once(world, listener, publishes):
    session = world.open(2, listener)
    session.publish(publishes(LARGE), None)
    session.flush()
    assert world.owner.copying == []
    assert world.sent[-1] == (1, "command")


def test_what_is_sent_again_is_not_copied_again(world, listener, publishes):
    session = world.open(2, listener)
    (publish,) = publishes(LARGE)
    session.publish([publish], None)
    session.flush()
    (pending,) = session.publishing.lane.pending
    pieces = pending.large.pieces()
    session.relocate(1)
    assert all(one is other for one, other in zip(pieces, pending.large.pieces(), strict=True))
    assert any(piece is publish.body for piece in pieces)
    world.settle_down()
    assert world.hosts[1].machine.ready_count == 1


def test_leader_that_moves_to_this_node_meanwhile_gets_all_in_order(world, listener, publishes):
    session = world.open(2, listener)
    pending_confirm = PendingConfirm(1, 2)
    session.publish(publishes(LARGE, b"behind"), pending_confirm)
    session.flush()
    world.lose_uncommitted()
    world.break_links()
    world.cut = False
    world.lead(2)
    session.relocate(2)
    assert world.owner.copying
    world.settle_down()
    assert listener.confirmed == [pending_confirm]
    assert bodies(world)[-2:] == [LARGE, b"behind"]


def test_leader_that_moves_away_while_it_is_copied_gets_it_in_pieces(world, listener, publishes):
    session = world.open(1, listener)
    session.publish(publishes(LARGE, b"behind"), None)
    session.flush()
    world.owner.turn()
    world.lead(2)
    session.relocate(2)
    assert world.owner.copying  # nothing is left to be copied, which the next turn finds
    world.settle_down()
    assert world.hosts[2].machine.ready_count == 2


def test_leader_that_refuses_what_was_copied_loses_nothing(world, listener, publishes):
    session = world.open(1, listener)
    session.publish(publishes(LARGE, b"behind"), None)
    session.flush()
    world.lead(2)  # and the session is not told: its host refuses, within the turn that sends
    while world.owner.copying:
        world.owner.turn()
    world.settle_down()
    assert world.hosts[2].machine.ready_count == 2
    session.publish(publishes(LARGE), None)
    session.flush()
    world.settle_down()
    assert world.hosts[2].machine.ready_count == 3


def test_session_that_ends_while_it_copies_publishes_all(world, listener, publishes):
    session = world.open(1, listener)
    session.publish(publishes(LARGE, b"behind"), None)
    session.flush()
    session.close()
    world.settle_down()
    assert world.hosts[1].machine.ready_count == 2
    assert world.owner.closed == [session.session]


def test_session_that_is_given_up_while_it_copies_publishes_nothing(world, listener, publishes):
    session = world.open(1, listener)
    pending_confirm = PendingConfirm(1, 1)
    session.publish(publishes(LARGE), pending_confirm)
    session.flush()
    assert session.abandon() == [pending_confirm]
    world.settle_down()
    assert world.log == []


@BOTH
def test_transaction_of_a_large_message_is_one_command(world, listener, publishes, gateway):
    session = world.open(gateway, listener)
    pending_confirm = PendingConfirm(1, 1)
    session.publish_whole(publishes(LARGE[: TX_EXTRA_BYTES + LARGE_BYTES]), pending_confirm)
    world.settle_down()
    assert listener.confirmed == [pending_confirm]
    assert len(world.log) == 1


@BOTH
def test_large_message_with_a_number_of_its_publisher_is_known_again(
    world, listener, publishes, gateway
):
    world.watcher.version = MACHINE_VERSION
    world.hosts[1].configure()
    world.settle_down()
    session = world.open(gateway, listener)
    for number in (1, 2):
        pending_confirm = PendingConfirm(number, number)
        session.publish_named(publishes(LARGE), pending_confirm, Publisher(b"p", 1), [5])
        session.flush()
        world.settle_down()
        assert listener.confirmed[-1] is pending_confirm
    assert world.hosts[1].machine.ready_count == 1
