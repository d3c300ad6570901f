"""Feeds by session and consumer: dropped ones send nothing."""

from __future__ import annotations

import pytest

from headrace_broker.core.queue.command.command import Cancel, Close, NodeDown
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.model.session import session_id
from headrace_broker.runtime.contract.queue_log import QueueLog
from headrace_broker.runtime.replica.feed import Feed
from headrace_broker.runtime.replica.feeds import Feeds

HERE = session_id(1, 5, 1)
THERE = session_id(2, 5, 1)


class NoLog(QueueLog):
    """A log without readers."""

    def propose(self, data, urgent):
        raise AssertionError

    def entry_at_hand(self, index, done):
        raise AssertionError

    def forget(self, index):
        raise AssertionError

    def leader(self):
        return 1


@pytest.fixture
def feeds():
    return Feeds()


def put(feeds, session, consumer):
    feed = Feed(consumer, 1, NoLog(), QueueMachine())
    feeds.put(session, feed)
    return feed


def test_consumer_that_is_served_anew_is_not_served_by_its_earlier_feed(feeds):
    first, second = put(feeds, HERE, 1), put(feeds, HERE, 1)
    assert (first.ended, second.ended) == (True, False)
    assert feeds.get(HERE, 1) is second


def test_consumer_that_is_dropped_ends_alone(feeds):
    one, two = put(feeds, HERE, 1), put(feeds, HERE, 2)
    feeds.drop(HERE, 1)
    assert (one.ended, two.ended, feeds.count) == (True, False, 1)


def test_all_end_with_the_leadership(feeds):
    served = [put(feeds, HERE, 1), put(feeds, THERE, 1)]
    assert feeds.drop_all() == [HERE, THERE]
    assert all(feed.ended for feed in served)
    assert feeds.is_empty


@pytest.mark.parametrize(
    ("command", "ended"),
    [
        (Close(HERE), (True, False)),
        (Cancel(THERE, 1, 1), (False, True)),
        (NodeDown(2, 9), (False, True)),
        (NodeDown(2, 5), (False, False)),
        (NodeDown(2, 0), (False, False)),
    ],
)
def test_feeds_that_a_command_ends(feeds, command, ended):
    here, there = put(feeds, HERE, 1), put(feeds, THERE, 1)
    feeds.drop_ended(command, QueueMachine())
    assert (here.ended, there.ended) == ended
