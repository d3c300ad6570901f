"""Messages that return to a queue, by themselves or by a client, and their redelivery."""

from __future__ import annotations

import pytest
from pamqp import commands

from headrace_broker.runtime.contract.port import MODIFY_FAILED, REJECT, RELEASE

Ack = commands.Basic.Ack
Consume = commands.Basic.Consume
Qos = commands.Basic.Qos


def names(frames):
    return [value.name for _, value in frames]


# Consumers that hold a delivery too long


def test_timed_out_consumer_is_cancelled_and_its_late_acks_are_ignored(broker, queue, fill, peer):
    fill(2)
    peer.call(1, Consume(queue="q", consumer_tag="c"))
    queue.time_out()
    [(_, cancel)] = peer.turn()
    assert (cancel.name, cancel.consumer_tag) == ("Basic.Cancel", "c")
    assert len(queue.ready) == 2
    assert peer.call(1, Ack(2, True)) == []
    assert queue.settled == []
    assert names(peer.call(1, Consume(queue="q", consumer_tag="c")))[0] == "Basic.ConsumeOk"


def test_client_without_the_capability_loses_its_channel_for_a_timeout(queue, fill, new_peer):
    peer = new_peer().open()
    fill(1)
    peer.call(1, Consume(queue="q", consumer_tag="c"))
    queue.time_out()
    [(_, close)] = peer.turn()
    assert close.reply_code == 406
    assert "delivery acknowledgement on channel 1 timed out" in close.reply_text


def test_what_get_took_and_timed_out_closes_the_channel(broker, queue, fill, peer):
    fill(1)
    peer.call(1, commands.Basic.Get(queue="q"))
    client = broker.clients[-1]
    client.listener.on_timed_out(client, 0)
    [(_, close)] = peer.turn()
    assert close.reply_code == 406


# What goes back


@pytest.mark.parametrize(
    ("method", "operation"),
    [
        (commands.Basic.Reject(1, True), MODIFY_FAILED),
        (commands.Basic.Nack(1, False, True), RELEASE),
        (commands.Basic.Reject(1, False), REJECT),
        (commands.Basic.Nack(1, False, False), REJECT),
    ],
)
def test_only_basic_reject_counts_as_a_failed_delivery(queue, fill, peer, method, operation):
    fill(1)
    peer.call(1, Qos(0, 1, False), Consume(queue="q", consumer_tag="c"))
    peer.call(1, method)
    assert queue.settled == [(operation, 1)]


def test_redelivery_says_how_often_it_was_handed_out(queue, fill, peer):
    fill(1)
    peer.call(1, commands.Basic.Get(queue="q"))
    peer.call(1, commands.Basic.Reject(1, True))
    [(_, got), (_, head), _] = peer.call(1, commands.Basic.Get(queue="q"))
    assert got.redelivered
    assert head.properties.headers == {"x-delivery-count": 1, "x-acquired-count": 1}
    peer.call(1, commands.Basic.Nack(2, False, True))
    frames = peer.call(1, Consume(queue="q", consumer_tag="c"))
    heads = [value for _, value in frames if value.name == "ContentHeader"]
    assert heads[0].properties.headers == {"x-delivery-count": 1, "x-acquired-count": 2}
