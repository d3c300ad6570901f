"""Clients that do anything: only protocol errors come of it, and no message is lost or doubled."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pamqp import commands

from headrace_broker.codecs.method import encode_method
from headrace_broker.model.reply_code import INTERNAL_ERROR
from headrace_broker.runtime.contract.port import ACCEPT, REJECT

QUEUES = ("a", "b", "c")
names = st.sampled_from([*QUEUES * 5, "", "nope"])
flags = st.booleans()
consumer_tags = st.sampled_from(["", "x", "y"])
tags = st.sampled_from([1] * 6 + [2, 3, 4, 9])


def built(method: Any, **arguments: st.SearchStrategy) -> st.SearchStrategy:
    return st.builds(method, **arguments)


METHODS = st.one_of(
    st.just(commands.Channel.Close(200, "", 0, 0)),
    built(commands.Channel.CloseOk),
    built(commands.Channel.Flow, active=flags),
    built(commands.Queue.Declare, queue=names, passive=flags, exclusive=flags, nowait=flags),
    built(commands.Queue.Bind, queue=names, exchange=st.just("amq.fanout"), nowait=flags),
    built(commands.Queue.Purge, queue=names, nowait=flags),
    built(commands.Queue.Delete, queue=names, if_unused=flags, if_empty=flags),
    built(commands.Basic.Qos, prefetch_count=st.integers(0, 3), global_=flags),
    built(commands.Basic.Consume, queue=names, consumer_tag=consumer_tags, no_ack=flags),
    built(commands.Basic.Cancel, consumer_tag=consumer_tags, nowait=flags),
    built(commands.Basic.Get, queue=names, no_ack=flags),
    built(commands.Basic.Recover, requeue=st.just(True)),
    built(commands.Confirm.Select, nowait=flags),
)
SETTLES = st.one_of(
    built(commands.Basic.Ack, delivery_tag=tags, multiple=flags),
    built(commands.Basic.Nack, delivery_tag=tags, multiple=flags, requeue=flags),
    built(commands.Basic.Reject, delivery_tag=tags, requeue=flags),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("method"), st.integers(1, 2), METHODS),
        st.tuples(st.just("open"), st.integers(1, 2), flags),
        st.tuples(st.just("settle"), st.integers(1, 2), SETTLES),
        st.tuples(st.just("settle"), st.integers(1, 2), SETTLES),
        st.tuples(st.just("publish"), st.integers(1, 2), st.sampled_from([*QUEUES, "fan"])),
        st.tuples(st.just("turn"), st.just(0), st.none()),
        st.tuples(st.just("publish"), st.integers(1, 2), st.sampled_from([*QUEUES, "fan"])),
        st.tuples(st.just("turn"), st.just(0), st.none()),
        st.tuples(st.just("gate"), st.just(0), flags),
        st.tuples(st.just("stuck"), st.just(0), flags),
        st.tuples(st.just("delete"), st.just(0), st.sampled_from(QUEUES)),
    ),
    max_size=60,
)


def apply(kit: Any, broker: Any, peer: Any, step: tuple[str, int, Any]) -> None:
    kind, channel, value = step
    if kind == "method":
        peer.feed(encode_method(channel, value))
    elif kind == "settle":
        found = peer.connection.channels.find(channel)
        if found is not None and found.deliveries.unsettled.count:
            oldest = found.deliveries.unsettled.oldest
            value.delivery_tag = max(0, oldest + value.delivery_tag - 1)
            peer.feed(encode_method(channel, value))
    elif kind == "open":
        heal(peer, channel, value)
    elif kind == "publish":
        exchange, key = ("amq.fanout", "") if value == "fan" else ("", value)
        peer.feed(kit.publish(channel, exchange, key, b"x" * 10, mandatory=True))
    elif kind == "turn":
        check(peer.turn())
    elif kind == "gate":
        broker.gate.opened = value
    elif kind == "stuck":
        if value:
            peer.shell.stuck = True
        else:
            peer.shell.drain()
    elif value in broker.queues:
        broker.remove_queue(value)


def heal(peer: Any, number: int, even_so: bool) -> None:
    """Open a channel again, now and then though it is open."""
    channel = peer.connection.channels.find(number)
    if channel is not None and not channel.is_open:
        peer.feed(encode_method(number, commands.Channel.CloseOk()))
    if channel is None or not channel.is_open or (even_so and number == 2):
        peer.feed(encode_method(number, commands.Channel.Open()))


def check(frames: list[tuple[int, Any]]) -> None:
    closes = [value for _, value in frames if value.name == "Connection.Close"]
    assert all(close.reply_code != INTERNAL_ERROR for close in closes)


@given(steps=STEPS)
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_methods_gives_protocol_errors_only(
    kit: Any, new_broker: Any, caplog: pytest.LogCaptureFixture, steps: list
) -> None:
    caplog.clear()
    broker = new_broker()
    queues = [broker.add_queue(name) for name in QUEUES]
    peer = kit.Peer(broker, 1).open(channels=2, consumer_cancel_notify=True)
    for step in steps:
        apply(kit, broker, peer, step)
    broker.gate.opened = True
    peer.shell.drain()
    check(peer.turn())
    peer.connection.lost()
    peer.turn()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert peer.shell.operations == []
    assert broker.connections == {}
    for client in broker.clients:
        assert client.closed
        assert client.unsettled == {}
    for queue in queues:
        settled = [number for operation, number in queue.settled if operation in (ACCEPT, REJECT)]
        ready = [message.number for message in queue.ready]
        purged = queue.purged
        assert sorted([*settled, *ready, *purged]) == list(range(1, queue.next_message))


@given(data=st.binary(max_size=200), opened=flags)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_protocol_errors_only(
    kit: Any, new_broker: Any, caplog: pytest.LogCaptureFixture, data: bytes, opened: bool
) -> None:
    caplog.clear()
    peer = kit.Peer(new_broker(), 1)
    if opened:
        peer.open()
    peer.feed(data)
    written = bytes(peer.shell.written)
    if written != kit.HEADER:
        check(peer.turn())
    peer.connection.lost()
    peer.turn()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
