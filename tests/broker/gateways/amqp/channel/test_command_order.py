"""Order of waiting inputs: which overtake which, method by method."""

from __future__ import annotations

import pytest
from pamqp import base, commands

from headrace_broker.codecs.event import Acked, ContentTooLarge, Method, Rejected
from headrace_broker.codecs.frame import BASIC_NACK
from headrace_broker.gateways.amqp.channel.channel_port import Input
from headrace_broker.gateways.amqp.channel.command_order import order_of, unwrap, wrap
from headrace_broker.gateways.publishing.command import (
    BARRIER,
    ORDERED,
    OVERTAKES_ALL,
    OVERTAKES_PUBLISHES,
    Command,
)


def method(command: type[base.Frame]) -> Method:
    return Method(1, command.index.to_bytes(4, "big") + b"rest")


@pytest.mark.parametrize(
    ("event", "order"),
    [
        (Acked(1, 7, False), OVERTAKES_ALL),
        (Rejected(1, 7, False, True, BASIC_NACK), OVERTAKES_ALL),
        (method(commands.Basic.Recover), OVERTAKES_ALL),
        (method(commands.Channel.Flow), OVERTAKES_ALL),
        (method(commands.Basic.Cancel), OVERTAKES_PUBLISHES),
        (method(commands.Basic.Qos), OVERTAKES_PUBLISHES),
        (ContentTooLarge(1, 9), ORDERED),
        (method(commands.Basic.Consume), ORDERED),
        (method(commands.Queue.Declare), ORDERED),
        (method(commands.Channel.Close), BARRIER),
        (method(commands.Tx.Select), BARRIER),
        (method(commands.Tx.Commit), BARRIER),
        (method(commands.Tx.Rollback), BARRIER),
    ],
)
def test_order_of_an_input(event: Input, order: int) -> None:
    assert order_of(event) == order


def test_publishes_wait_as_they_are() -> None:
    assert wrap([]) == []
    assert unwrap([]) == []


@pytest.mark.parametrize(
    ("command", "closes"), [(commands.Channel.Close, True), (commands.Tx.Commit, False)]
)
def test_method_waits_with_its_bytes_and_comes_back_as_it_was(
    command: type[base.Frame], closes: bool
) -> None:
    event = method(command)
    waiting = wrap(event)
    assert isinstance(waiting, Command)
    assert (waiting.byte_count, waiting.closes) == (8, closes)
    assert unwrap(waiting) is event
