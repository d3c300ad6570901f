"""A connection that ends gives up its channels in several turns of the loop."""

from __future__ import annotations

import pytest
from pamqp import commands
from tests.broker.gateways.amqp.loop import loop_turn

from headrace_broker.codecs.method import encode_method
from headrace_broker.model.limits import CHANNEL_UNITS, CONTROL_TURN_UNITS, METHOD_UNITS

MANY = 100
A_TURN = CONTROL_TURN_UNITS // (CHANNEL_UNITS + METHOD_UNITS + 1) + 1  # with a consumer each
Close = commands.Connection.Close


@pytest.fixture
def consuming(kit, broker, new_peer):
    """Returns a client with MANY channels, each with a consumer that has one message, in order."""

    def start(count=MANY):
        queue = broker.add_queue("q")
        peer = new_peer().open(channels=count)
        for channel in range(1, count + 1):
            peer.call(channel, commands.Basic.Qos(0, 1, False))
            peer.call(channel, commands.Basic.Consume(queue="q", consumer_tag="c"))
        publisher = new_peer().open()
        for number in range(count):
            publisher.feed(kit.publish(1, "", "q", b"%04d" % number))
            publisher.turn()
        peer.turn()
        assert len(queue.consumers) == count
        return peer, queue

    return start


def test_channels_of_a_lost_connection_are_given_up_in_turns(broker, consuming):
    peer, queue = consuming()
    peer.connection.lost()
    counts = [len(queue.consumers)]
    while peer.shell.woken:
        loop_turn(broker, peer)
        counts.append(len(queue.consumers))
    given_up = [before - after for before, after in zip([MANY, *counts], counts, strict=False)]
    assert max(given_up) <= A_TURN
    assert counts[-1] == 0
    assert len(counts) <= MANY // (A_TURN - 2) + 4


def test_what_they_had_goes_back_in_order(broker, consuming):
    peer, queue = consuming()
    peer.connection.lost()
    peer.turn()
    numbers = [message.number for message in queue.ready]
    assert len(numbers) == MANY
    assert numbers == sorted(numbers)
    assert {message.acquired for message in queue.ready} == {1}


def test_connection_is_listed_with_the_channels_that_are_left(broker, consuming):
    peer, queue = consuming()
    peer.connection.lost()
    seen = []
    while peer.shell.woken:
        assert broker.connections[peer.info.id].channels == pytest.approx(
            len(queue.consumers), abs=1
        )
        seen.append(peer.info.channels)
        loop_turn(broker, peer)
    assert len(seen) > 2
    assert peer.info.channels == 0
    assert peer.info.id not in broker.connections


def test_what_has_passed_its_channels_counts_all_the_while(broker, consuming):
    peer, _ = consuming()
    passed = peer.info.traffic()
    assert sum(passed) >= MANY
    peer.connection.lost()
    while peer.shell.woken:
        assert peer.info.traffic() == passed
        loop_turn(broker, peer)
    assert peer.info.traffic() == passed


def test_socket_is_released_once_all_is_given_back(broker, consuming):
    peer, _ = consuming()
    count = broker.intake.shares.count
    peer.connection.lost()
    while peer.shell.woken:
        assert not peer.shell.was_released
        assert broker.intake.shares.count == count
        loop_turn(broker, peer)
    assert peer.shell.was_released
    assert broker.intake.shares.count == count - 1


def test_socket_is_released_although_the_last_channel_cannot_be_given_up(broker, consuming):
    peer, _ = consuming(1)
    [client] = [each for each in broker.clients if each.consumers]

    def fail():
        raise MemoryError

    client.close = fail
    with pytest.raises(MemoryError):
        peer.connection.lost()
    while peer.shell.woken:
        loop_turn(broker, peer)
    assert peer.shell.was_released
    assert peer.info.id not in broker.connections


def test_lost_consumers_take_nothing_more(kit, broker, consuming, new_peer):
    peer, queue = consuming()
    publisher = new_peer().open()
    peer.connection.lost()
    assert queue.consumers
    publisher.feed(kit.publish(1, "", "q", b"last"))
    while peer.shell.woken:
        loop_turn(broker, peer, publisher)
    assert queue.settled == []
    assert len(queue.ready) == MANY + 1


def test_exclusive_queue_goes_after_the_channels(broker, consuming):
    peer, queue = consuming()
    peer.ask(1, commands.Queue.Declare(queue="mine", exclusive=True))
    peer.connection.lost()
    while queue.consumers:
        assert "mine" in broker.queues
        loop_turn(broker, peer)
    peer.turn()
    assert "mine" not in broker.queues


def test_close_is_answered_when_all_is_given_back(broker, consuming):
    peer, queue = consuming()
    peer.feed(encode_method(0, Close(200, "", 0, 0)))
    while queue.consumers:
        assert peer.frames() == []
        loop_turn(broker, peer)
    assert [value.name for _, value in peer.turn()] == ["Connection.CloseOk"]
    assert peer.info.id not in broker.connections


def test_loss_while_a_close_is_being_carried_out(broker, consuming):
    peer, queue = consuming()
    peer.feed(encode_method(0, Close(200, "", 0, 0)))
    loop_turn(broker, peer)
    assert queue.consumers
    peer.connection.lost()
    assert queue.consumers
    peer.turn()
    assert not queue.consumers
    assert peer.shell.was_released
    assert peer.info.channels == 0


def test_loss_after_the_broker_has_closed(broker, consuming):
    peer, queue = consuming()
    peer.connection.shut_down("the broker is shutting down")
    assert queue.consumers
    peer.connection.lost()
    peer.turn()
    assert not queue.consumers
    assert peer.shell.was_released


def test_two_lost_connections_share_a_turn(broker, new_peer):
    queue = broker.add_queue("q")
    peers = [new_peer().open(channels=50) for _ in range(2)]
    for peer in peers:
        for channel in range(1, 51):
            peer.call(channel, commands.Basic.Consume(queue="q", consumer_tag="c"))
    for peer in peers:
        peer.connection.lost()
    loop_turn(broker, *peers)
    while any(peer.shell.woken for peer in peers):
        before = len(queue.consumers)
        loop_turn(broker, *peers)
        assert before - len(queue.consumers) <= A_TURN + 2


def test_sessions_of_one_channel_end_in_turns(broker, peer):
    for number in range(MANY):
        broker.add_queue(f"q{number}")
        peer.call(1, commands.Basic.Consume(queue=f"q{number}"))
    loop_turn(broker, peer)
    peer.feed(encode_method(1, commands.Channel.Close(200, "", 0, 0)))
    left = [sum(len(queue.consumers) for queue in broker.queues.values())]
    while peer.shell.woken:
        loop_turn(broker, peer)
        left.append(sum(len(queue.consumers) for queue in broker.queues.values()))
    ended = [before - after for before, after in zip([MANY, *left], left, strict=False)]
    assert max(ended) <= CONTROL_TURN_UNITS // METHOD_UNITS
    assert left[-1] == 0
    opened = peer.call(1, commands.Channel.Open())
    assert [value.name for _, value in opened] == ["Channel.CloseOk", "Channel.OpenOk"]
