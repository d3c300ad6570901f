"""One client's methods take a bounded part of a turn of the loop, counted in units of work."""

from __future__ import annotations

import logging

import pytest
from pamqp import commands
from tests.broker.gateways.amqp.loop import loop_turn

from headrace_broker.codecs.method import encode_method
from headrace_broker.model.limits import (
    CHANNEL_UNITS,
    CONTROL_TURN_UNITS,
    HEARTBEAT_UNITS,
    LOOP_HELD_LOG_SECONDS,
    LOOP_HELD_US,
    METHOD_UNITS,
)
from headrace_broker.runtime.intake.loop_watch import LoopWatch

METHODS_A_TURN = CONTROL_TURN_UNITS // METHOD_UNITS
QOS = encode_method(1, commands.Basic.Qos(0, 10))
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"


def answers(peer):
    return [value.name for _, value in peer.frames()]


@pytest.fixture
def fresh(broker, peer):
    """A client in a turn of its own."""
    peer.turn()
    return peer


def test_methods_of_one_read_are_handled_in_several_turns(broker, fresh):
    fresh.feed(QOS * 500)
    loops = [len(answers(fresh))]
    assert not fresh.shell.reading
    while not fresh.shell.reading:
        loop_turn(broker, fresh)
        loops.append(len(answers(fresh)))
    assert sum(loops) == 500
    assert sum(loops[:2]) <= 2 * METHODS_A_TURN  # written together: read, and in the next turn
    assert max(loops[2:]) <= METHODS_A_TURN
    assert len(loops) <= 500 // METHODS_A_TURN + 3
    assert broker.effort_turns.deferred > 0


def test_eight_clients_share_a_turn(new_peer, broker):
    peers = [new_peer().open() for _ in range(8)]
    for peer in peers:
        peer.turn()
    for peer in peers:
        peer.feed(QOS * 300)
    loop_turn(broker, *peers)
    for peer in peers:
        peer.frames()
    for _ in range(10):
        loop_turn(broker, *peers)
        counts = [len(answers(peer)) for peer in peers]
        assert sum(counts) <= METHODS_A_TURN
        assert min(counts) >= METHODS_A_TURN // 8 - 1


def test_methods_behind_wait_and_their_order_stays(kit, broker, fresh):
    broker.add_queue("q")
    fresh.feed(
        QOS * 300 + encode_method(1, commands.Confirm.Select()) + kit.publish(1, "", "q", b"x")
    )
    assert not broker.queues["q"].ready
    names = [value.name for _, value in fresh.turn()]
    assert names == ["Basic.QosOk"] * 300 + ["Confirm.SelectOk", "Basic.Ack"]
    assert fresh.shell.reading


def test_acknowledgements_and_publishes_cost_nothing_here(kit, broker, fresh):
    broker.add_queue("q")
    fresh.feed(kit.publish(1, "", "q", b"x") * 2000)
    assert fresh.shell.reading
    assert broker.effort_turns.deferred == 0


def test_channels_that_open_and_close_wait_for_their_turn(broker, fresh):
    once = encode_method(7, commands.Channel.Open())
    once += encode_method(7, commands.Channel.Close(200, "", 0, 0))
    fresh.feed(once * 500)
    loop_turn(broker, fresh)
    assert 0 < len(answers(fresh)) <= 2 * (CONTROL_TURN_UNITS // CHANNEL_UNITS)
    fresh.turn()
    assert fresh.shell.reading
    assert fresh.info.channels == 1


def test_heartbeats_wait_for_their_turn(broker, fresh):
    fresh.feed(HEARTBEAT * (3 * CONTROL_TURN_UNITS // HEARTBEAT_UNITS))
    assert not fresh.shell.reading
    fresh.turn()
    assert fresh.shell.reading


def test_methods_behind_an_operation_wait_for_their_turn(broker, fresh):
    broker.add_queue("q")
    broker.gate.opened = True
    for _ in range(2):
        fresh.feed(encode_method(1, commands.Basic.Get(0, "q", True)) + QOS * 200)
    loops = []
    for _ in range(30):
        loop_turn(broker, fresh)
        loops.append(answers(fresh))
    assert max(len(each) for each in loops) <= METHODS_A_TURN + 2
    told = [name for each in loops for name in each]
    assert told == ["Basic.GetEmpty", *["Basic.QosOk"] * 200] * 2


def test_what_waits_goes_with_its_connection(broker, fresh):
    fresh.feed(QOS * 500)
    fresh.connection.lost()
    assert len(fresh.turn()) <= METHODS_A_TURN
    assert fresh.turn() == []
    assert broker.intake.figures().partial == 0


def test_what_waits_counts_as_read_and_not_handled(broker, fresh):
    fresh.feed(QOS * 500)
    assert broker.intake.figures().partial == len(QOS) * 500
    fresh.turn()
    assert broker.intake.figures().partial == 0


def test_input_that_keeps_the_loop_is_counted_and_named_now_and_then(fresh, caplog):
    watch = LoopWatch()
    caplog.set_level(logging.WARNING)
    now = 1
    for _ in range(3):
        watch.note(fresh.info.name, fresh.info.user, LOOP_HELD_US + 7000, now)
    assert watch.held == 3
    assert [record.getMessage() for record in caplog.records] == [
        "client of user 'guest' has kept this node's loop for 57 ms with one input, or one step "
        "of a call; other clients waited; 1 did so since the last such line"
    ]
    watch.note(
        fresh.info.name, fresh.info.user, LOOP_HELD_US, now + LOOP_HELD_LOG_SECONDS * 1_000_000
    )
    assert "3 did so" in caplog.records[-1].getMessage()


def test_what_is_left_is_handled_behind_sessions_that_end(broker, fresh):
    many = 3 * METHODS_A_TURN
    for number in range(many):
        broker.add_queue(f"q{number}")
        fresh.call(1, commands.Basic.Consume(queue=f"q{number}"))
    loop_turn(broker, fresh)
    answers(fresh)
    fresh.feed(encode_method(1, commands.Channel.Close(200, "", 0, 0)))
    loop_turn(broker, fresh)
    fresh.feed(encode_method(2, commands.Channel.Open()) + HEARTBEAT)
    while any(queue.consumers for queue in broker.queues.values()):
        assert "Channel.OpenOk" not in answers(fresh)
        loop_turn(broker, fresh)
    fresh.turn()
    assert fresh.info.channels == 1
