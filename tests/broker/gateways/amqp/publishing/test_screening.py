"""Properties that are checked when a message is published, and those that send it further."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from headrace_broker.catalog.event import BindingAdded
from headrace_broker.codecs.batch import message_body, message_properties
from headrace_broker.codecs.method import decode_properties
from headrace_broker.gateways.publishing.screening import remarks
from headrace_broker.model.definition import Binding, Exchange
from headrace_broker.model.limits import ROUTING_STEPS_OF_MESSAGE, ROUTING_WORK_MAX
from headrace_broker.model.reply_queue import REPLY_QUEUE

Properties = commands.Basic.Properties


def bodies(queue):
    return [message_body(each.blob, 0, each.position) for each in queue.ready]


def properties(queue):
    return [
        decode_properties(message_properties(each.blob, 0, each.position)) for each in queue.ready
    ]


@pytest.fixture
def queues(broker):
    return {name: broker.add_queue(name) for name in ("q", "r", "s")}


@pytest.fixture
def send(kit, peer):
    """Publish one message each of some properties to queue q, and return what comes back."""

    def publish(*each: Properties, key: str = "q", exchange: str = "", **flags: Any):
        peer.feed(
            b"".join(
                kit.publish(1, exchange, key, b"%d" % n, properties=one, **flags)
                for n, one in enumerate(each)
            )
        )
        return [value for _, value in peer.turn()]

    return publish


def refusal(frames):
    [close] = frames
    assert (close.name, close.class_id, close.method_id) == ("Channel.Close", 60, 40)
    return close.reply_code, close.reply_text


# user-id


def test_own_user_id_passes(queues, send):
    assert send(Properties(user_id="guest")) == []
    assert [each.user_id for each in properties(queues["q"])] == ["guest"]


def test_other_user_id_is_refused_and_nothing_behind_it_is_published(queues, send):
    frames = send(Properties(), Properties(user_id="other"), Properties())
    text = (
        "PRECONDITION_FAILED - user_id property set to 'other' but authenticated user was 'guest'"
    )
    assert refusal(frames) == (406, text)
    assert bodies(queues["q"]) == [b"0"]


def test_impersonator_may_claim_any_user_id(broker, queues, send):
    broker.tags = ("monitoring", "impersonator")
    assert send(Properties(user_id="other")) == []
    assert [each.user_id for each in properties(queues["q"])] == ["other"]


# expiration


@pytest.mark.parametrize("value", ["0", "1", "60000", "+5", "315360000000"])
def test_expiration_is_a_number_of_milliseconds(queues, send, value):
    assert send(Properties(expiration=value)) == []
    assert len(queues["q"].ready) == 1


@pytest.mark.parametrize("value", ["soon", "-1", "1.5", "1 ", "1s", "315360000001", "9" * 40])
def test_other_expiration_is_refused(queues, send, value):
    code, text = refusal(send(Properties(expiration=value)))
    assert code == 406
    assert text.startswith(f"PRECONDITION_FAILED - invalid expiration '{value}': ")
    assert bodies(queues["q"]) == []


# CC and BCC


def test_copies_go_to_further_keys_and_bcc_is_not_stored(queues, send):
    assert send(Properties(headers={"CC": ["r"], "BCC": ["s"], "h": 1}, message_id="m")) == []
    for name in "qrs":
        [stored] = properties(queues[name])
        assert stored.headers == {"CC": ["r"], "h": 1}
        assert stored.message_id == "m"


def test_bcc_is_not_stored_by_a_transaction(peer, queues, send):
    peer.ask(1, commands.Tx.Select())
    assert send(Properties(headers={"BCC": ["s"], "h": 1}), Properties(headers={"h": 2})) == []
    peer.ask(1, commands.Tx.Commit())
    assert [each.headers for each in properties(queues["s"])] == [{"h": 1}]
    assert [each.headers for each in properties(queues["q"])] == [{"h": 1}, {"h": 2}]


def test_queue_that_is_named_twice_has_it_once(queues, send):
    assert send(Properties(headers={"CC": ["q", "r", "r", "none"]})) == []
    assert [len(queues[name].ready) for name in "qrs"] == [1, 1, 0]


def test_copies_pass_through_exchanges(kit, broker, peer, queues, send):
    for name, key in (("q", "a.1"), ("r", "b.*")):
        peer.call(1, commands.Queue.Bind(queue=name, exchange="amq.topic", routing_key=key))
    assert send(Properties(headers={"BCC": ["b.2"]}), key="a.1", exchange="amq.topic") == []
    assert [len(queues[name].ready) for name in "qrs"] == [1, 1, 0]


def test_order_is_kept_between_messages_with_copies_and_without(queues, send):
    plain, copied = Properties(headers={"h": 1}), Properties(headers={"CC": ["r"]})
    send(plain, plain, copied, plain, copied, copied, plain)
    assert bodies(queues["q"]) == [b"%d" % n for n in range(7)]
    assert bodies(queues["r"]) == [b"2", b"4", b"5"]


def test_messages_between_those_with_copies_stay_one_batch(queues, send):
    plain, copied = Properties(headers={"h": 1}), Properties(headers={"CC": ["r"]})
    send(plain, plain, copied, plain)
    blobs = [id(each.blob) for each in queues["q"].ready]
    assert blobs[0] == blobs[1]


@pytest.mark.parametrize("headers", [{"CC": "r"}, {"BCC": 1}, {"CC": [1]}])
def test_keys_of_a_wrong_type_are_refused(queues, send, headers):
    code, text = refusal(send(Properties(), Properties(headers=headers)))
    assert code == 406
    name = next(iter(headers))
    assert text.startswith(f"PRECONDITION_FAILED - invalid message: header '{name}' must be an ar")
    assert bodies(queues["q"]) == [b"0"]


def costly(broker) -> list[str]:
    """Bind q and r to amq.topic, r with much; return keys that cost something, and all too much."""
    patterns = ["#.a." * 62 + f"w{number}" for number in range(900)]
    bindings = [Binding("/", "amq.topic", "queue", "r", pattern) for pattern in patterns]
    bindings.append(Binding("/", "amq.topic", "queue", "q", "q"))
    broker.router.on_events([BindingAdded(binding) for binding in bindings])
    return [".".join("a" * 126) + f".{number}" for number in range(32)]


def test_message_whose_route_costs_too_much_is_refused(broker, peer, queues, send):
    keys = costly(broker)
    some: Any = {"CC": [keys[0], "a." * 62 + "w7"]}
    many: Any = {"CC": keys}
    plain, few = Properties(), Properties(headers=some)
    frames = send(plain, few, Properties(headers=many), plain, exchange="amq.topic")
    code, text = refusal(frames)
    assert code == 406
    assert text.startswith(
        "PRECONDITION_FAILED - invalid message: the route of a message with 33 routing keys at "
        "exchange 'amq.topic' in vhost '/' takes more than 524288 steps: "
    )
    assert bodies(queues["q"]) == [b"0", b"1"]
    assert bodies(queues["r"]) == [b"1"]


def test_a_refused_route_is_paid_for(kit, broker, peer, queues):
    keys = costly(broker)
    left = broker.intake.messages_left
    headers: Any = {"CC": keys}
    peer.feed(kit.publish(1, "amq.topic", "q", b"x", properties=Properties(headers=headers)))
    assert left - broker.intake.messages_left > ROUTING_WORK_MAX // ROUTING_STEPS_OF_MESSAGE


def test_message_whose_copies_find_no_queue_is_returned_once(queues, send):
    headers: Any = {"CC": ["none"], "BCC": ["nobody"]}
    frames = send(Properties(headers=headers), key="gone", mandatory=True)
    assert [frame.name for frame in frames] == ["Basic.Return", "ContentHeader", "ContentBody"]
    assert frames[0].reply_code == 312


def test_each_copy_is_confirmed_together(broker, peer, queues, send):
    peer.call(1, commands.Confirm.Select())
    broker.hold_confirms = True
    assert send(Properties(headers={"CC": ["r"]})) == []
    broker.clients[0].confirm(1)
    assert peer.turn() == []
    broker.clients[1].confirm(1)
    assert [(value.name, value.delivery_tag) for _, value in peer.turn()] == [("Basic.Ack", 1)]


def test_exchange_that_looks_at_headers_gets_those_of_a_message_with_copies(broker, peer, send):
    queue = broker.add_queue("h")
    arguments: Any = {"x-match": "all", "colour": "red"}
    peer.call(1, commands.Queue.Bind(queue="h", exchange="amq.headers", arguments=arguments))
    for colour in ("red", "blue"):
        headers: Any = {"colour": colour, "CC": ["any"]}
        send(Properties(headers=headers), exchange="amq.headers")
    assert len(queue.ready) == 1


def test_consistent_hash_exchange_looks_at_the_property_it_names(broker, peer, send):
    arguments = {"hash-property": "message_id"}
    broker.add_exchange(Exchange("/", "x", "x-consistent-hash", arguments=arguments))
    queues = [broker.add_queue(f"h{number}") for number in range(4)]
    for queue in queues:
        name = queue.definition.name
        peer.call(1, commands.Queue.Bind(queue=name, exchange="x", routing_key="1"))
    for number in range(60):
        one = Properties(message_id=f"m{number % 20}")
        assert send(one, key=str(number), exchange="x") == []
    held = [{each.message_id for each in properties(queue)} for queue in queues]
    assert sum(map(len, held)) == len(set().union(*held)) == 20
    assert all(held)


# immediate


@pytest.fixture
def immediate(broker, peer, queues):
    broker.immediate = True
    broker.hold_confirms = True
    assert peer.ask(1, commands.Confirm.Select()).name == "Confirm.SelectOk"
    return peer


def shown(peer):
    return [
        (value.name, getattr(value, "reply_code", None) or getattr(value, "delivery_tag", None))
        for _, value in peer.turn()
        if value.name.startswith("Basic")
    ]


def test_immediate_that_a_queue_takes_is_confirmed(broker, immediate, send):
    assert send(Properties(), immediate=True) == []
    broker.clients[0].confirm(1)
    assert shown(immediate) == [("Basic.Ack", 1)]


def test_immediate_that_no_queue_takes_comes_back_and_is_confirmed(broker, immediate, send):
    send(Properties(), Properties(), immediate=True)
    broker.clients[0].confirm(1, rejected=True)
    broker.clients[0].confirm(1)
    assert shown(immediate) == [("Basic.Return", 313), ("Basic.Ack", 2)]


def test_immediate_that_one_of_two_queues_takes_does_not_come_back(
    kit, broker, peer, immediate, send
):
    for name in "qr":
        peer.call(1, commands.Queue.Bind(queue=name, exchange="amq.fanout"))
    for answers in ([True, False], [False, True]):
        send(Properties(), exchange="amq.fanout", immediate=True)
        for client, rejected in zip(broker.clients, answers, strict=True):
            client.confirm(1, rejected=rejected)
    assert shown(immediate) == [("Basic.Ack", 2)]
    send(Properties(), exchange="amq.fanout", immediate=True)
    for client in broker.clients:
        client.confirm(1, rejected=True)
    assert shown(immediate) == [("Basic.Return", 313), ("Basic.Ack", 3)]


def test_immediate_comes_back_without_confirms_as_well(broker, peer, queues, send):
    broker.immediate = True
    broker.hold_confirms = True
    send(Properties(), immediate=True)
    broker.clients[0].confirm(1, rejected=True)
    assert shown(peer) == [("Basic.Return", 313)]
    send(Properties(), immediate=True)
    broker.clients[0].confirm(1)
    assert peer.turn() == []


@pytest.mark.parametrize(("mandatory", "code"), [(False, 313), (True, 312)])
def test_immediate_without_a_queue_comes_back(immediate, send, mandatory, code):
    frames = send(Properties(), key="none", immediate=True, mandatory=mandatory)
    assert [frame.name for frame in frames if frame.name.startswith("Basic")] == [
        "Basic.Return",
        "Basic.Ack",
    ]
    assert frames[0].reply_code == code


def test_immediate_to_a_queue_without_the_policy_closes_the_connection(broker, immediate, send):
    broker.not_immediate.add("q")
    [close] = send(Properties(), immediate=True)
    assert (close.name, close.reply_code) == ("Connection.Close", 540)


# What matters is seen, and nothing else

ALL: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "headers": {"CCC": ["q"], "other": "BCC"},
    "delivery_mode": 2,
    "priority": 3,
    "correlation_id": REPLY_QUEUE,
    "reply_to": "amq.rabbitmq.reply-tX",
    "message_id": REPLY_QUEUE,
    "app_id": "app",
}


@given(st.sets(st.sampled_from(sorted(ALL))), st.sets(st.sampled_from(["u", "e", "c", "r"])))
def test_remarks_are_exactly_those_that_matter(plain, remarkable):
    table = {name: ALL[name] for name in plain}
    expected = 0
    if "u" in remarkable:
        table["user_id"], expected = "guest", expected | 0x0010
    if "e" in remarkable:
        table["expiration"], expected = "1", expected | 0x0100
    if "c" in remarkable:
        table["headers"], expected = {"a": 1, "BCC": []}, expected | 0x2000
    if "r" in remarkable:
        table["reply_to"], expected = REPLY_QUEUE, expected | 0x0200
    assert remarks(Properties(**table).marshal()) == expected
