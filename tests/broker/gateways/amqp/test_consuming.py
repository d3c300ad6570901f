from __future__ import annotations

import pytest
from pamqp import commands

from headrace_broker.codecs.method import encode_method
from headrace_broker.model.limits import PREFETCH_UNLIMITED
from headrace_broker.runtime.contract.port import ACCEPT, MODIFY_FAILED, REJECT

Ack = commands.Basic.Ack
Cancel = commands.Basic.Cancel
Consume = commands.Basic.Consume
Qos = commands.Basic.Qos


def names(frames):
    return [value.name for _, value in frames]


def delivered(frames):
    """(delivery tag, consumer tag, body, redelivered) of the deliveries."""
    values = [value for _, value in frames]
    return [
        (value.delivery_tag, value.consumer_tag, values[at + 2].value, value.redelivered)
        for at, value in enumerate(values)
        if value.name == "Basic.Deliver"
    ]


def tags(frames):
    return [each[0] for each in delivered(frames)]


def test_consume_delivers_in_order_after_consume_ok(queue, fill, peer):
    fill(3)
    frames = peer.call(1, Consume(queue="q", consumer_tag="c"))
    assert frames[0][1].consumer_tag == "c"
    assert delivered(frames) == [
        (1, "c", b"0", False),
        (2, "c", b"1", False),
        (3, "c", b"2", False),
    ]


def test_messages_that_come_while_attaching_wait_for_consume_ok(broker, queue, fill, peer):
    fill(1)
    frames = peer.call(1, Consume(queue="q", consumer_tag="c"))
    assert names(frames)[:2] == ["Basic.ConsumeOk", "Basic.Deliver"]


def test_nowait_consume_has_no_answer(queue, peer):
    assert peer.call(1, Consume(queue="q", consumer_tag="c", nowait=True)) == []
    assert len(queue.consumers) == 1


def test_server_names_the_consumer(queue, peer):
    first = peer.ask(1, Consume(queue="q")).consumer_tag
    second = peer.ask(1, Consume(queue="q")).consumer_tag
    assert first.startswith("amq.ctag-")
    assert first != second


def test_consumer_tag_in_use_is_refused(queue, peer):
    peer.call(1, Consume(queue="q", consumer_tag="c"))
    [(channel, close)] = peer.call(1, Consume(queue="q", consumer_tag="c"))
    assert (channel, close.reply_code) == (0, 530)
    assert "'c'" in close.reply_text


def test_same_tag_on_another_channel_is_fine(queue, new_peer):
    peer = new_peer().open(channels=2)
    assert peer.ask(1, Consume(queue="q", consumer_tag="c")).name == "Basic.ConsumeOk"
    assert peer.ask(2, Consume(queue="q", consumer_tag="c")).name == "Basic.ConsumeOk"


def test_refused_exclusive_use_closes_the_channel(queue, new_peer):
    peer = new_peer().open(channels=2)
    peer.call(1, Consume(queue="q", exclusive=True))
    close = peer.ask(2, Consume(queue="q"))
    assert (close.reply_code, close.class_id, close.method_id) == (403, 60, 20)
    assert len(queue.consumers) == 1


def test_consume_of_missing_queue(peer):
    close = peer.ask(1, Consume(queue="nope"))
    assert (close.reply_code, close.reply_text) == (404, "NOT_FOUND - no queue 'nope' in vhost '/'")


def test_consumer_lost_while_attaching_is_told_after_consume_ok(broker, queue, peer):
    open_queue = broker.open_queue

    def opened(definition, listener, account):
        client = open_queue(definition, listener, account)

        async def attach(consumer, *_):
            listener.on_cancelled(client, consumer, "deleted")

        client.attach = attach
        return client

    broker.open_queue = opened
    frames = peer.call(1, Consume(queue="q", consumer_tag="c"))
    assert names(frames) == ["Basic.ConsumeOk", "Basic.Cancel"]


# Settling


def test_single_acks_of_a_chunk_are_one_settlement(broker, queue, fill, peer):
    fill(100)
    peer.call(1, Consume(queue="q"))
    client = broker.clients[-1]
    peer.feed(b"".join(encode_method(1, Ack(tag, False)) for tag in range(1, 101)))
    assert client.settle_calls == [(1, ACCEPT, 1, 100)]
    assert queue.settled == [(ACCEPT, n) for n in range(1, 101)]


def test_acks_out_of_order_settle_what_they_say(queue, fill, peer):
    fill(5)
    peer.call(1, Consume(queue="q"))
    peer.call(1, Ack(4, False), Ack(2, False), Ack(3, False))
    assert sorted(queue.settled) == [(ACCEPT, 2), (ACCEPT, 3), (ACCEPT, 4)]
    peer.call(1, Ack(5, True))
    assert sorted(queue.settled) == [(ACCEPT, n) for n in range(1, 6)]


def test_ack_multiple_covers_consumers_of_several_queues(broker, queue, fill, peer):
    other = broker.add_queue("other")
    fill(2)
    peer.call(1, Consume(queue="q"))
    fill(2, "other")
    peer.call(1, Consume(queue="other"))
    peer.call(1, Ack(3, True))
    assert queue.settled == [(ACCEPT, 1), (ACCEPT, 2)]
    assert other.settled == [(ACCEPT, 1)]


def test_ack_behind_an_operation_counts(broker, queue, fill, peer):
    fill(1)
    peer.call(1, Consume(queue="q"))
    broker.gate.opened = False
    peer.call(1, commands.Queue.Declare(queue="r"), Ack(1, False))
    assert queue.settled == []
    broker.gate.opened = True
    peer.turn()
    assert queue.settled == [(ACCEPT, 1)]


def test_ack_zero_multiple_covers_everything(queue, fill, peer):
    fill(5)
    peer.call(1, Consume(queue="q"))
    peer.call(1, Ack(0, True))
    assert len(queue.settled) == 5


@pytest.mark.parametrize(
    ("method", "tag"),
    [
        (Ack(7, False), 7),
        (Ack(7, True), 7),
        (Ack(0, False), 0),
        (commands.Basic.Reject(7, True), 7),
        (commands.Basic.Nack(7, True, True), 7),
    ],
)
def test_unknown_delivery_tag_is_named(queue, fill, peer, method, tag):
    fill(1)
    peer.call(1, Consume(queue="q"))
    close = peer.ask(1, method)
    assert close.reply_text == f"PRECONDITION_FAILED - unknown delivery tag {tag}"
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, method.index & 0xFFFF)


def test_ack_twice_is_unknown_the_second_time(queue, fill, peer):
    fill(2)
    peer.call(1, Consume(queue="q"))
    assert peer.call(1, Ack(1, False)) == []
    assert peer.ask(1, Ack(1, False)).reply_code == 406
    assert queue.settled == [(ACCEPT, 1)]


def test_nack_and_reject_requeue_or_not(queue, fill, peer):
    fill(4)
    peer.call(1, Qos(prefetch_count=4), Consume(queue="q", consumer_tag="c"))
    peer.call(1, commands.Basic.Reject(1, False))
    peer.call(1, commands.Basic.Nack(3, True, False))
    assert queue.settled == [(REJECT, 1), (REJECT, 2), (REJECT, 3)]
    frames = peer.call(1, commands.Basic.Reject(4, True))
    assert queue.settled[3:] == [(MODIFY_FAILED, 4)]
    assert delivered(frames) == [(5, "c", b"3", True)]


def test_no_ack_consumer_settles_by_sending(queue, fill, peer):
    fill(3)
    frames = peer.call(1, Consume(queue="q", no_ack=True))
    assert tags(frames) == [1, 2, 3]
    assert queue.settled == [(ACCEPT, 1), (ACCEPT, 2), (ACCEPT, 3)]
    assert peer.ask(1, Ack(1, False)).reply_code == 406


# Limits


def test_prefetch_of_a_consumer_bounds_what_it_holds(queue, fill, peer):
    fill(5)
    frames = peer.call(1, Qos(prefetch_count=2), Consume(queue="q"))
    assert tags(frames) == [1, 2]
    assert tags(peer.call(1, Ack(1, False))) == [3]


def test_prefetch_applies_to_consumers_that_come_later(queue, peer):
    peer.call(1, Consume(queue="q"))
    peer.call(1, Qos(prefetch_count=7), Consume(queue="q"))
    peer.call(1, Qos(prefetch_count=0), Consume(queue="q"))
    assert [each.credit for each in queue.consumers] == [PREFETCH_UNLIMITED, 7, PREFETCH_UNLIMITED]


def test_prefetch_is_no_more_than_the_channel_may_have(queue, peer):
    peer.call(1, Qos(prefetch_count=3, global_=True), Consume(queue="q"))
    peer.call(1, Qos(prefetch_count=2), Consume(queue="q"))
    assert [each.credit for each in queue.consumers] == [3, 2]


def test_prefetch_does_not_bound_no_ack(queue, peer):
    peer.call(1, Qos(prefetch_count=1), Consume(queue="q", no_ack=True))
    assert queue.consumers[0].credit == PREFETCH_UNLIMITED


def test_limit_of_the_channel_holds_back_what_was_acquired(broker, queue, fill, peer):
    other = broker.add_queue("other")
    peer.call(1, Consume(queue="q"), Consume(queue="other"))
    peer.call(1, Qos(prefetch_count=3, global_=True))
    fill(2)
    fill(4, "other")
    assert tags(peer.turn()) == [1, 2, 3]
    assert len(other.ready) == 1  # two of three that it may have are not sent
    assert tags(peer.call(1, Ack(1, False))) == [4]
    assert tags(peer.call(1, Ack(4, True))) == [5, 6]


def test_what_comes_does_not_overtake_what_is_held(queue, fill, peer):
    peer.call(1, Consume(queue="q"), Qos(prefetch_count=1, global_=True))
    fill(2)
    assert tags(peer.turn()) == [1]
    peer.feed(encode_method(1, Ack(1, False)))
    fill(1)
    [(tag, _, body, _)] = delivered(peer.turn())
    assert (tag, body) == (2, b"1")


def test_lifted_limit_lets_everything_go(queue, fill, peer):
    peer.call(1, Consume(queue="q"), Qos(prefetch_count=1, global_=True))
    fill(3)
    assert tags(peer.turn()) == [1]
    assert tags(peer.call(1, Qos(prefetch_count=0, global_=True))) == [2, 3]


def test_prefetch_size_is_not_implemented(peer):
    [(_, close)] = peer.call(1, Qos(prefetch_size=1))
    assert close.reply_code == 540


def test_flow_stops_and_resumes_deliveries(queue, fill, peer):
    peer.call(1, Consume(queue="q", consumer_tag="c"))
    assert peer.ask(1, commands.Channel.Flow(False)).active is False
    fill(2)
    assert peer.turn() == []
    frames = peer.call(1, commands.Channel.Flow(True))
    assert names(frames)[0] == "Channel.FlowOk"
    assert tags(frames) == [1, 2]


# Cancelling


def test_cancel_stops_deliveries_and_keeps_the_unsettled(queue, fill, peer):
    fill(2)
    peer.call(1, Consume(queue="q", consumer_tag="c"))
    assert peer.ask(1, Cancel("c")).consumer_tag == "c"
    fill(1)
    assert peer.turn() == []
    peer.call(1, Ack(2, True))
    assert queue.settled == [(ACCEPT, 1), (ACCEPT, 2)]


def test_cancel_gives_back_what_was_held(queue, fill, peer):
    peer.call(1, Consume(queue="q", consumer_tag="c"), Qos(prefetch_count=1, global_=True))
    fill(3)
    fill(2)
    assert tags(peer.turn()) == [1]
    peer.call(1, Cancel("c"))
    assert [message.number for message in queue.ready] == [2, 3, 4, 5]


def test_cancel_of_unknown_tag_is_answered(peer):
    assert peer.ask(1, Cancel("nobody")).name == "Basic.CancelOk"


def test_nowait_cancel_has_no_answer(queue, peer):
    peer.call(1, Consume(queue="q", consumer_tag="c"))
    assert peer.call(1, Cancel("c", nowait=True)) == []
    assert queue.consumers == []


def test_tag_is_free_after_cancel(queue, peer):
    peer.call(1, Consume(queue="q", consumer_tag="c"), Cancel("c"))
    assert peer.ask(1, Consume(queue="q", consumer_tag="c")).name == "Basic.ConsumeOk"


def test_deleted_queue_cancels_its_consumers(broker, queue, fill, peer):
    fill(1)
    peer.call(1, Consume(queue="q", consumer_tag="c"))
    broker.remove_queue("q")
    [(_, cancel)] = peer.turn()
    assert (cancel.name, cancel.consumer_tag, cancel.nowait) == ("Basic.Cancel", "c", True)
    assert peer.call(1, Ack(1, False)) == []  # void, no error


def test_client_without_the_capability_is_not_told_of_the_end(broker, queue, new_peer):
    peer = new_peer().open()
    peer.call(1, Consume(queue="q", consumer_tag="c"))
    broker.remove_queue("q")
    assert peer.turn() == []


# Get


def test_get_takes_one_and_counts_the_rest(queue, fill, peer):
    fill(3)
    frames = peer.call(1, commands.Basic.Get(queue="q"))
    assert names(frames) == ["Basic.GetOk", "ContentHeader", "ContentBody"]
    got = frames[0][1]
    assert (got.delivery_tag, got.redelivered, got.message_count) == (1, False, 2)
    peer.call(1, Ack(1, False))
    assert queue.settled == [(ACCEPT, 1)]


def test_get_no_ack_settles(queue, fill, peer):
    fill(1)
    peer.call(1, commands.Basic.Get(queue="q", no_ack=True))
    assert queue.settled == [(ACCEPT, 1)]


def test_get_from_empty_queue(queue, peer):
    assert peer.ask(1, commands.Basic.Get(queue="q")).name == "Basic.GetEmpty"


def test_get_that_returns_to_a_lost_connection_is_dropped(broker, queue, fill, peer, caplog):
    fill(1)
    open_queue = broker.open_queue

    def opened(definition, listener, account):
        client = open_queue(definition, listener, account)

        async def get():
            await broker.gate
            return queue.take_run(client.getter), 0

        client.get = get
        return client

    broker.open_queue = opened
    broker.gate.opened = False
    peer.call(1, commands.Basic.Get(queue="q", no_ack=True))
    peer.connection.lost()
    broker.gate.opened = True
    assert peer.turn() == []
    assert caplog.records == []
    assert queue.settled == []


def test_gets_and_deliveries_share_the_tags(broker, queue, fill, peer):
    broker.add_queue("other")
    fill(1)
    fill(2, "other")
    peer.call(1, commands.Basic.Get(queue="q"))
    assert tags(peer.call(1, Consume(queue="other"))) == [2, 3]


def test_many_gets_do_not_exhaust_the_window(queue, fill, peer):
    fill(40, size=100_000)
    for _ in range(40):
        assert names(peer.call(1, commands.Basic.Get(queue="q", no_ack=True)))[0] == "Basic.GetOk"
    assert queue.settled[-1] == (ACCEPT, 40)


# Recover


def test_recover_redelivers_everything(queue, fill, peer):
    fill(2)
    peer.call(1, Consume(queue="q", consumer_tag="c"))
    frames = peer.call(1, commands.Basic.Recover(True))
    assert names(frames)[0] == "Basic.RecoverOk"
    assert delivered(frames) == [(3, "c", b"0", True), (4, "c", b"1", True)]


def recover_async(requeue: bool) -> bytes:
    """The frame of basic.recover-async, which `pamqp` warns of when one is made."""
    return bytes.fromhex("01 0001 00000005 003c0064") + bytes((requeue,)) + b"\xce"


def test_recover_async_has_no_answer(queue, fill, peer):
    fill(1)
    peer.call(1, commands.Basic.Get(queue="q"))
    peer.feed(recover_async(True))
    assert peer.turn() == []
    assert len(queue.ready) == 1


def test_recover_without_requeue_is_not_implemented(new_peer):
    first, second = new_peer().open(), new_peer().open()
    assert first.call(1, commands.Basic.Recover(False))[0][1].reply_code == 540
    second.feed(recover_async(False))
    assert second.turn()[0][1].reply_code == 540


def test_publish_and_consume_on_one_channel_in_one_chunk(kit, queue, peer):
    peer.feed(
        encode_method(1, Consume(queue="q", consumer_tag="c"))
        + kit.publish(1, "", "q", b"first")
        + encode_method(1, commands.Basic.Qos(prefetch_count=1))
    )
    frames = peer.turn()
    assert names(frames)[0] == "Basic.ConsumeOk"
    assert [each[2] for each in delivered(frames)] == [b"first"]


def test_get_is_refused_where_one_consumer_is_to_be_served_alone(broker, peer):
    broker.add_queue("s", arguments={"x-single-active-consumer": True})
    close = peer.ask(1, commands.Basic.Get(queue="s"))
    assert close.reply_code == 405
    assert "basic.get operations are not supported" in close.reply_text
