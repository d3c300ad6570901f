"""Direct reply-to: requests, replies, and errors."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from headrace_broker.codecs.batch import message_properties
from headrace_broker.codecs.method import decode_properties, encode_method
from headrace_broker.model.limits import OUTPUT_BYTES_MAX, OUTPUT_DELIVERY_BYTES_MAX

REPLY_QUEUE = "amq.rabbitmq.reply-to"
Properties = commands.Basic.Properties


def names(frames):
    return [value.name for _, value in frames]


def refusal(frames):
    [(channel, close)] = frames
    assert (channel, close.name) == (1, "Channel.Close")
    return close.reply_code, close.reply_text


@pytest.fixture
def requests(broker):
    return broker.add_queue("requests")


@pytest.fixture
def requester(peer, requests):
    """A client with a consumer of replies."""
    consume = commands.Basic.Consume(queue=REPLY_QUEUE, no_ack=True, consumer_tag="replies")
    answer = peer.ask(1, consume)
    assert (answer.name, answer.consumer_tag) == ("Basic.ConsumeOk", "replies")
    return peer


@pytest.fixture
def responder(new_peer):
    return new_peer().open(channels=2)


def request(kit, peer, **more):
    wanted = Properties(reply_to=REPLY_QUEUE, correlation_id="c", **more)
    peer.feed(kit.publish(1, "", "requests", b"ask", properties=wanted))
    assert peer.turn() == []


def reply_name(requests):
    """The name that the newest request carries."""
    newest = requests.ready[-1]
    found = decode_properties(message_properties(newest.blob, 0, newest.position))
    assert found.correlation_id == "c"
    return found.reply_to


def test_request_carries_a_name_of_its_own_and_the_reply_comes_straight(
    kit, requester, responder, requests
):
    request(kit, requester)
    name = reply_name(requests)
    assert name.startswith(REPLY_QUEUE + ".")
    reply = kit.publish(1, "", name, b"answer", properties=Properties(correlation_id="c"))
    responder.feed(reply + reply)
    assert responder.turn() == []
    frames = [value for _, value in requester.turn()]
    assert [frame.name for frame in frames] == ["Basic.Deliver", "ContentHeader", "ContentBody"] * 2
    deliver, header, body = frames[:3]
    assert (deliver.consumer_tag, deliver.delivery_tag, deliver.redelivered) == (
        "replies",
        1,
        False,
    )
    assert (deliver.exchange, deliver.routing_key) == ("", name)
    assert header.properties.correlation_id == "c"
    assert body.value == b"answer"
    assert frames[3].delivery_tag == 2


def test_name_stays_the_same_for_all_requests_of_a_channel(kit, requester, requests):
    request(kit, requester)
    first = reply_name(requests)
    request(kit, requester)
    assert reply_name(requests) == first


def test_reply_is_confirmed_and_not_returned_while_somebody_listens(
    kit, requester, responder, requests
):
    request(kit, requester)
    responder.call(1, commands.Confirm.Select())
    name = reply_name(requests)
    responder.feed(kit.publish(1, "", name, b"1", mandatory=True))
    assert names(responder.turn()) == ["Basic.Ack"]
    requester.call(1, commands.Basic.Cancel("replies"))
    responder.feed(kit.publish(1, "", name, b"2", mandatory=True))
    assert names(responder.turn()) == ["Basic.Return", "ContentHeader", "ContentBody", "Basic.Ack"]
    responder.feed(kit.publish(1, "", name, b"3"))
    assert names(responder.turn()) == ["Basic.Ack"]
    assert requester.turn() == []


def test_reply_goes_to_a_queue_as_well_by_its_copies(kit, broker, requester, responder, requests):
    copy = broker.add_queue("copy")
    request(kit, requester)
    headers: Any = {"CC": ["copy"], "BCC": [reply_name(requests)]}
    wanted = Properties(headers=headers)
    responder.feed(kit.publish(1, "", "none", b"x", properties=wanted, mandatory=True))
    assert responder.turn() == []
    assert len(copy.ready) == 1
    frames = requester.turn()
    assert names(frames)[0] == "Basic.Deliver"
    assert frames[1][1].properties.headers == {"CC": ["copy"]}


def test_reply_of_a_transaction_comes_with_its_commit(kit, requester, responder, requests):
    request(kit, requester)
    assert responder.ask(1, commands.Tx.Select()).name == "Tx.SelectOk"
    responder.feed(kit.publish(1, "", reply_name(requests), b"x"))
    responder.feed(kit.publish(1, "", REPLY_QUEUE + ".1.gone", b"y", mandatory=True))
    assert responder.turn() == []
    assert requester.turn() == []
    frames = responder.call(1, commands.Tx.Commit())
    assert names(frames) == ["Basic.Return", "ContentHeader", "ContentBody", "Tx.CommitOk"]
    assert names(requester.turn())[0] == "Basic.Deliver"


def test_pseudo_queue_itself_is_no_destination(kit, requester, responder):
    responder.feed(kit.publish(1, "", REPLY_QUEUE, b"x", mandatory=True))
    assert names(responder.turn())[0] == "Basic.Return"
    assert requester.turn() == []


def test_other_reply_to_stays_as_it_is(kit, peer, requests):
    wanted = Properties(reply_to=REPLY_QUEUE + "-not", correlation_id="c")
    peer.feed(kit.publish(1, "", "requests", b"ask", properties=wanted))
    assert peer.turn() == []
    assert reply_name(requests) == REPLY_QUEUE + "-not"


def test_request_without_a_consumer_is_refused(kit, peer, requests):
    wanted = Properties(reply_to=REPLY_QUEUE)
    peer.feed(kit.publish(1, "", "requests", b"ask", properties=wanted))
    text = "PRECONDITION_FAILED - fast reply consumer does not exist"
    assert refusal(peer.turn()) == (406, text)
    assert not requests.ready


def test_consumer_of_another_channel_does_not_count(kit, requester, requests):
    requester.call(2, commands.Channel.Open())
    wanted = Properties(reply_to=REPLY_QUEUE)
    requester.feed(kit.publish(2, "", "requests", b"ask", properties=wanted))
    [(channel, close)] = requester.turn()
    assert (channel, close.reply_code) == (2, 406)


def test_consumer_that_acknowledges_is_refused(peer):
    frames = peer.call(1, commands.Basic.Consume(queue=REPLY_QUEUE))
    assert refusal(frames) == (406, "PRECONDITION_FAILED - reply consumer cannot acknowledge")


def test_second_consumer_of_a_channel_is_refused(requester):
    frames = requester.call(1, commands.Basic.Consume(queue=REPLY_QUEUE, no_ack=True))
    assert refusal(frames) == (406, "PRECONDITION_FAILED - reply consumer already set")


def test_consumer_tag_in_use_is_refused(requester):
    again = commands.Basic.Consume(queue=REPLY_QUEUE, no_ack=True, consumer_tag="replies")
    [(channel, close)] = requester.call(1, again)
    assert (channel, close.name, close.reply_code) == (0, "Connection.Close", 530)


def test_cancelled_consumer_may_be_followed_by_another(kit, requester, requests):
    request(kit, requester)
    first = reply_name(requests)
    answer = requester.ask(1, commands.Basic.Cancel("replies"))
    assert (answer.name, answer.consumer_tag) == ("Basic.CancelOk", "replies")
    consume = commands.Basic.Consume(queue=REPLY_QUEUE, no_ack=True)
    assert requester.ask(1, consume).consumer_tag.startswith("amq.ctag-")
    request(kit, requester)
    assert reply_name(requests) != first


@pytest.mark.parametrize("passive", [False, True])
def test_declaring_tells_whether_somebody_listens(kit, requester, responder, requests, passive):
    def declare(name: str, channel: int):
        return responder.call(channel, commands.Queue.Declare(queue=name, passive=passive))

    [(_, answer)] = declare(REPLY_QUEUE, 1)
    assert (answer.name, answer.queue) == ("Queue.DeclareOk", REPLY_QUEUE)
    assert (answer.message_count, answer.consumer_count) == (0, 1)
    request(kit, requester)
    name = reply_name(requests)
    [(_, answer)] = declare(name, 1)
    assert (answer.name, answer.queue, answer.consumer_count) == ("Queue.DeclareOk", name, 1)
    requester.call(1, commands.Channel.Close(200, "", 0, 0))
    [(_, close)] = declare(name, 1)
    assert (close.name, close.reply_code) == ("Channel.Close", 404 if passive else 403)


def test_end_of_the_connection_ends_the_consumer(kit, broker, requester, responder, requests):
    request(kit, requester)
    requester.connection.lost()
    responder.feed(kit.publish(1, "", reply_name(requests), b"x", mandatory=True))
    assert names(responder.turn())[0] == "Basic.Return"


def test_replies_wait_with_other_answers_while_deliveries_are_kept_back(
    kit, requester, responder, requests
):
    request(kit, requester)
    requester.shell.stuck = True
    byte_count = 100_000
    reply = kit.publish(1, "", reply_name(requests), b"x" * byte_count)
    count = 2 * OUTPUT_DELIVERY_BYTES_MAX // byte_count
    for _ in range(count):
        responder.feed(reply)
        responder.turn()
        requester.turn()
    assert requester.shell.buffered >= count * byte_count


def test_replies_are_dropped_while_the_client_does_not_read(kit, requester, responder, requests):
    request(kit, requester)
    requester.shell.stuck = True
    byte_count = 100_000
    reply = kit.publish(1, "", reply_name(requests), b"x" * byte_count)
    for _ in range(60):
        responder.feed(reply)
        responder.turn()
        requester.turn()
    assert OUTPUT_BYTES_MAX < requester.shell.buffered <= OUTPUT_BYTES_MAX + 2 * byte_count
    requester.shell.drain()
    responder.feed(reply)
    assert names(requester.turn())[0] == "Basic.Deliver"


def test_consumer_that_was_closed_at_once_leaves_nothing(broker, requester):
    requester.feed(encode_method(1, commands.Channel.Close(200, "", 0, 0)))
    requester.turn()
    assert broker.replies._listeners == {}
