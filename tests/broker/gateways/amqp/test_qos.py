"""basic.qos on consumers that run, with and without `global`.

Expected values are those that RabbitMQ 3.10.8 gave to the same calls on a classic queue, but where
a client counts on the specification's meaning.
"""

from __future__ import annotations

import pytest
from pamqp import commands

from headrace_broker.model.limits import NO_ACK_HELD_MAX, PREFETCH_UNLIMITED

Ack = commands.Basic.Ack
Consume = commands.Basic.Consume
Get = commands.Basic.Get
Qos = commands.Basic.Qos

PY_AMQP = {"product": "py-amqp"}


def tags(frames):
    """(consumer tag, delivery tag) of the deliveries."""
    values = [value for _, value in frames if value.name == "Basic.Deliver"]
    return [(value.consumer_tag, value.delivery_tag) for value in values]


def count(frames):
    return len(tags(frames))


def test_global_moves_a_running_consumer_up_and_down(queue, fill, peer):
    fill(10)
    peer.call(1, Qos(prefetch_count=1, global_=True))
    assert count(peer.call(1, Consume(queue="q"))) == 1
    assert count(peer.call(1, Qos(prefetch_count=3, global_=True))) == 2
    assert count(peer.call(1, Qos(prefetch_count=1, global_=True))) == 0
    assert [count(peer.call(1, Ack(tag, False))) for tag in (1, 2, 3)] == [0, 0, 1]


def test_global_gives_no_more_than_the_consumer_asked_for(queue, peer):
    peer.call(1, Qos(prefetch_count=2), Consume(queue="q"))
    peer.call(1, Qos(prefetch_count=1, global_=True))
    assert [each.prefetch for each in queue.consumers] == [1]
    peer.call(1, Qos(prefetch_count=9, global_=True))
    assert [each.prefetch for each in queue.consumers] == [2]
    peer.call(1, Qos(prefetch_count=0, global_=True))
    assert [each.prefetch for each in queue.consumers] == [2]


def test_without_global_running_consumers_stay(queue, fill, peer):
    fill(5)
    peer.call(1, Qos(prefetch_count=1))
    assert count(peer.call(1, Consume(queue="q"))) == 1
    assert count(peer.call(1, Qos(prefetch_count=3))) == 0
    assert [each.prefetch for each in queue.consumers] == [1]


@pytest.mark.parametrize(
    "properties",
    [PY_AMQP, {"headrace.qos-running-consumers": True}],
    ids=["py-amqp", "client property"],
)
def test_without_global_they_move_for_clients_that_count_on_it(queue, fill, new_peer, properties):
    peer = new_peer().open(properties=properties)
    fill(5)
    peer.call(1, Qos(prefetch_count=1))
    assert count(peer.call(1, Consume(queue="q"))) == 1
    assert count(peer.call(1, Qos(prefetch_count=3))) == 2
    [status] = peer.info.control.channels(0)
    assert [consumer.prefetch_count for consumer in status.consumers] == [3]
    assert count(peer.call(1, Qos(prefetch_count=1))) == 0
    assert [count(peer.call(1, Ack(tag, False))) for tag in (1, 2, 3)] == [0, 0, 1]
    assert count(peer.call(1, Qos(prefetch_count=0))) == 1  # no limit


def test_a_client_may_want_what_rabbitmq_does(queue, fill, new_peer):
    properties = {"product": "py-amqp", "headrace.qos-running-consumers": False}
    peer = new_peer().open(properties=properties)
    peer.call(1, Qos(prefetch_count=1), Consume(queue="q"), Qos(prefetch_count=3))
    assert [each.prefetch for each in queue.consumers] == [1]


def test_the_client_property_is_a_boolean(kit, new_peer):
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    start_ok = peer.start_ok()
    start_ok.client_properties["headrace.qos-running-consumers"] = 1
    close = peer.ask(0, start_ok)
    assert close.reply_code == 530
    assert "'headrace.qos-running-consumers' is not a boolean" in close.reply_text


def test_other_channels_are_not_touched(queue, new_peer):
    peer = new_peer().open(channels=2, properties=PY_AMQP)
    peer.call(1, Qos(prefetch_count=1), Consume(queue="q"))
    peer.call(2, Qos(prefetch_count=5))
    assert [each.prefetch for each in queue.consumers] == [1]


def test_running_consumers_stay_while_a_node_is_too_old(broker, queue, fill, new_peer):
    broker.old_members = True
    peer = new_peer().open(properties=PY_AMQP)
    fill(5)
    peer.call(1, Qos(prefetch_count=1), Consume(queue="q"), Qos(prefetch_count=3))
    assert [each.prefetch for each in queue.consumers] == [1]
    [status] = peer.info.control.channels(0)
    assert [consumer.prefetch_count for consumer in status.consumers] == [1]


# Consumers without acknowledgements


def test_no_ack_waits_while_the_channel_is_full(broker, queue, fill, peer):
    broker.add_queue("other")
    fill(3)
    fill(9, "other")
    peer.call(1, Qos(prefetch_count=2, global_=True))
    assert count(peer.call(1, Consume(queue="q", consumer_tag="acks"))) == 2
    assert count(peer.call(1, Consume(queue="other", consumer_tag="none", no_ack=True))) == 0
    assert tags(peer.call(1, Ack(1, False))) == [("acks", 3)]  # full again at once
    left = tags(peer.call(1, Ack(2, False)))
    assert [tag for tag, _ in left] == ["none"] * 9  # which do not count


def test_no_ack_alone_is_not_limited(queue, fill, peer):
    fill(20)
    frames = peer.call(1, Qos(prefetch_count=2, global_=True), Consume(queue="q", no_ack=True))
    assert count(frames) == 20


def test_no_ack_holds_little_back_from_others(broker, queue, fill, peer):
    other = broker.add_queue("other")
    fill(1)
    fill(NO_ACK_HELD_MAX + 7, "other")
    peer.call(1, Qos(prefetch_count=1, global_=True), Consume(queue="q"))
    peer.call(1, Consume(queue="other", no_ack=True))
    assert len(other.ready) == 7
    assert [each.prefetch for each in other.consumers] == [NO_ACK_HELD_MAX]
    assert count(peer.call(1, Qos(prefetch_count=0, global_=True))) == NO_ACK_HELD_MAX + 7
    assert [each.prefetch for each in other.consumers] == [PREFETCH_UNLIMITED]


def test_what_get_took_counts_towards_no_limit(queue, fill, peer):
    fill(10)
    peer.call(1, Qos(prefetch_count=2, global_=True), Get(queue="q"), Get(queue="q"))
    assert count(peer.call(1, Consume(queue="q"))) == 2
    assert count(peer.call(1, Ack(1, False))) == 0
    assert count(peer.call(1, Ack(3, True))) == 1
