"""Operations of the node on a client connection."""

from __future__ import annotations

from typing import Any

from pamqp import commands

from headrace_broker.model.limits import CHANNEL_CREDIT
from headrace_broker.model.status import ChannelStatus, ConsumerStatus


def test_an_open_connection_has_a_handle_and_loses_it_when_it_closes(kit, new_peer):
    peer = new_peer()
    handles = [peer.info.control]
    peer.open()
    handles.append(peer.info.control)
    peer.call(0, commands.Connection.Close(200, "", 0, 0))
    handles.append(peer.info.control)
    assert [handle is None for handle in handles] == [True, False, True]


def test_it_is_closed_with_the_reason_once_and_channels_end(kit, broker, new_peer):
    peer = new_peer().open()
    control = peer.info.control
    control.shut_down("too loud")
    control.shut_down("again")
    [(channel, close)] = peer.turn()
    assert (channel, close.reply_code) == (0, 320)
    assert close.reply_text == "CONNECTION_FORCED - too loud"
    assert broker.connections == {}
    assert peer.info.control is None
    peer.call(0, commands.Connection.CloseOk())
    assert peer.shell.closed == "closed"


def test_a_reason_that_is_too_long_for_the_wire_is_cut(new_peer):
    peer = new_peer().open()
    peer.info.control.shut_down("x" * 1000)
    [(_, close)] = peer.turn()
    assert len(close.reply_text) == 255


def test_channels_and_consumers_are_told(kit, queue, fill, new_peer):
    peer = new_peer().open(channels=2)
    peer.call(2, commands.Basic.Qos(0, 5, False), commands.Confirm.Select())
    peer.call(2, commands.Basic.Qos(0, 7, True))
    arguments: Any = {"x-priority": 3, "x-prefetch-bytes": 1000}
    consume = commands.Basic.Consume(0, "q", "tag", exclusive=True, arguments=arguments)
    peer.call(2, consume)
    fill(3)
    peer.turn()
    [first, second] = peer.info.control.channels(0)
    assert first == ChannelStatus(1, 0, 0, False, 0, 0, credit_left=CHANNEL_CREDIT)
    consumer = ConsumerStatus("tag", "q", True, True, 5, arguments)
    assert second == ChannelStatus(2, 5, 7, True, 3, 0, (consumer,), credit_left=CHANNEL_CREDIT)


def test_prefetch_0_is_told_for_no_limit_and_for_no_ack(kit, queue, new_peer):
    peer = new_peer().open()
    peer.call(1, commands.Basic.Consume(0, "q", "a"))
    peer.call(1, commands.Basic.Qos(0, 5, False))
    peer.call(1, commands.Basic.Consume(0, "q", "b", no_ack=True))
    [channel] = peer.info.control.channels(0)
    told = [(each.tag, each.ack_required, each.prefetch_count) for each in channel.consumers]
    assert told == [("a", True, 0), ("b", False, 0)]
