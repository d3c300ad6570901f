"""Confirms that a queue defers are what stops a channel, where nothing else does."""

from __future__ import annotations

from pamqp import commands

from headrace_broker.model.flow import LIMIT_DISK, LIMIT_WATERMARK, NO_LIMIT


def limits(peer, number=1):
    channel = peer.connection.channels.find(number)
    return (peer.info.flow.limit, peer.info.flow.group, peer.info.state, channel.flow.limit)


def test_deferred_confirms_are_shown_until_all_are_completed(peer):
    channel = peer.connection.channels.find(1)
    channel.admission.defer(7)
    assert limits(peer) == (LIMIT_WATERMARK, 7, "flow", LIMIT_WATERMARK)
    channel.admission.defer(8)
    assert limits(peer) == (LIMIT_WATERMARK, 8, "flow", LIMIT_WATERMARK)
    channel.admission.defer(0)
    assert limits(peer) == (NO_LIMIT, 0, "running", NO_LIMIT)


def test_what_holds_publishes_is_shown_before_deferred_confirms(kit, broker, queue, peer):
    channel = peer.connection.channels.find(1)
    channel.admission.defer(7)
    broker.block("low")
    assert limits(peer) == (LIMIT_WATERMARK, 7, "blocking", LIMIT_WATERMARK)
    peer.feed(kit.publish(1, "", "q", b"1"))
    peer.turn()
    assert limits(peer) == (LIMIT_DISK, 0, "blocked", LIMIT_DISK)
    channel.admission.defer(8)
    assert limits(peer) == (LIMIT_DISK, 0, "blocked", LIMIT_DISK)
    broker.block("")
    peer.turn()
    assert limits(peer) == (LIMIT_WATERMARK, 8, "flow", LIMIT_WATERMARK)


def test_a_channel_that_closes_is_stopped_by_nothing(new_peer):
    peer = new_peer().open(channels=2)
    peer.connection.channels.find(1).admission.defer(7)
    peer.connection.channels.find(2).admission.defer(8)
    assert limits(peer, 2) == (LIMIT_WATERMARK, 7, "flow", LIMIT_WATERMARK)
    peer.call(1, commands.Channel.Close(200, "", 0, 0))
    assert limits(peer, 2) == (LIMIT_WATERMARK, 8, "flow", LIMIT_WATERMARK)
    peer.call(2, commands.Channel.Close(200, "", 0, 0))
    assert (peer.info.flow.limit, peer.info.state) == (NO_LIMIT, "running")
