from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from headrace_broker.catalog.event import BindingAdded
from headrace_broker.codecs.batch import message_body
from headrace_broker.codecs.method import encode_method
from headrace_broker.model.definition import Binding, Exchange
from headrace_broker.model.flow import LIMIT_COMMANDS
from headrace_broker.model.limits import CHANNEL_CREDIT, OUTPUT_BYTES_MAX


def names(frames):
    return [value.name for _, value in frames]


def acks(frames):
    return [(value.name, value.delivery_tag, value.multiple) for _, value in frames]


@pytest.fixture
def confirming(broker, peer):
    broker.add_queue("q")
    broker.add_queue("r")
    assert peer.ask(1, commands.Confirm.Select()).name == "Confirm.SelectOk"
    return peer


def bodies(queue):
    return [message_body(each.blob, 0, each.position) for each in queue.ready]


def test_chunk_of_one_route_is_one_batch_and_one_confirm(kit, broker, confirming):
    confirming.feed(b"".join(kit.publish(1, "", "q", b"%d" % n) for n in range(100)))
    assert acks(confirming.turn()) == [("Basic.Ack", 100, True)]
    assert bodies(broker.queues["q"]) == [b"%d" % n for n in range(100)]
    assert len({id(message.blob) for message in broker.queues["q"].ready}) == 1


def test_order_is_kept_across_routes(kit, broker, peer):
    queue = broker.add_queue("q")
    broker.exchanges["amq.fanout"] = Exchange("/", "amq.fanout", "fanout")
    binding = Binding("/", "amq.fanout", "queue", "q", "")
    peer.call(1, commands.Queue.Bind(queue="q", exchange="amq.fanout"))
    assert broker.bindings == [binding]
    routes = ["", "amq.fanout", "", "", "amq.fanout"]
    peer.feed(b"".join(kit.publish(1, route, "q", b"%d" % n) for n, route in enumerate(routes)))
    peer.turn()
    assert bodies(queue) == [b"0", b"1", b"2", b"3", b"4"]


def test_confirm_waits_for_the_queue(kit, broker, confirming):
    broker.hold_confirms = True
    confirming.feed(kit.publish(1, "", "q", b"1") + kit.publish(1, "", "r", b"2"))
    assert confirming.turn() == []
    first, second = broker.clients
    second.confirm(1)
    assert acks(confirming.turn()) == [("Basic.Ack", 2, False)]
    first.confirm(1)
    assert acks(confirming.turn()) == [("Basic.Ack", 1, False)]


def test_confirms_of_a_turn_leave_in_one_write(kit, broker, confirming):
    broker.hold_confirms = True
    for _ in range(10):
        confirming.feed(kit.publish(1, "", "q", b"x"))
    confirming.turn()
    writes = confirming.shell.writes
    for _ in range(10):
        broker.clients[0].confirm(1)
    assert acks(confirming.turn()) == [("Basic.Ack", 10, True)]
    assert confirming.shell.writes == writes + 1


def test_rejected_publish_is_nacked(kit, broker, confirming):
    broker.hold_confirms = True
    confirming.feed(kit.publish(1, "", "q", b"x"))
    confirming.turn()
    broker.clients[0].confirm(1, rejected=True)
    assert acks(confirming.turn()) == [("Basic.Nack", 1, False)]


def test_fan_out_is_confirmed_once_all_queues_have_it(kit, broker, confirming):
    for name in ("q", "r"):
        confirming.call(1, commands.Queue.Bind(queue=name, exchange="amq.fanout"))
    broker.hold_confirms = True
    confirming.feed(kit.publish(1, "amq.fanout", "", b"x"))
    confirming.turn()
    broker.clients[0].confirm(1)
    assert confirming.turn() == []
    broker.clients[1].confirm(1)
    assert acks(confirming.turn()) == [("Basic.Ack", 1, False)]


def test_mandatory_without_route_comes_back_before_its_confirm(kit, confirming):
    confirming.feed(kit.publish(1, "", "nobody", b"lost", mandatory=True))
    frames = confirming.turn()
    assert names(frames) == ["Basic.Return", "ContentHeader", "ContentBody", "Basic.Ack"]
    returned = frames[0][1]
    assert (returned.reply_code, returned.reply_text) == (312, "NO_ROUTE")
    assert (returned.exchange, returned.routing_key) == ("", "nobody")
    assert frames[2][1].value == b"lost"


def test_without_route_and_not_mandatory_is_dropped_and_confirmed(kit, confirming):
    confirming.feed(kit.publish(1, "", "nobody", b"lost"))
    assert acks(confirming.turn()) == [("Basic.Ack", 1, False)]


def test_without_confirm_mode_nothing_comes_back(kit, broker, peer):
    queue = broker.add_queue("q")
    peer.feed(kit.publish(1, "", "q", b"x"))
    assert peer.turn() == []
    assert len(queue.ready) == 1


def test_mandatory_flag_of_one_message_is_not_its_neighbours(kit, confirming):
    confirming.feed(
        kit.publish(1, "", "nobody", b"1")
        + kit.publish(1, "", "nobody", b"2", mandatory=True)
        + kit.publish(1, "", "nobody", b"3")
    )
    frames = confirming.turn()
    assert [value.value for _, value in frames if value.name == "ContentBody"] == [b"2"]


def test_missing_exchange_is_named(kit, peer):
    peer.feed(kit.publish(1, "nope", "q", b"x"))
    [(channel, close)] = peer.turn()
    assert (channel, close.reply_code, close.class_id, close.method_id) == (1, 404, 60, 40)
    assert close.reply_text == "NOT_FOUND - no exchange 'nope' in vhost '/'"


def test_publishes_before_the_error_are_confirmed_before_the_close(kit, broker, confirming):
    confirming.feed(
        kit.publish(1, "", "q", b"1")
        + kit.publish(1, "nope", "", b"2")
        + kit.publish(1, "", "q", b"3")
    )
    frames = confirming.turn()
    assert names(frames)[-1] == "Channel.Close"
    assert bodies(broker.queues["q"]) == [b"1"]


def test_internal_exchange_is_refused(kit, broker, peer):
    broker.add_exchange(Exchange("/", "inner", "fanout", internal=True))
    peer.feed(kit.publish(1, "inner", "", b"x"))
    [(_, close)] = peer.turn()
    assert close.reply_code == 403
    assert "internal exchange 'inner'" in close.reply_text


def test_immediate_is_not_implemented_unless_a_policy_allows_it(kit, broker, peer):
    broker.add_queue("q")
    peer.feed(kit.publish(1, "", "q", b"x", immediate=True))
    [(channel, close)] = peer.turn()
    assert (channel, close.reply_code, close.reply_text) == (
        0,
        540,
        "NOT_IMPLEMENTED - immediate=true",
    )


def test_headers_exchange_looks_at_each_message(kit, broker, confirming):
    for name, value in (("q", "red"), ("r", "blue")):
        arguments: Any = {"x-match": "all", "colour": value}
        confirming.call(
            1, commands.Queue.Bind(queue=name, exchange="amq.headers", arguments=arguments)
        )
    confirming.feed(
        b"".join(
            kit.publish(
                1,
                "amq.headers",
                "",
                colour.encode(),
                properties=commands.Basic.Properties(headers={"colour": colour}),
            )
            for colour in ("red", "blue", "green", "red")
        )
    )
    assert acks(confirming.turn())[-1][1] == 4
    assert bodies(broker.queues["q"]) == [b"red", b"red"]
    assert bodies(broker.queues["r"]) == [b"blue"]


def test_costly_headers_spend_the_turns_budget_and_the_rest_waits(kit, broker, confirming):
    for number in range(3_000):
        binding = Binding("/", "amq.headers", "queue", "q", "", {"a": 1, "b": number})
        broker.router.on_events([BindingAdded(binding)])
    binding = Binding("/", "amq.headers", "queue", "r", "", {"c": 1})
    broker.router.on_events([BindingAdded(binding)])
    broker.intake.begin_turn()
    costly: Any = {"a": 1, "b": -1, "c": 1}  # every binding is compared
    confirming.feed(
        b"".join(
            kit.publish(
                1, "amq.headers", "", b"", properties=commands.Basic.Properties(headers=costly)
            )
            for _ in range(50)
        )
    )
    assert not broker.intake.gate.room
    assert broker.intake.gate.waiting_count == 1
    assert 0 < len(broker.queues["r"].ready) < 25
    turns = broker.intake.turns
    assert acks(confirming.turn())[-1][1] == 50
    assert len(broker.queues["r"].ready) == 50
    assert broker.intake.turns - turns >= 3


def test_publish_goes_out_though_the_channel_closes_at_once(kit, broker, peer):
    queue = broker.add_queue("q")
    peer.feed(
        kit.publish(1, "", "q", b"x") + encode_method(1, commands.Channel.Close(200, "", 0, 0))
    )
    assert names(peer.turn()) == ["Channel.CloseOk"]
    assert bodies(queue) == [b"x"]


def test_no_confirm_follows_close_ok(kit, broker, confirming):
    broker.hold_confirms = True
    confirming.feed(kit.publish(1, "", "q", b"x"))
    confirming.turn()
    client = broker.clients[0]
    assert names(confirming.call(1, commands.Channel.Close(200, "", 0, 0))) == ["Channel.CloseOk"]
    client.confirm(1)
    assert confirming.turn() == []


def test_confirm_that_is_due_precedes_close_ok(kit, confirming):
    confirming.feed(kit.publish(1, "", "q", b"x"))
    frames = confirming.call(1, commands.Channel.Close(200, "", 0, 0))
    assert names(frames) == ["Basic.Ack", "Channel.CloseOk"]


def test_confirm_that_is_due_precedes_channel_close(kit, confirming):
    confirming.feed(kit.publish(1, "", "q", b"x"))
    frames = confirming.call(1, commands.Queue.Declare(queue="nope", passive=True))
    assert names(frames) == ["Basic.Ack", "Channel.Close"]


def test_nothing_follows_connection_close(kit, confirming):
    confirming.feed(kit.publish(1, "", "q", b"x"))
    assert names(confirming.call(1, commands.Basic.Recover(False))) == ["Connection.Close"]


def test_channels_are_confirmed_apart(kit, broker, new_peer):
    broker.add_queue("q")
    peer = new_peer().open(channels=2)
    for channel in (1, 2):
        peer.call(channel, commands.Confirm.Select())
    peer.feed(b"".join(kit.publish(channel, "", "q", b"x") for channel in (1, 2, 2)))
    assert [(channel, value.delivery_tag) for channel, value in peer.turn()] == [(1, 1), (2, 2)]


# Back pressure


def test_congested_queues_leave_a_channel_its_credit_until_both_are_writable(
    kit, broker, confirming
):
    broker.congested = True
    q, r = broker.queues["q"], broker.queues["r"]
    confirming.feed(kit.publish(1, "", "q", b"x") + kit.publish(1, "", "r", b"x"))
    confirming.feed(kit.publish(1, "", "r", b"x") * (CHANNEL_CREDIT - 2))
    assert confirming.info.state == "running"
    confirming.feed(kit.publish(1, "", "r", b"y"))
    confirming.turn()
    assert len(r.ready) == CHANNEL_CREDIT - 1
    assert confirming.info.state == "flow"
    assert (confirming.info.flow.limit, confirming.info.flow.group) == (
        LIMIT_COMMANDS,
        q.definition.group,
    )
    first, second = broker.clients
    first.listener.on_writable(first)
    confirming.turn()
    assert len(r.ready) == CHANNEL_CREDIT - 1
    broker.congested = False
    second.listener.on_writable(second)
    confirming.turn()
    assert len(r.ready) == CHANNEL_CREDIT
    assert confirming.info.state == "running"


def test_client_that_does_not_read_its_returns_is_not_read_itself(kit, peer):
    peer.shell.stuck = True
    payload = b"x" * 100_000
    fed = 0
    while peer.shell.reading:
        peer.feed(kit.publish(1, "", "nobody", payload, mandatory=True))
        peer.turn()
        fed += len(payload)
        assert fed <= OUTPUT_BYTES_MAX + 2 * len(payload)
    assert peer.shell.buffered <= OUTPUT_BYTES_MAX + 2 * len(payload)
    peer.shell.drain()
    assert peer.shell.reading
