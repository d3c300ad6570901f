from __future__ import annotations

import pytest
from pamqp import commands

from headrace_broker.gateways.amqp.connection import handshake
from headrace_broker.model import build_info
from headrace_broker.model.client_limits import ClientLimits
from headrace_broker.model.limits import CLOSE_SECONDS_MAX, HANDSHAKE_SECONDS_MAX
from headrace_broker.model.reply_code import AmqpError

StartOk = commands.Connection.StartOk
TuneOk = commands.Connection.TuneOk


def test_handshake_offers_what_clients_know(kit, new_peer):
    peer = new_peer()
    assert peer.shell.timer == HANDSHAKE_SECONDS_MAX
    peer.feed(kit.HEADER)
    [(channel, start)] = peer.turn()
    assert (channel, start.version_major, start.version_minor) == (0, 0, 9)
    assert start.mechanisms == "PLAIN AMQPLAIN"
    properties = start.server_properties
    assert properties["product"] == "Headrace"
    assert properties["version"] == build_info.RABBITMQ_VERSION
    assert properties["headrace_version"] == build_info.VERSION
    assert properties["cluster_name"] == "test"
    assert properties["capabilities"] == {
        "publisher_confirms": True,
        "exchange_exchange_bindings": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "connection.blocked": True,
        "consumer_priorities": True,
        "direct_reply_to": True,
        "per_consumer_qos": True,
        "authentication_failure_close": True,
    }
    tune = peer.ask(0, peer.start_ok())
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)
    peer.call(0, TuneOk(10, 4096, 6))
    assert isinstance(peer.ask(0, commands.Connection.Open("/")), commands.Connection.OpenOk)
    assert peer.broker.connections == {peer.info.id: peer.info}
    assert (peer.info.user, peer.info.vhost, peer.info.frame_max) == ("guest", "/", 4096)
    assert peer.shell.timer == 3


def test_header_in_single_bytes_is_a_header(kit, new_peer):
    peer = new_peer()
    for byte in kit.HEADER:
        peer.feed(bytes((byte,)))
    assert isinstance(peer.turn()[0][1], commands.Connection.Start)


@pytest.mark.parametrize("wrong", [b"AMQP\x00\x01\x00\x00", b"GET / HT"])
def test_other_protocol_is_told_ours_and_disconnected(kit, new_peer, wrong):
    peer = new_peer()
    peer.feed(wrong + b"more")
    assert bytes(peer.shell.written) == kit.HEADER
    assert peer.shell.closed == "closed"


def test_wrong_password_closes_with_access_refused(kit, new_peer):
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    close = peer.ask(0, peer.start_ok("wrong", authentication_failure_close=True))
    assert (close.reply_code, close.class_id) == (403, 0)
    assert close.reply_text == (
        "ACCESS_REFUSED - login was refused using authentication mechanism PLAIN"
    )
    peer.call(0, commands.Connection.CloseOk())
    assert peer.shell.closed == "closed"


def test_wrong_password_of_simple_client_only_disconnects(kit, new_peer):
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    assert peer.call(0, peer.start_ok("wrong")) == []
    assert peer.shell.closed == "closed"


def test_user_from_elsewhere_is_judged_by_the_broker(kit, broker):
    peer = kit.Peer(broker, 1, host="192.0.2.1")
    peer.feed(kit.HEADER)
    peer.turn()
    peer.call(0, peer.start_ok())
    assert peer.shell.closed == "closed"


def test_amqplain_gives_user_and_password():
    response = b"\x05LOGINS\x00\x00\x00\x03bob\x08PASSWORDS\x00\x00\x00\x02pw"
    command = StartOk({}, "AMQPLAIN", response.decode(), "")
    assert handshake.credentials(command) == ("bob", "pw")


@pytest.mark.parametrize(
    ("mechanism", "response", "code"),
    [
        ("PLAIN", "guest", 502),
        ("PLAIN", "\0a\0b\0c", 502),
        ("PLAIN", b"\0\xff\0b", 502),
        ("AMQPLAIN", "nonsense", 502),
        ("AMQPLAIN", "\x05LOGINS\0\0\0\x03bob", 502),
        ("EXTERNAL", "", 503),
    ],
)
def test_bad_response_is_refused(mechanism, response, code):
    with pytest.raises(AmqpError) as caught:
        handshake.credentials(StartOk({}, mechanism, response, ""))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("tuned", "word"),
    [
        (TuneOk(2047, 4095, 60), "frame_max = 4095 is lower than the minimum allowed value (4096)"),
        (TuneOk(2047, 131073, 60), "frame_max = 131073 is higher"),
        (TuneOk(2047, 0, 60), "frame_max = 0 (no limit)"),
        (TuneOk(2048, 131072, 60), "channel_max = 2048 is higher"),
        (TuneOk(0, 131072, 60), "channel_max = 0 (no limit)"),
    ],
)
def test_tune_beyond_the_offer_is_refused(kit, new_peer, tuned, word):
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    peer.call(0, peer.start_ok())
    close = peer.ask(0, tuned)
    assert close.reply_code == 530
    assert word in close.reply_text


def test_negotiated_frame_max_holds_both_ways(kit, broker, new_peer):
    broker.add_queue("q")
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    peer.call(0, peer.start_ok())
    peer.call(0, TuneOk(2047, 4096, 60), commands.Connection.Open("/"))
    peer.call(1, commands.Channel.Open())
    peer.feed(kit.publish(1, "", "q", b"x" * 10_000, frame_max=4096))
    frames = peer.call(1, commands.Basic.Get(queue="q"))
    lengths = [len(value.value) for _, value in frames if value.name == "ContentBody"]
    assert lengths == [4088, 4088, 1824]
    peer.feed(b"\x01\x00\x01" + (4096 + 1).to_bytes(4, "big"))
    assert peer.turn()[0][1].reply_code == 501


def test_unknown_vhost_is_named(kit, new_peer):
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    peer.call(0, peer.start_ok())
    peer.call(0, TuneOk(2047, 131072, 0))
    close = peer.ask(0, commands.Connection.Open("nowhere"))
    assert close.reply_code == 530
    assert close.reply_text == "NOT_ALLOWED - vhost 'nowhere' not found"
    assert (close.class_id, close.method_id) == (10, 40)


def test_handshake_that_takes_too_long_is_cut(kit, new_peer):
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    peer.connection.timer_fired()
    assert peer.shell.closed == "aborted"


def test_channel_before_open_is_a_channel_error(kit, new_peer):
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    [(_, close)] = peer.call(1, commands.Channel.Open())
    assert (close.reply_code, close.class_id, close.method_id) == (504, 20, 10)
    assert "awaiting connection.start-ok" in close.reply_text


def test_content_before_open_is_not_kept(kit, new_peer):
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    peer.feed(kit.publish(1, "", "q", b"x" * 100))
    [(_, close)] = peer.turn()
    assert close.reply_code == 504


def test_method_out_of_turn_is_invalid(kit, new_peer):
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    close = peer.ask(0, commands.Connection.Open("/"))
    assert (close.reply_code, close.class_id, close.method_id) == (503, 10, 40)


def test_client_that_leaves_while_its_password_is_checked_gets_its_answer(kit, broker, new_peer):
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    broker.gate.opened = False
    peer.call(0, peer.start_ok())
    assert peer.call(0, commands.Connection.Close(200, "", 0, 0)) == []
    assert peer.shell.timer == CLOSE_SECONDS_MAX
    broker.gate.opened = True
    [(_, answer)] = peer.turn()
    assert isinstance(answer, commands.Connection.CloseOk)
    assert peer.shell.closed == "closed"


def test_configured_limits_are_offered_and_hold(kit, broker, new_peer):
    broker.limits = ClientLimits(frame_bytes_max=8192, channels_max=10, message_bytes_max=100)
    broker.add_queue("q")
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    [(_, tune)] = peer.call(0, peer.start_ok())
    assert (tune.channel_max, tune.frame_max) == (10, 8192)
    peer.call(0, TuneOk(10, 8192, 60), commands.Connection.Open("/"))
    peer.call(1, commands.Channel.Open())
    peer.feed(kit.publish(1, "", "q", b"x" * 101))
    [(_, close)] = peer.turn()
    assert close.reply_code == 406
    assert close.reply_text.endswith("message size 101 is larger than configured max size 100")


def test_tune_beyond_the_configured_limits_is_refused(kit, broker, new_peer):
    broker.limits = ClientLimits(channels_max=10)
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    peer.call(0, peer.start_ok())
    assert "channel_max = 11 is higher" in peer.ask(0, TuneOk(11, 131072, 60)).reply_text
