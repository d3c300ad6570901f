"""Publishes to a queue of which no leader can be reached are answered."""

from __future__ import annotations

import pytest
from pamqp import commands

from headrace_broker.model.flow import LIMIT_ACCOUNT
from headrace_broker.model.limits import ACCOUNT_MESSAGES

TEXT = "no leader of queue 'q' in vhost '/' was reachable from this node for 5 s"


def told(frames):
    return [
        (value.name, value.delivery_tag, value.multiple)
        if value.name in ("Basic.Ack", "Basic.Nack")
        else value.name
        for _, value in frames
    ]


@pytest.fixture
def silent(broker):
    """A queue that takes and answers nothing."""
    queue = broker.add_queue("q")
    broker.hold_confirms = broker.hold_loans = True
    return queue


def test_publishes_with_confirms_are_refused_and_the_channel_lives(kit, broker, silent, peer):
    peer.call(1, commands.Confirm.Select())
    peer.feed(kit.publish(1, "", "q", b"1") + kit.publish(1, "", "q", b"2"))
    assert peer.turn() == []
    client = broker.clients[-1]
    client.listener.on_unreachable(client, TEXT)
    assert told(peer.turn()) == [("Basic.Nack", 1, False), ("Basic.Nack", 2, False)]
    assert client.closed
    broker.hold_confirms = False
    peer.feed(kit.publish(1, "", "q", b"3"))
    assert told(peer.turn()) == [("Basic.Ack", 3, False)]
    assert broker.clients[-1] is not client


def test_what_is_held_behind_them_goes_on_and_is_refused_in_its_turn(kit, broker, silent, peer):
    peer.call(1, commands.Confirm.Select())
    count = 2 * ACCOUNT_MESSAGES
    for _ in range(count // 10):
        peer.feed(kit.publish(1, "", "q", b"x") * 10)
    peer.turn()
    assert peer.info.flow.limit == LIMIT_ACCOUNT
    refused = 0
    for _ in range(4):
        client = broker.clients[-1]
        if not client.closed:
            client.listener.on_unreachable(client, TEXT)
        refused += len(peer.turn())
    assert refused == count
    assert peer.info.buffered_messages == 0


def test_channel_without_confirms_closes_and_says_why(kit, broker, silent, peer):
    peer.feed(kit.publish(1, "", "q", b"1"))
    peer.turn()
    client = broker.clients[-1]
    client.listener.on_unreachable(client, TEXT)
    ((_, close),) = peer.turn()
    assert (close.name, close.reply_code) == ("Channel.Close", 406)
    assert close.reply_text == f"PRECONDITION_FAILED - {TEXT}"
    assert client.closed


def test_session_with_a_consumer_is_not_given_up_but_the_channel_closes(kit, broker, silent, peer):
    peer.call(1, commands.Confirm.Select())
    assert told(peer.call(1, commands.Basic.Consume(0, "q", "t"))) == ["Basic.ConsumeOk"]
    peer.feed(kit.publish(1, "", "q", b"1"))
    peer.turn()
    client = broker.clients[-1]
    client.listener.on_unreachable(client, TEXT)
    assert told(peer.turn()) == ["Channel.Close"]


def test_message_to_two_queues_is_refused_for_the_one_without_a_leader(kit, broker, silent, peer):
    broker.add_queue("r")
    peer.call(1, commands.Confirm.Select())
    for name in ("q", "r"):
        peer.call(1, commands.Queue.Bind(0, name, "amq.fanout"))
    peer.feed(kit.publish(1, "amq.fanout", "", b"1"))
    peer.turn()
    first, second = (each for each in broker.clients if each.waiting)
    first.listener.on_unreachable(first, TEXT)
    assert told(peer.turn()) == []
    second.confirm(1)
    assert told(peer.turn()) == [("Basic.Nack", 1, False)]


def test_client_that_is_closed_already_is_ignored(kit, broker, silent, peer):
    peer.feed(kit.publish(1, "", "q", b"1"))
    peer.turn()
    client = broker.clients[-1]
    listener = client.listener
    peer.call(1, commands.Channel.Close(200, "", 0, 0))
    listener.on_unreachable(client, TEXT)
    assert peer.turn() == []
