from __future__ import annotations

import pytest

from headrace_broker.codecs.event import Acked, Heartbeat
from headrace_broker.gateways.amqp.channel.grouping import group_publishes
from headrace_broker.model.message import Publish


def publish(channel=1, route=b"\x00\x01q", mandatory=False, immediate=False):
    return Publish(channel, route, mandatory, immediate, b"\x00\x00", b"x")


def test_publishes_alike_are_one_step():
    publishes = [publish() for _ in range(3)]
    assert group_publishes(publishes) == [publishes]


@pytest.mark.parametrize(
    "other",
    [
        {"channel": 2},
        {"route": b"\x00\x01r"},
        {"mandatory": True},
        {"immediate": True},
    ],
)
def test_any_difference_begins_another_step(other):
    first, second, third = publish(), publish(**other), publish()
    assert group_publishes([first, second, third]) == [[first], [second], [third]]


def test_what_stands_between_keeps_its_place():
    first, second = publish(), publish()
    beat, ack = Heartbeat(), Acked(1, 1, False)
    steps = group_publishes([first, beat, second, ack])
    assert steps == [[first], beat, [second], ack]


def test_nothing_is_nothing():
    assert group_publishes([]) == []
