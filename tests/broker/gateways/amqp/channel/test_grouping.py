from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.codecs.event import Acked, Heartbeat, Method, Rejected
from headrace_broker.gateways.amqp.channel.grouping import group_events
from headrace_broker.model.message import Publish


def publish(channel=1, route=b"\x00\x01q", mandatory=False, immediate=False):
    return Publish(channel, route, mandatory, immediate, b"\x00\x00", b"x")


def test_publishes_alike_are_one_step():
    publishes = [publish() for _ in range(3)]
    assert group_events(publishes) == [publishes]


@pytest.mark.parametrize(
    "other", [{"channel": 2}, {"route": b"\x00\x01r"}, {"mandatory": True}, {"immediate": True}]
)
def test_any_difference_begins_another_step(other):
    first, second, third = publish(), publish(**other), publish()
    assert group_events([first, second, third]) == [[first], [second], [third]]


def test_what_stands_between_keeps_its_place():
    first, second = publish(), publish()
    beat, ack = Heartbeat(), Acked(1, 1, False)
    steps = group_events([first, beat, second, ack])
    assert steps == [[first], beat, [second], ack]


def test_nothing_is_nothing():
    assert group_events([]) == []


def ack(tag, channel=1, multiple=False):
    return Acked(channel, tag, multiple)


def shown(steps: list[Any]) -> list[Any]:
    """Acknowledgements as channel, first and last tag; lists of publishes as their lengths."""
    return [
        len(step) if isinstance(step, list) else (step.channel, step.first, step.delivery_tag)
        for step in steps
    ]


def test_acks_of_consecutive_tags_are_one_step():
    assert shown(group_events([ack(3), ack(4), ack(5)])) == [(1, 3, 5)]
    assert shown(group_events([ack(3), ack(5), ack(6)])) == [(1, 3, 3), (1, 5, 6)]
    assert shown(group_events([ack(3), ack(2)])) == [(1, 3, 3), (1, 2, 2)]


def test_an_ack_of_all_up_to_a_tag_stands_alone():
    steps = group_events([ack(1), ack(2, multiple=True), ack(3)])
    assert shown(steps) == [(1, 1, 1), (1, 2, 2), (1, 3, 3)]


def test_acks_of_several_channels_gather_each_by_itself():
    events = [ack(1), ack(1, 2), ack(2), publish(3), ack(2, 2), publish(3), ack(3)]
    assert shown(group_events(events)) == [2, (1, 1, 3), (2, 1, 2)]


@pytest.mark.parametrize("between", [publish(), Heartbeat(), Rejected(1, 9, False, True, 0)])
def test_an_ack_stays_behind_what_its_channel_sent_before(between):
    steps: list[Any] = group_events([ack(1), between, ack(2)])
    assert len(steps) == 3
    assert (steps[0].delivery_tag, steps[2].first) == (1, 2)


def test_no_ack_is_handled_before_what_other_channels_sent_before_it():
    fatal = publish(2, immediate=True)
    assert shown(group_events([ack(1), fatal, ack(2)])) == [1, (1, 1, 2)]
    close = Method(0, b"\x00\x0a\x00\x32")
    steps: list[Any] = group_events([ack(1), close, ack(2)])
    assert (shown(steps[:1]), steps[1], shown(steps[2:])) == ([(1, 1, 1)], close, [(1, 2, 2)])


def test_acks_do_not_wait_behind_a_method_of_any_channel():
    method = Method(2, b"\x00\x3c\x00\x46")
    steps: list[Any] = group_events([ack(1), ack(1, 2), ack(2), method, ack(3)])
    assert (shown(steps[:2]), steps[2]) == ([(1, 1, 2), (2, 1, 1)], method)
    assert shown(steps[3:]) == [(1, 3, 3)]


def test_publishes_around_acks_of_another_channel_are_one_step():
    events = [publish(2), ack(1), publish(2), ack(2)]
    assert shown(group_events(events)) == [2, (1, 1, 2)]


def test_the_largest_tag_is_followed_by_none():
    largest = (1 << 63) - 1
    assert len(group_events([ack(largest), ack(0), ack(largest), ack(largest)])) == 4
