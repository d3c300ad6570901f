from __future__ import annotations

import gc

import pytest
from pamqp import commands
from tests.broker.gateways.amqp.garbage import garbage

from headrace_broker.codecs.method import encode_method
from headrace_broker.gateways.amqp.channel.channel import Channel
from headrace_broker.model.limits import CHANNEL_COMMANDS_MAX, CHANNEL_LINKS_MAX, MESSAGE_BYTES_MAX

Declare = commands.Queue.Declare


def names(frames):
    return [value.name for _, value in frames]


def test_method_on_a_channel_that_was_never_opened(peer):
    [(channel, close)] = peer.call(9, commands.Basic.Qos(prefetch_count=1))
    assert (channel, close.reply_code, close.class_id, close.method_id) == (0, 504, 60, 10)
    assert close.reply_text == "CHANNEL_ERROR - basic.qos on channel 9, which is closed"


def test_publish_on_a_channel_that_was_never_opened(kit, peer):
    peer.feed(kit.publish(9, "", "q", b"x"))
    [(_, close)] = peer.turn()
    assert (close.reply_code, close.class_id, close.method_id) == (504, 60, 40)


def test_open_ok_has_an_empty_reserved_argument(peer):
    opened = peer.ask(7, commands.Channel.Open())
    assert (opened.name, opened.channel_id) == ("Channel.OpenOk", "")


def test_second_open_is_a_channel_error(peer):
    [(_, close)] = peer.call(1, commands.Channel.Open())
    assert close.reply_code == 504
    assert close.reply_text == "CHANNEL_ERROR - channel.open on channel 1, which is open"


def test_channel_max_limits_how_many_are_open_whatever_their_numbers(kit, new_peer):
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    peer.call(0, peer.start_ok())
    peer.call(0, commands.Connection.TuneOk(2, 131072, 60), commands.Connection.Open("/"))
    opened, closed = ["Channel.OpenOk"], ["Channel.CloseOk"]
    assert names(peer.call(65535, commands.Channel.Open())) == opened
    assert names(peer.call(1, commands.Channel.Open())) == opened
    assert names(peer.call(1, commands.Channel.Close(200, "", 0, 0))) == closed
    assert names(peer.call(2, commands.Channel.Open())) == opened
    [(channel, close)] = peer.call(3, commands.Channel.Open())
    assert (channel, close.reply_code, close.class_id, close.method_id) == (0, 530, 20, 10)
    assert close.reply_text == (
        "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
    )


def test_method_on_a_closed_channel_is_the_error_also_when_all_are_open(kit, new_peer):
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    peer.call(0, peer.start_ok())
    peer.call(0, commands.Connection.TuneOk(1, 131072, 60), commands.Connection.Open("/"))
    peer.call(1, commands.Channel.Open())
    [(_, close)] = peer.call(2, commands.Basic.Qos(prefetch_count=1))
    assert close.reply_code == 504


def test_closed_channel_may_be_opened_again_as_new(broker, kit, peer):
    broker.add_queue("q")
    peer.call(1, commands.Confirm.Select())
    peer.call(1, Declare(queue="q"))
    assert names(peer.call(1, commands.Channel.Close(200, "", 0, 0))) == ["Channel.CloseOk"]
    assert names(peer.call(1, commands.Channel.Open())) == ["Channel.OpenOk"]
    peer.feed(kit.publish(1, "", "q", b"x"))
    assert peer.turn() == []  # no confirm mode
    close = peer.ask(1, commands.Queue.Purge(queue=""))
    assert close.reply_text == "NOT_FOUND - no previously declared queue"


def test_after_a_soft_error_everything_but_close_ok_is_ignored(broker, kit, peer):
    queue = broker.add_queue("q")
    close = peer.ask(1, Declare(queue="missing", passive=True))
    assert (close.name, close.reply_code) == ("Channel.Close", 404)
    assert close.reply_text == "NOT_FOUND - no queue 'missing' in vhost '/'"
    assert (close.class_id, close.method_id) == (50, 10)
    peer.feed(kit.publish(1, "", "q", b"x"))
    assert peer.call(1, Declare(queue="other"), commands.Basic.Ack(77, False)) == []
    assert len(queue.ready) == 0
    assert broker.log == []
    assert peer.call(1, commands.Channel.CloseOk()) == []
    assert names(peer.call(1, commands.Channel.Open())) == ["Channel.OpenOk"]


def test_soft_error_leaves_other_channels_alone(new_peer):
    peer = new_peer().open(channels=2)
    peer.call(1, Declare(queue="missing", passive=True))
    assert names(peer.call(2, commands.Basic.Qos(prefetch_count=1))) == ["Basic.QosOk"]


def test_close_that_crosses_ours_is_answered_and_the_channel_may_open_at_once(kit, broker, peer):
    broker.add_queue("q")
    peer.call(1, commands.Confirm.Select())
    peer.call(1, Declare(queue="missing", passive=True))
    assert names(peer.call(1, commands.Channel.Close(200, "", 0, 0))) == ["Channel.CloseOk"]
    assert names(peer.call(1, commands.Channel.Open())) == ["Channel.OpenOk"]
    peer.feed(kit.publish(1, "", "q", b"x"))
    assert peer.turn() == []


def test_close_ok_may_follow_a_crossed_close(peer):
    peer.call(1, Declare(queue="missing", passive=True))
    peer.call(1, commands.Channel.Close(200, "", 0, 0))
    assert peer.call(1, commands.Channel.CloseOk()) == []
    assert names(peer.call(1, commands.Channel.Open())) == ["Channel.OpenOk"]


def test_close_ok_out_of_the_blue_is_a_channel_error(peer):
    [(_, close)] = peer.call(1, commands.Channel.CloseOk())
    assert close.reply_code == 504


def test_closing_a_channel_gives_its_messages_back(kit, broker, peer):
    queue = broker.add_queue("q")
    peer.feed(kit.publish(1, "", "q", b"x"))
    peer.call(1, commands.Basic.Consume(queue="q"))
    peer.call(1, commands.Channel.Close(200, "", 0, 0))
    assert len(queue.ready) == 1
    assert queue.consumers == []


def test_body_that_is_too_large_closes_the_channel(kit, broker, peer):
    frames = kit.publish(1, "", "q", b"")
    head = bytearray(frames)
    head[-11:-3] = (MESSAGE_BYTES_MAX + 1).to_bytes(8, "big")
    peer.feed(bytes(head))
    [(_, close)] = peer.turn()
    assert (close.name, close.reply_code) == ("Channel.Close", 406)
    size, largest = MESSAGE_BYTES_MAX + 1, MESSAGE_BYTES_MAX
    text = f"message size {size} is larger than configured max size {largest}"
    assert close.reply_text == f"PRECONDITION_FAILED - {text}"


def test_bound_of_messages_that_changes_counts_for_open_connections(kit, broker, peer):
    broker.add_queue("q")
    peer.feed(kit.publish(1, "", "q", b"12345678"))
    assert peer.turn() == []
    broker.limits.message_bytes_max, broker.limits.rule = 7, "node 'b' takes no more"
    for info in broker.connections.values():
        info.control.limits_changed()
    peer.feed(kit.publish(1, "", "q", b"12345678"))
    [(_, close)] = peer.turn()
    text = "message size 8 is larger than configured max size 7: node 'b' takes no more"
    assert close.reply_text == f"PRECONDITION_FAILED - {text}"


def test_bound_of_unfinished_contents_follows_that_of_messages(kit, broker, peer):
    parser = peer.connection._parser
    before = parser.partial_bytes_max
    for largest, more in ((100 << 20, 69 << 20), (31 << 20, 0)):
        broker.limits.message_bytes_max = largest
        for info in broker.connections.values():
            info.control.limits_changed()
        assert parser.partial_bytes_max == before + more


def test_malformed_arguments_are_a_syntax_error(peer):
    payload = bytes.fromhex("0032000a0000ff")  # queue.declare whose name runs past the frame
    peer.feed(b"\x01\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce")
    [(_, close)] = peer.turn()
    assert (close.reply_code, close.class_id, close.method_id) == (502, 50, 10)
    assert "queue.declare" in close.reply_text


# Order


def test_publish_does_not_overtake_a_pending_declare(kit, broker, peer):
    broker.gate.opened = False
    peer.feed(
        encode_method(1, Declare(queue="q"))
        + kit.publish(1, "", "q", b"x", mandatory=True)
        + encode_method(1, commands.Basic.Get(queue="q"))
    )
    assert peer.turn() == []
    broker.gate.opened = True
    assert names(peer.turn())[:2] == ["Queue.DeclareOk", "Basic.GetOk"]


def test_other_channels_go_on_while_one_waits(broker, new_peer):
    peer = new_peer().open(channels=2)
    broker.gate.opened = False
    peer.call(1, Declare(queue="q"))
    assert names(peer.call(2, commands.Basic.Qos(prefetch_count=1))) == ["Basic.QosOk"]


def test_pipelined_declares_are_applied_in_order(broker, peer):
    broker.gate.opened = False
    peer.call(1, *[Declare(queue=f"q{n}", nowait=True) for n in range(20)])
    broker.gate.opened = True
    assert peer.turn() == []
    assert broker.log == [f"declare q{n}" for n in range(20)]


def test_failed_operation_voids_what_waited_but_for_the_close(broker, peer):
    broker.add_queue("q", durable=True)
    broker.gate.opened = False
    peer.call(1, Declare(queue="q", durable=False), Declare(queue="later"))
    peer.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.Open())
    broker.gate.opened = True
    assert names(peer.turn()) == ["Channel.Close", "Channel.CloseOk", "Channel.OpenOk"]
    assert broker.log == ["declare q"]


def test_channel_reopened_in_the_queue_takes_what_follows(broker, peer):
    broker.gate.opened = False
    peer.call(1, Declare(queue="a"))
    peer.call(
        1,
        commands.Channel.Close(200, "", 0, 0),
        commands.Channel.Open(),
        Declare(queue="b"),
        commands.Basic.Qos(prefetch_count=1),
    )
    broker.gate.opened = True
    assert names(peer.turn()) == [
        "Queue.DeclareOk",
        "Channel.CloseOk",
        "Channel.OpenOk",
        "Queue.DeclareOk",
        "Basic.QosOk",
    ]


def test_too_many_waiting_commands_stop_the_reading(broker, peer):
    broker.gate.opened = False
    peer.call(1, Declare(queue="q"))
    qos = commands.Basic.Qos(prefetch_count=1)
    peer.call(1, *[qos] * (CHANNEL_COMMANDS_MAX - 1))
    assert peer.shell.reading
    peer.call(1, qos)
    assert not peer.shell.reading
    broker.gate.opened = True
    assert names(peer.turn()) == ["Queue.DeclareOk"] + ["Basic.QosOk"] * CHANNEL_COMMANDS_MAX
    assert peer.shell.reading


def test_connection_lost_amid_an_operation_leaves_nothing_behind(kit, broker, peer):
    queue = broker.add_queue("q")
    broker.gate.opened = False
    peer.call(1, commands.Basic.Consume(queue="q"))
    peer.connection.lost()
    broker.gate.opened = True
    peer.turn()
    assert queue.consumers == []
    assert peer.shell.operations == []


def test_operation_whose_connection_fails_in_the_same_chunk_is_not_begun(broker, peer):
    broker.add_queue("q")
    peer.feed(encode_method(1, commands.Queue.Purge(queue="q")))
    peer.feed(encode_method(1, Declare(queue="r")))
    peer.feed(encode_method(2, commands.Basic.Qos(prefetch_count=1)))
    assert names(peer.turn()) == ["Connection.Close"]
    assert broker.clients == []
    assert broker.log == []


# Sessions


def test_sessions_without_anything_under_way_are_closed_when_many(kit, broker, peer):
    for n in range(CHANNEL_LINKS_MAX + 50):
        broker.add_queue(f"q{n}")
    peer.call(1, commands.Basic.Consume(queue="q0"))
    for n in range(CHANNEL_LINKS_MAX + 50):
        peer.feed(kit.publish(1, "", f"q{n}", b"x"))
    open_ones = [client for client in broker.clients if not client.closed]
    assert len(open_ones) <= CHANNEL_LINKS_MAX
    assert open_ones[0].queue.name == "q0"
    assert all(len(broker.queues[f"q{n}"].ready) == 1 for n in range(1, CHANNEL_LINKS_MAX + 50))


def test_sessions_that_owe_a_confirm_stay(kit, broker, peer):
    broker.hold_confirms = True
    peer.call(1, commands.Confirm.Select())
    for n in range(CHANNEL_LINKS_MAX + 50):
        broker.add_queue(f"q{n}")
        peer.feed(kit.publish(1, "", f"q{n}", b"x"))
    assert not any(client.closed for client in broker.clients)
    for client in broker.clients:
        client.confirm(1)
    [(_, ack)] = peer.turn()
    assert (ack.delivery_tag, ack.multiple) == (CHANNEL_LINKS_MAX + 50, True)


@pytest.mark.parametrize("count", [1, 5])
def test_channel_uses_one_session_per_queue(kit, broker, peer, count):
    broker.add_queue("q")
    for _ in range(count):
        peer.feed(kit.publish(1, "", "q", b"x"))
    peer.call(1, commands.Basic.Consume(queue="q"))
    assert len(broker.clients) == 1


@pytest.mark.parametrize("fault", [False, True])
def test_a_channel_that_is_closed_leaves_nothing_to_the_garbage_collector(peer, fault):
    def once():
        peer.call(2, commands.Channel.Open())
        if fault:
            peer.call(2, commands.Basic.Ack(77))
            peer.call(2, commands.Channel.CloseOk())
        else:
            peer.call(2, commands.Channel.Close(200, "", 0, 0))

    once()
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            once()
        assert [each for each in garbage() if isinstance(each, Channel)] == []
    finally:
        gc.enable()
