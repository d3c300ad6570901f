"""Notification of clients about the limits that stop their publishes."""

from __future__ import annotations

import pytest
from pamqp import commands

from headrace_broker.codecs.batch import message_body
from headrace_broker.model.flow import LIMIT_DISK

Channel = commands.Channel


def names(frames):
    return [value.name for _, value in frames]


def bodies(queue):
    return [message_body(each.blob, 0, each.position) for each in queue.ready]


def send(kit, peer, key, *payloads):
    for payload in payloads:
        peer.feed(kit.publish(1, "", key, payload))


def opened(fake, peer):
    """Let pass who waits at a queue's gate."""
    fake.gate.set_room(True)
    fake.gate.serve(1 << 20)
    return peer.turn()


def test_who_only_consumes_is_not_told_of_an_alarm_before_it_publishes(kit, broker, queue, peer):
    broker.block("low")
    assert peer.turn() == []
    assert peer.info.state == "blocking"
    send(kit, peer, "q", b"1", b"2")
    assert names(peer.turn()) == ["Connection.Blocked"]
    assert peer.info.state == "blocked"
    broker.block("lower")
    assert peer.turn() == []
    broker.block("")
    assert names(peer.turn()) == ["Connection.Unblocked"]


def test_who_has_published_is_told_of_an_alarm_at_once(kit, broker, queue, peer):
    send(kit, peer, "q", b"1")
    broker.block("low")
    [(_, told)] = peer.turn()
    assert (told.name, told.reason) == ("Connection.Blocked", "low")


def test_client_is_told_what_has_held_it_for_long(kit, broker, queue, peer):
    broker.flow.blocked_after_ms = 500
    queue.gate.set_room(False)
    send(kit, peer, "q", b"1")
    assert peer.turn() == []
    seconds, fire = peer.shell.later
    assert seconds == 0.5
    fire()
    [(_, told)] = peer.turn()
    assert (told.name, told.reason) == ("Connection.Blocked", "flow: queue-pending-bytes q")
    assert names(opened(queue, peer)) == ["Connection.Unblocked"]


def test_client_that_is_held_for_less_is_told_nothing(kit, broker, queue, peer):
    broker.flow.blocked_after_ms = 500
    queue.gate.set_room(False)
    send(kit, peer, "q", b"1")
    _, fire = peer.shell.later
    opened(queue, peer)
    fire()
    assert peer.turn() == []


def test_alarm_is_told_instead_of_what_holds_the_client_already(kit, broker, queue, peer):
    broker.flow.blocked_after_ms = 500
    queue.gate.set_room(False)
    send(kit, peer, "q", b"1")
    peer.shell.later[1]()
    broker.block("low")
    assert [value.reason for _, value in peer.turn()] == ["flow: queue-pending-bytes q", "low"]
    broker.block("")
    assert names(peer.turn()) == ["Connection.Unblocked"]
    peer.shell.later[1]()  # it is still held
    assert [value.reason for _, value in peer.turn()] == ["flow: queue-pending-bytes q"]


def test_an_alarm_that_is_over_is_not_told_as_what_holds_the_client(kit, broker, queue, peer):
    broker.flow.blocked_after_ms = 500
    send(kit, peer, "q", b"1")
    peer.turn()
    broker.block("low")
    send(kit, peer, "unknown", b"2")  # looked up once the alarm is over
    send(kit, peer, "q", b"3")
    assert names(peer.turn()) == ["Connection.Blocked"]
    broker.gate.opened = False
    broker.block("")
    assert names(peer.turn()) == ["Connection.Unblocked"]
    assert peer.info.flow.limit == LIMIT_DISK  # nothing was handled since
    peer.shell.later[1]()
    assert peer.turn() == []
    queue.gate.set_room(False)
    broker.gate.opened = True
    assert peer.turn() == []
    peer.shell.later[1]()
    assert [value.reason for _, value in peer.turn()] == ["flow: queue-pending-bytes q"]
    assert names(opened(queue, peer)) == ["Connection.Unblocked"]


def shake_hands(kit, peer, **properties):
    peer.feed(kit.HEADER)
    peer.turn()
    properties["capabilities"] = {"connection.blocked": True}
    return peer.call(0, commands.Connection.StartOk(properties, "PLAIN", "\0guest\0guest", "en_US"))


def test_client_asks_when_it_wants_to_be_told(kit, broker, queue, new_peer):
    peer = new_peer()
    shake_hands(kit, peer, **{"headrace.blocked-after-ms": 250})
    peer.call(0, commands.Connection.TuneOk(2047, 131072, 60), commands.Connection.Open("/"))
    peer.call(1, Channel.Open())
    queue.gate.set_room(False)
    send(kit, peer, "q", b"1")
    peer.turn()
    assert peer.shell.later[0] == 0.25


@pytest.mark.parametrize("value", [0, -1, 3_600_001, True, "500", 1.5])
def test_wrong_time_after_which_to_tell_is_refused(kit, new_peer, value):
    [(_, close)] = shake_hands(kit, new_peer(), **{"headrace.blocked-after-ms": value})
    assert close.name == "Connection.Close"
    assert "'headrace.blocked-after-ms' is not an integer from 1 to 3600000" in close.reply_text


def test_channel_flow_is_told_to_all_channels_of_clients_that_want_it(kit, broker, queue, new_peer):
    peer = new_peer()
    shake_hands(kit, peer, **{"headrace.channel-flow": True})
    peer.call(0, commands.Connection.TuneOk(2047, 131072, 60), commands.Connection.Open("/"))
    peer.call(1, Channel.Open())
    broker.block("low")
    assert [(channel, value.active) for channel, value in peer.turn()] == [(1, False)]
    assert peer.call(1, Channel.FlowOk(False)) == []
    assert names(peer.call(2, Channel.Open())) == ["Channel.OpenOk", "Channel.Flow"]
    send(kit, peer, "q", b"1")  # all the same
    peer.turn()
    broker.block("")
    told = [(channel, value.active) for channel, value in peer.turn() if channel]
    assert told == [(1, True), (2, True)]
    assert bodies(queue) == [b"1"]


def test_channel_flow_is_told_where_the_broker_says_so(broker, peer):
    broker.rules.put_user_limits("guest", {"channel-flow": 1})
    broker.block("low")
    assert names(peer.turn()) == ["Channel.Flow"]
    broker.rules.put_user_limits("guest", {})
    broker.block("")
    assert names(peer.turn()) == ["Channel.Flow"]  # or it would stay stopped


def test_wrong_wish_for_channel_flow_is_refused(kit, new_peer):
    [(_, close)] = shake_hands(kit, new_peer(), **{"headrace.channel-flow": "yes"})
    assert "'headrace.channel-flow' is not a boolean" in close.reply_text


def logged(caplog, *events):
    """Return name and fields of the lines of events."""
    found = [each.__dict__ for each in caplog.records if each.__dict__.get("event") in events]
    return [(each["event"], each["fields"]) for each in found]


def test_gate_that_closes_and_opens_is_logged_at_debug(kit, broker, queue, peer, caplog):
    caplog.set_level("DEBUG", "headrace.connection")
    queue.gate.set_room(False)
    send(kit, peer, "q", b"1")
    opened(queue, peer)
    name = peer.info.name
    assert logged(caplog, "gate_closed", "gate_opened") == [
        ("gate_closed", {"connection": name, "user": "guest", "vhost": "/"}),
        ("gate_opened", {"connection": name}),
    ]


def test_channels_are_logged_at_debug_and_nothing_at_info(kit, broker, queue, peer, caplog):
    caplog.set_level("DEBUG", "headrace.connection")
    peer.call(7, Channel.Open())
    peer.call(7, Channel.Close(200, "", 0, 0))
    fields = {"connection": peer.info.name, "channel": 7}
    expected = [("channel_opened", fields), ("channel_closed", fields)]
    assert logged(caplog, "channel_opened", "channel_closed") == expected
    caplog.clear()
    caplog.set_level("INFO", "headrace.connection")
    peer.call(8, Channel.Open())
    assert not caplog.records
