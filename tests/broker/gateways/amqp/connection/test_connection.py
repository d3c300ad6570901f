from __future__ import annotations

import logging

import pytest
from pamqp import commands
from tests.broker.gateways.fake_queue import FakeClient

from headrace_broker.catalog.event import UserLimitsChanged
from headrace_broker.codecs.method import encode_method
from headrace_broker.model.limits import (
    CLOSE_SECONDS_MAX,
    CONNECTION_BUFFER_BYTES,
    QUOTA_LOOK_SECONDS_MAX,
)

Close = commands.Connection.Close


def names(frames):
    return [value.name for _, value in frames]


def test_close_is_answered_and_listing_ends(broker, peer):
    assert names(peer.call(0, Close(200, "bye", 0, 0))) == ["Connection.CloseOk"]
    assert peer.shell.closed == "closed"
    assert broker.connections == {}
    peer.connection.lost()
    assert broker.connections == {}


def test_exclusive_queue_is_gone_before_close_is_answered(broker, peer):
    peer.ask(1, commands.Queue.Declare(queue="mine", exclusive=True))
    broker.gate.opened = False
    assert peer.call(0, Close(200, "bye", 0, 0)) == []
    assert "mine" in broker.queues
    broker.gate.opened = True
    assert names(peer.turn()) == ["Connection.CloseOk"]
    assert broker.queues == {}


def test_exclusive_queue_goes_with_a_lost_socket(broker, peer):
    peer.ask(1, commands.Queue.Declare(queue="mine", exclusive=True))
    peer.connection.lost()
    peer.turn()
    assert broker.queues == {}


def test_exclusive_queue_that_was_under_way_goes_too(broker, peer):
    broker.gate.opened = False
    peer.call(1, commands.Queue.Declare(queue="mine", exclusive=True))
    peer.connection.lost()
    peer.turn()
    broker.gate.opened = True
    peer.turn()
    assert broker.log == ["declare mine", f"drop {peer.info.id}"]
    assert broker.queues == {}


def test_connection_without_exclusive_queues_drops_none(broker, peer):
    peer.call(0, Close(200, "bye", 0, 0))
    peer.connection.lost()
    peer.turn()
    assert broker.log == []


def test_leaving_that_hangs_is_answered_in_time_and_cut(broker, peer):
    peer.ask(1, commands.Queue.Declare(queue="mine", exclusive=True))
    broker.gate.opened = False
    peer.call(0, Close(200, "bye", 0, 0))
    peer.shell.timer = 0
    peer.connection.timer_fired()
    assert names(peer.turn()) == ["Connection.CloseOk"]
    assert peer.shell.closed == "closed"
    assert peer.shell.timer == CLOSE_SECONDS_MAX
    peer.connection.timer_fired()
    assert peer.shell.closed == "aborted"


def test_acks_in_the_same_chunk_as_close_count(kit, broker, peer):
    queue = broker.add_queue("q")
    peer.feed(kit.publish(1, "", "q", b"x"))
    peer.call(1, commands.Basic.Consume(queue="q"))
    peer.feed(
        encode_method(1, commands.Basic.Ack(1, False)) + encode_method(0, Close(200, "", 0, 0))
    )
    peer.turn()
    assert queue.settled == [(kit.ACCEPT, 1)]
    assert len(queue.ready) == 0


def test_unacknowledged_messages_return_when_the_socket_is_lost(kit, broker, peer):
    queue = broker.add_queue("q")
    peer.feed(kit.publish(1, "", "q", b"x") + kit.publish(1, "", "q", b"y"))
    peer.call(1, commands.Basic.Consume(queue="q"))
    assert len(queue.ready) == 0
    peer.connection.lost()
    assert [message.acquired for message in queue.ready] == [1, 1]


def test_hard_error_closes_every_channel_and_waits_for_close_ok(broker, new_peer):
    peer = new_peer().open(channels=2)
    broker.add_queue("q")
    peer.call(2, commands.Basic.Consume(queue="q"))
    [(channel, close)] = peer.call(1, commands.Basic.Recover(False))
    assert (channel, close.name, close.reply_code) == (0, "Connection.Close", 540)
    assert close.reply_text == "NOT_IMPLEMENTED - basic.recover with requeue=false"
    assert (close.class_id, close.method_id) == (60, 110)
    assert broker.queues["q"].consumers == []
    assert peer.shell.timer == CLOSE_SECONDS_MAX
    assert peer.call(2, commands.Queue.Declare(queue="late")) == []
    assert peer.call(0, commands.Connection.CloseOk()) == []
    assert peer.shell.closed == "closed"


def test_client_that_closes_while_being_closed_is_answered(peer):
    peer.call(1, commands.Basic.Recover(False))
    assert names(peer.call(0, Close(200, "", 0, 0))) == ["Connection.CloseOk"]


def test_close_ok_that_does_not_come_ends_the_socket(peer):
    peer.call(1, commands.Basic.Recover(False))
    peer.connection.timer_fired()
    assert peer.shell.closed == "aborted"


def test_oversized_frame_is_a_frame_error(peer):
    peer.feed(b"\x01\x00\x01" + (131072 + 1).to_bytes(4, "big"))
    [(_, close)] = peer.turn()
    assert close.reply_code == 501
    assert "131081" in close.reply_text
    assert peer.shell.closed == ""  # the close must not be overtaken by a reset
    peer.feed(b"whatever")
    assert peer.turn() == []


def test_garbage_after_the_handshake_is_a_protocol_error(peer):
    peer.feed(b"\xff" * 100)
    [(_, close)] = peer.turn()
    assert close.reply_code == 501


def test_second_open_is_invalid(peer):
    close = peer.ask(0, commands.Connection.Open("/"))
    assert close.reply_code == 503
    assert close.reply_text == "COMMAND_INVALID - connection.open while running"


def test_update_secret_is_answered_and_changes_nothing(peer):
    answer = peer.ask(0, commands.Connection.UpdateSecret("secret", "why"))
    assert answer.name == "Connection.UpdateSecretOk"
    assert peer.ask(1, commands.Basic.Qos(prefetch_count=1)).name == "Basic.QosOk"


def test_exception_ends_only_its_connection(broker, new_peer, monkeypatch, caplog):
    first, second = new_peer().open(), new_peer().open()

    async def explode(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(broker.topology, "declare_queue", explode)
    with caplog.at_level(logging.ERROR):
        close = first.call(1, commands.Queue.Declare(queue="q"))[0][1]
    assert (close.name, close.reply_code) == ("Connection.Close", 541)
    assert "queue.declare" in close.reply_text
    assert "ZeroDivisionError" in caplog.text
    assert second.ask(1, commands.Basic.Qos(prefetch_count=1)).name == "Basic.QosOk"


def test_exception_in_a_chunk_ends_the_connection(kit, broker, peer, monkeypatch, caplog):
    broker.add_queue("q")

    def explode(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(FakeClient, "publish", explode)
    peer.feed(kit.publish(1, "", "q", b"x"))
    assert peer.turn()[0][1].reply_code == 541
    assert "ZeroDivisionError" in caplog.text


def test_shut_down_asks_the_client_to_go(peer):
    peer.connection.shut_down("the broker is shutting down")
    [(_, close)] = peer.turn()
    assert close.reply_code == 320
    assert close.reply_text == "CONNECTION_FORCED - the broker is shutting down"


# Heartbeats


def test_heartbeat_is_sent_when_nothing_else_was(kit, new_peer):
    peer = new_peer().open(heartbeat_s=10)
    assert peer.shell.timer == 5
    peer.connection.timer_fired()  # the handshake's last frame was written in this half
    assert peer.turn() == []
    peer.connection.timer_fired()
    assert isinstance(peer.turn()[0][1], kit.Heartbeat)


def test_heartbeat_is_not_added_to_what_the_client_does_not_take(new_peer):
    peer = new_peer().open(heartbeat_s=10)
    peer.connection.timer_fired()
    peer.shell.buffered = 1
    peer.connection.timer_fired()
    assert peer.turn() == []


def test_two_silent_intervals_end_the_socket(new_peer):
    peer = new_peer().open(heartbeat_s=10)
    for _ in range(4):
        peer.connection.timer_fired()
        assert peer.shell.closed == ""
    peer.connection.timer_fired()
    assert peer.shell.closed == "aborted"


def test_heartbeats_from_the_client_keep_it(new_peer):
    peer = new_peer().open(heartbeat_s=10)
    for _ in range(20):
        peer.feed(b"\x08\x00\x00\x00\x00\x00\x00\xce")
        peer.connection.timer_fired()
    assert peer.shell.closed == ""


def test_client_that_is_not_read_is_not_thought_dead(broker, kit, new_peer):
    peer = new_peer().open(heartbeat_s=10)
    broker.add_queue("q")
    broker.block("low on memory")
    peer.feed(kit.publish(1, "", "q", bytes(CONNECTION_BUFFER_BYTES)))
    assert not peer.shell.reading
    for _ in range(10):
        peer.connection.timer_fired()
    assert peer.shell.closed == ""
    broker.block("")
    peer.turn()
    for _ in range(4):
        peer.connection.timer_fired()
    assert peer.shell.closed == "aborted"


def test_no_heartbeat_no_timer(new_peer):
    assert new_peer().open(heartbeat_s=0).shell.timer == 0


# Blocking


def test_blocked_is_told_and_what_a_publisher_sends_is_held(kit, broker, peer):
    queue = broker.add_queue("q")
    broker.block("low on memory")
    assert peer.turn() == []
    assert peer.info.state == "blocking"
    peer.feed(kit.publish(1, "", "q", b"x"))
    [(_, blocked)] = peer.turn()
    assert (blocked.name, blocked.reason) == ("Connection.Blocked", "low on memory")
    assert (peer.shell.reading, len(queue.ready)) == (True, 0)
    assert peer.info.state == "blocked"
    broker.block("")
    assert names(peer.turn()) == ["Connection.Unblocked"]
    assert len(queue.ready) == 1
    assert peer.info.state == "running"


def test_publisher_is_not_read_once_too_much_is_held(kit, broker, peer):
    queue = broker.add_queue("q")
    broker.block("low on disk")
    half = kit.publish(1, "", "q", bytes(CONNECTION_BUFFER_BYTES // 2))
    peer.feed(half)
    assert peer.shell.reading
    peer.feed(half)
    assert not peer.shell.reading
    broker.block("")
    peer.turn()
    assert (peer.shell.reading, len(queue.ready)) == (True, 2)


def test_client_without_the_capability_is_not_told(broker, new_peer):
    peer = new_peer().open()
    broker.block("low on memory")
    assert peer.turn() == []


def test_client_that_opens_while_blocked_is_told_when_it_publishes(broker, kit, new_peer):
    broker.block("low on memory")
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    peer.call(0, peer.start_ok(**{"connection.blocked": True}))
    frames = peer.call(
        0, commands.Connection.TuneOk(2047, 131072, 60), commands.Connection.Open("/")
    )
    assert names(frames) == ["Connection.OpenOk"]
    peer.call(1, commands.Channel.Open())
    peer.feed(kit.publish(1, "", "q", b"x"))
    assert names(peer.turn()) == ["Connection.Blocked"]


def test_blocked_publisher_that_fails_is_read_for_its_close_ok(kit, broker, peer):
    broker.add_queue("q")
    broker.block("low on memory")
    peer.feed(kit.publish(1, "", "q", bytes(CONNECTION_BUFFER_BYTES)))
    peer.connection.shut_down("maintenance")
    assert peer.shell.reading
    assert broker.blocked._watchers == {}


@pytest.mark.parametrize("channels", [1, 3])
def test_info_counts_channels(new_peer, channels):
    peer = new_peer().open(channels=channels)
    assert peer.info.channels == channels
    peer.call(1, commands.Channel.Close(200, "", 0, 0))
    assert peer.info.channels == channels - 1


# Quotas


def test_publishes_over_a_quota_are_held_until_they_have_waited(kit, broker, peer):
    queue = broker.add_queue("q")
    broker.quotas.on_events([UserLimitsChanged("guest", {"publish-rate-messages": 1})])
    peer.feed(kit.publish(1, "", "q", b"x"))
    peer.feed(kit.publish(1, "", "q", b"y"))
    peer.turn()
    assert len(queue.ready) == 1
    assert peer.info.state == "flow"
    seconds, over = peer.shell.later
    assert seconds == 0.75
    broker.now_us = 500_000
    over()
    peer.turn()
    assert len(queue.ready) == 1
    seconds, over = peer.shell.later
    assert seconds == 0.25
    broker.now_us = 750_000
    over()
    peer.turn()
    assert len(queue.ready) == 2
    assert peer.info.state == "running"


def test_publishes_go_on_soon_after_their_limit_is_taken_away(kit, broker, peer):
    queue = broker.add_queue("q")
    broker.quotas.on_events([UserLimitsChanged("guest", {"publish-rate-messages": 0})])
    peer.feed(kit.publish(1, "", "q", b"x"))
    peer.feed(kit.publish(1, "", "q", b"y"))
    broker.quotas.on_events([UserLimitsChanged("guest", {})])
    seconds, over = peer.shell.later
    assert seconds <= QUOTA_LOOK_SECONDS_MAX
    over()
    peer.turn()
    assert len(queue.ready) == 2


def test_other_users_are_not_held(kit, broker, peer):
    queue = broker.add_queue("q")
    broker.quotas.on_events([UserLimitsChanged("anna", {"publish-rate-messages": 1})])
    peer.feed(kit.publish(1, "", "q", b"x"))
    peer.feed(kit.publish(1, "", "q", b"y"))
    assert len(queue.ready) == 2


# Limits of users and vhosts


def refusal_of_one_more(kit, new_peer):
    """Return the refusal of one connection above the limit."""
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    peer.ask(0, peer.start_ok())
    tune_ok = commands.Connection.TuneOk(2047, 131072, 60)
    [(_, close)] = peer.call(0, tune_ok, commands.Connection.Open("/"))
    assert (close.name, close.reply_code) == ("Connection.Close", 530)
    return close.reply_text


def test_connection_beyond_its_vhosts_limit_is_refused(kit, broker, new_peer):
    broker.rules.put_vhost_limits("/", {"max-connections": 1})
    first = new_peer().open()
    assert refusal_of_one_more(kit, new_peer) == (
        "NOT_ALLOWED - access to vhost '/' refused for user 'guest': "
        "connection limit (1) is reached"
    )
    assert broker.client_counts.refused_connections == {"node": 0, "vhost": 1, "user": 0}
    first.connection.lost()
    new_peer().open()
    assert len(broker.connections) == 1


def test_connection_beyond_its_users_limit_is_refused(kit, broker, new_peer):
    broker.rules.put_user_limits("guest", {"max-connections": 1})
    new_peer().open()
    assert refusal_of_one_more(kit, new_peer) == (
        "NOT_ALLOWED - connection refused for user 'guest': user connection limit (1) is reached"
    )
    assert broker.client_counts.refused_connections == {"node": 0, "vhost": 0, "user": 1}


def test_channel_beyond_its_users_limit_ends_the_connection(broker, new_peer):
    broker.rules.put_user_limits("guest", {"max-channels": 2})
    new_peer().open()
    peer = new_peer().open()
    peer.ask(1, commands.Channel.Close(200, "", 0, 0))
    assert peer.ask(7, commands.Channel.Open()).name == "Channel.OpenOk"
    [(channel, close)] = peer.call(2, commands.Channel.Open())
    assert (channel, close.name, close.reply_code) == (0, "Connection.Close", 530)
    assert close.reply_text == (
        "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum "
        "allowed user limit of (2)"
    )
    assert broker.client_counts.refused_channels == 1
