"""Publishes that a limit stops: what they wait for, what overtakes them, how they end."""

from __future__ import annotations

import logging

import pytest
from pamqp import commands

from headrace_broker.codecs.batch import message_body
from headrace_broker.codecs.method import encode_method
from headrace_broker.model.flow import (
    LIMIT_ACCOUNT,
    LIMIT_DISK,
    LIMIT_INTAKE,
    LIMIT_QUEUE,
    NO_LIMIT,
)
from headrace_broker.model.limits import CLOSE_SECONDS_MAX

Basic, Channel, Queue, Tx = commands.Basic, commands.Channel, commands.Queue, commands.Tx
CLOSE = Channel.Close(200, "", 0, 0)


def names(frames):
    return [value.name for _, value in frames]


def bodies(queue):
    return [message_body(each.blob, 0, each.position) for each in queue.ready]


def send(kit, peer, key, *payloads, channel=1):
    for payload in payloads:
        peer.feed(kit.publish(channel, "", key, payload))


@pytest.fixture
def other(broker):
    return broker.add_queue("other")


def closed(fake):
    fake.gate.set_room(False)


def opened(broker, fake, peer):
    """Let pass who waits at a queue's gate."""
    fake.gate.set_room(True)
    while fake.gate.waiting_count and fake.gate.room:
        if fake.gate.serve(1 << 20) == 0:
            break
    return peer.turn()


# What stops a channel


def test_alarm_holds_publishes_until_it_is_over(kit, broker, queue, peer):
    broker.block("low")
    send(kit, peer, "q", b"1", b"2")
    peer.turn()
    assert bodies(queue) == []
    assert (peer.info.buffered_messages, peer.info.flow.limit) == (2, LIMIT_DISK)
    broker.block("")
    peer.turn()
    assert bodies(queue) == [b"1", b"2"]
    assert (peer.info.buffered_messages, peer.info.buffered_bytes) == (0, 0)
    assert peer.info.flow.limit == NO_LIMIT


def test_debt_holds_publishes_of_all_channels_until_it_is_at_its_low_mark(
    kit, broker, queue, new_peer
):
    peer = new_peer().open(channels=2)
    broker.flow.account_messages = 4
    broker.hold_loans = True
    send(kit, peer, "q", b"1", b"2", b"3", b"4", b"5", b"6")
    send(kit, peer, "q", b"a", channel=2)
    peer.turn()
    assert bodies(queue) == [b"1", b"2", b"3", b"4", b"5"]
    assert peer.info.state == "flow"
    assert (peer.info.flow.limit, peer.info.flow.group) == (LIMIT_ACCOUNT, queue.definition.group)
    broker.hold_loans = False
    broker.repay()
    peer.turn()
    assert bodies(queue)[5:] == [b"6", b"a"]
    assert peer.info.state == "running"


def test_closed_gate_holds_what_goes_to_its_queue_and_all_behind_it(
    kit, broker, queue, other, peer
):
    closed(queue)
    send(kit, peer, "q", b"1")
    send(kit, peer, "other", b"2")
    peer.turn()
    assert (bodies(queue), bodies(other)) == ([], [])
    assert (peer.info.flow.limit, peer.info.flow.group) == (LIMIT_QUEUE, queue.definition.group)
    opened(broker, queue, peer)
    assert (bodies(queue), bodies(other)) == ([b"1"], [b"2"])


def test_channels_do_not_wait_for_each_others_queues(kit, queue, other, new_peer):
    peer = new_peer().open(channels=2)
    closed(queue)
    send(kit, peer, "q", b"1")
    send(kit, peer, "other", b"2", channel=2)
    peer.turn()
    assert (bodies(queue), bodies(other)) == ([], [b"2"])


def test_publishes_to_two_queues_wait_for_both_gates(kit, broker, queue, other, peer):
    for name in ("q", "other"):
        peer.call(1, Queue.Bind(queue=name, exchange="amq.fanout"))
    closed(queue)
    closed(other)
    peer.feed(kit.publish(1, "amq.fanout", "", b"1"))
    peer.turn()
    opened(broker, queue, peer)
    assert (bodies(queue), bodies(other)) == ([], [])
    opened(broker, other, peer)
    assert (bodies(queue), bodies(other)) == ([b"1"], [b"1"])


def test_message_that_finds_no_queue_needs_no_gate(kit, broker, queue, peer):
    closed(queue)
    peer.feed(kit.publish(1, "amq.fanout", "", b"1", mandatory=True))
    assert names(peer.turn()) == ["Basic.Return", "ContentHeader", "ContentBody"]


def test_spent_budget_of_a_turn_holds_publishes_until_the_next(kit, broker, queue, peer):
    broker.intake.take(1 << 20, 0)
    send(kit, peer, "q", b"1", b"2")
    assert (bodies(queue), peer.info.flow.limit) == ([], LIMIT_INTAKE)
    peer.turn()
    assert bodies(queue) == [b"1", b"2"]


def test_who_was_served_for_as_much_as_it_may_waits_again_at_the_gate(kit, broker, queue, peer):
    closed(queue)
    send(kit, peer, "q", bytes(1000), bytes(1000), bytes(1000))
    queue.gate.set_room(True)
    queue.gate.serve(1)
    peer.turn()
    assert len(queue.ready) == 1
    assert queue.gate.waiting_count == 1
    queue.gate.serve(1 << 20)
    peer.turn()
    assert len(queue.ready) == 3


def test_rest_of_a_batch_that_meets_a_closed_gate_is_held(kit, broker, queue, other, peer):
    peer.call(1, Queue.Bind(queue="q", exchange="amq.headers", arguments={"a": 1}))
    peer.call(1, Queue.Bind(queue="other", exchange="amq.headers", arguments={"a": 2}))
    closed(other)

    def one(value, body):
        properties = Basic.Properties(headers={"a": value})
        return kit.publish(1, "amq.headers", "", body, properties=properties)

    peer.feed(one(1, b"1") + one(2, b"2") + one(1, b"3"))
    peer.turn()
    assert (bodies(queue), bodies(other)) == ([b"1"], [])
    assert peer.info.buffered_messages == 2
    opened(broker, other, peer)
    assert (bodies(queue), bodies(other)) == ([b"1", b"3"], [b"2"])


def test_confirms_are_numbered_in_the_order_of_arrival(kit, broker, queue, other, peer):
    peer.call(1, commands.Confirm.Select())
    closed(queue)
    send(kit, peer, "other", b"1")
    send(kit, peer, "q", b"2")
    send(kit, peer, "other", b"3")
    assert [value.delivery_tag for _, value in peer.turn()] == [1]
    acks = opened(broker, queue, peer)
    assert [(value.delivery_tag, value.multiple) for _, value in acks] == [(3, True)]


# What overtakes held publishes, and what does not


@pytest.fixture
def consuming(kit, broker, queue, other, peer):
    """A channel that has two messages of `other` unsettled and publishes that are held."""
    send(kit, peer, "other", b"x", b"y", b"z")
    peer.call(1, Basic.Qos(prefetch_count=2))
    assert names(peer.call(1, Basic.Consume(queue="other", consumer_tag="c")))[-1] == "ContentBody"
    broker.block("low")
    send(kit, peer, "q", b"1")
    peer.turn()
    assert peer.info.buffered_messages == 1
    return peer


def test_acks_overtake_held_publishes(broker, queue, other, consuming):
    frames = consuming.call(1, Basic.Ack(1))
    assert names(frames) == ["Basic.Deliver", "ContentHeader", "ContentBody"]
    assert len(other.settled) == 1
    assert bodies(queue) == []


@pytest.mark.parametrize("method", [Basic.Reject(1, False), Basic.Nack(1, requeue=False)])
def test_rejections_overtake_held_publishes(other, consuming, method):
    consuming.call(1, method)
    assert len(other.settled) == 1


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (Basic.Recover(True), "Basic.RecoverOk"),
        (Basic.Cancel("c"), "Basic.CancelOk"),
        (Basic.Qos(prefetch_count=7), "Basic.QosOk"),
        (Channel.Flow(False), "Channel.FlowOk"),
    ],
)
def test_methods_that_concern_deliveries_overtake_held_publishes(consuming, method, answer):
    assert answer in names(consuming.call(1, method))
    assert consuming.info.buffered_messages == 1


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (Queue.Declare(queue="new"), "Queue.DeclareOk"),
        (Queue.Purge(queue="q"), "Queue.PurgeOk"),
        (Basic.Get(queue="q"), "Basic.GetOk"),
        (Basic.Consume(queue="q"), "Basic.ConsumeOk"),
        (commands.Confirm.Select(), "Confirm.SelectOk"),
        (Tx.Select(), "Tx.SelectOk"),
        (CLOSE, "Channel.CloseOk"),
    ],
)
def test_other_methods_wait_behind_held_publishes(broker, consuming, method, answer):
    assert consuming.call(1, method) == []
    broker.block("")
    assert answer in names(consuming.turn())


def test_nothing_overtakes_a_consume_but_settlements(broker, other, consuming):
    assert consuming.call(1, Basic.Consume(queue="q", consumer_tag="d"), Basic.Cancel("d")) == []
    consuming.call(1, Basic.Ack(1))
    assert len(other.settled) == 1
    broker.block("")
    assert "Basic.CancelOk" in names(consuming.turn())


def test_settlements_do_not_overtake_the_beginning_of_a_transaction(broker, other, consuming):
    consuming.call(1, Tx.Select(), Basic.Ack(1))
    broker.block("")
    consuming.turn()
    assert other.settled == []  # the transaction has it
    consuming.call(1, Tx.Commit())
    assert len(other.settled) == 1


def test_what_waits_behind_an_operation_goes_after_what_is_held(kit, broker, queue, consuming):
    broker.gate.opened = False
    consuming.call(1, Basic.Cancel("c"))
    send(kit, consuming, "q", b"2")
    broker.gate.opened = True
    consuming.turn()
    assert bodies(queue) == []
    broker.block("")
    consuming.turn()
    assert bodies(queue) == [b"1", b"2"]


def test_other_channels_go_on(kit, broker, queue, new_peer):
    peer = new_peer().open(channels=2)
    broker.block("low")
    send(kit, peer, "q", b"1")
    assert peer.ask(2, Queue.Declare(queue="new")).name == "Queue.DeclareOk"


def test_commit_waits_while_publishers_are_blocked(kit, broker, queue, peer):
    peer.call(1, Tx.Select())
    broker.block("low")
    send(kit, peer, "q", b"1")
    assert names(peer.turn()) == []
    assert names(peer.call(1, Tx.Commit())) == ["Connection.Blocked"]
    assert bodies(queue) == []
    broker.block("")
    assert sorted(names(peer.turn())) == ["Connection.Unblocked", "Tx.CommitOk"]
    assert bodies(queue) == [b"1"]


def test_commit_without_publishes_does_not_wait(broker, peer):
    peer.call(1, Tx.Select())
    broker.block("low")
    assert names(peer.call(1, Tx.Commit())) == ["Tx.CommitOk"]


# Ends


def test_channel_closes_once_what_it_holds_has_gone(kit, broker, queue, peer):
    closed(queue)
    send(kit, peer, "q", b"1")
    assert peer.call(1, CLOSE) == []
    assert names(opened(broker, queue, peer)) == ["Channel.CloseOk"]
    assert bodies(queue) == [b"1"]


def test_channel_that_closes_in_an_alarm_drops_what_did_not_move(kit, broker, queue, peer, caplog):
    broker.block("low")
    send(kit, peer, "q", b"1", b"2")
    peer.turn()
    assert peer.call(1, CLOSE) == []
    seconds, look = peer.shell.later
    assert seconds == CLOSE_SECONDS_MAX
    look()
    assert peer.turn() == []  # something had moved: what is held came
    _, look = peer.shell.later
    with caplog.at_level(logging.WARNING):
        look()
    assert names(peer.turn()) == ["Channel.CloseOk"]
    assert "2 publishes that were held are dropped" in caplog.text
    assert (broker.ledger.dropped_messages, peer.info.buffered_messages) == (2, 0)
    assert peer.info.state == "blocking"
    broker.block("")
    peer.turn()
    assert bodies(queue) == []


def test_channel_that_closes_before_a_closed_gate_hands_over_what_did_not_move(
    kit, broker, queue, peer
):
    closed(queue)
    send(kit, peer, "q", b"1")
    peer.call(1, CLOSE)
    for _ in range(2):
        peer.shell.later[1]()
    assert names(peer.turn()) == ["Channel.CloseOk"]
    assert bodies(queue) == [b"1"]
    assert queue.gate.waiting_count == 0


def test_channel_that_fails_hands_over_what_it_holds(kit, broker, queue, peer):
    closed(queue)
    send(kit, peer, "q", b"1")
    assert names(peer.call(1, Basic.Ack(99))) == ["Channel.Close"]
    assert bodies(queue) == [b"1"]
    assert peer.call(1, Channel.CloseOk()) == []
    assert peer.ask(1, Channel.Open()).name == "Channel.OpenOk"


def test_publishes_behind_one_that_fails_are_void(kit, broker, queue, peer):
    closed(queue)
    send(kit, peer, "q", b"1")
    peer.feed(kit.publish(1, "none", "", b"2"))
    send(kit, peer, "q", b"3")
    assert names(opened(broker, queue, peer)) == ["Channel.Close"]
    assert bodies(queue) == [b"1"]
    assert broker.ledger.dropped_messages == 0


def test_connection_closes_once_what_it_holds_has_gone(kit, broker, queue, peer):
    closed(queue)
    send(kit, peer, "q", b"1")
    peer.turn()
    close = commands.Connection.Close(200, "", 0, 0)
    assert peer.call(0, close) == []
    peer.connection.timer_fired()
    assert names(peer.turn()) == ["Heartbeat"]
    assert names(opened(broker, queue, peer)) == ["Connection.CloseOk"]
    assert bodies(queue) == [b"1"]
    assert peer.shell.closed == "closed"


def test_connection_that_closes_in_an_alarm_drops_what_did_not_move(kit, broker, queue, peer):
    broker.block("low")
    send(kit, peer, "q", b"1")
    peer.turn()
    peer.call(0, commands.Connection.Close(200, "", 0, 0))
    peer.connection.timer_fired()
    assert names(peer.turn()) == ["Heartbeat"]
    assert peer.shell.timer == CLOSE_SECONDS_MAX
    peer.connection.timer_fired()
    assert names(peer.turn()) == ["Connection.CloseOk"]
    assert broker.ledger.dropped_messages == 1
    assert bodies(queue) == []


def test_client_that_leaves_is_heard_no_more_while_its_publishes_go(kit, broker, queue, peer):
    closed(queue)
    send(kit, peer, "q", b"1")
    peer.call(0, commands.Connection.Close(200, "", 0, 0))
    send(kit, peer, "q", b"2")
    opened(broker, queue, peer)
    assert bodies(queue) == [b"1"]


def test_lost_connection_hands_over_what_it_holds(kit, broker, queue, peer):
    closed(queue)
    send(kit, peer, "q", b"1", b"2")
    peer.connection.lost()
    assert bodies(queue) == [b"1", b"2"]
    assert queue.gate.waiting_count == 0
    assert (broker.intake.shares.held, broker.ledger.accounts.keys()) == (0, {"n1/republish"})


def test_lost_connection_drops_what_it_holds_in_an_alarm(kit, broker, queue, peer):
    broker.block("low")
    send(kit, peer, "q", b"1", b"2")
    peer.connection.lost()
    assert bodies(queue) == []
    assert broker.ledger.dropped_messages == 2
    assert broker.intake.shares.held == 0


def test_lost_connection_drops_what_waits_behind_other_methods(kit, broker, queue, peer):
    closed(queue)
    send(kit, peer, "q", b"1")
    peer.feed(encode_method(1, Queue.Declare(queue="new")))
    send(kit, peer, "q", b"2")
    peer.connection.lost()
    assert bodies(queue) == [b"1"]
    assert broker.ledger.dropped_messages == 1


def test_account_of_a_lost_connection_lives_until_it_owes_nothing(kit, broker, queue, peer):
    broker.hold_loans = True
    send(kit, peer, "q", b"1")
    peer.connection.lost()
    assert peer.info.id in broker.ledger.accounts
    broker.repay()
    broker.ledger.sweep()
    assert peer.info.id not in broker.ledger.accounts


def test_limit_that_is_raised_lets_publishes_go_on(kit, broker, queue, peer):
    broker.flow.account_messages = 2
    broker.hold_loans = True
    send(kit, peer, "q", b"1", b"2", b"3", b"4")
    peer.turn()
    assert len(queue.ready) == 3
    broker.flow.account_messages = 100
    broker.ledger.poll()
    peer.info.control.limits_changed()
    peer.turn()
    assert len(queue.ready) == 4


def test_lost_connection_drops_what_it_holds_for_a_queue_that_has_far_too_much(
    kit, broker, queue, peer
):
    closed(queue)
    queue.gate.overdrawn = True
    send(kit, peer, "q", b"1", b"2")
    peer.connection.lost()
    assert (bodies(queue), broker.ledger.dropped_messages) == ([], 2)


def test_all_channels_get_their_turn_where_a_debt_stops_all(kit, broker, queue, new_peer):
    peer = new_peer().open(channels=2)
    broker.flow.account_messages = 2
    broker.hold_loans = True
    for number in range(30):
        send(kit, peer, "q", b"1-%02d" % number, channel=1)
        send(kit, peer, "q", b"2-%02d" % number, channel=2)
    for _ in range(6):
        peer.turn()
        broker.repay()
    passed = [body[:1] for body in bodies(queue)]
    assert abs(passed.count(b"1") - passed.count(b"2")) <= 4
