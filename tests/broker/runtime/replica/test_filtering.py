"""Consumers with filters: what they get, what they leave, and what looking for it costs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp import commands

from headrace_broker.core.queue.leader_command import encode_configure
from headrace_broker.core.queue.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.settings import QueueSettings
from headrace_broker.model.limits import FILTER_ACQUIRE_MAX, FILTER_STEP_MESSAGES, FILTERS_IDLE_MAX
from headrace_broker.model.message import Publish
from headrace_broker.runtime.filter_argument import encode_filter
from headrace_broker.runtime.port import ACCEPT, RELEASE, Attachment

BOTH = pytest.mark.parametrize("gateway", [1, 2], ids=["same_node", "other_node"])
EU = encode_filter("region = 'eu'")
US = encode_filter({"region": "us"})


class Market:
    """A world whose messages have regions, and the steps that its filters want to make."""

    def __init__(self, world):
        self.world = world
        self.steps: list[Callable[[], None]] = []
        self.retries: list[Callable[[], None]] = []
        for host in world.hosts.values():
            host.filtering.later = self.later
            host.filtering.clock_ns = lambda: 0
        self.configure(QueueSettings())

    def configure(self, settings):
        """Give the queue settings, as its leader does."""
        self.leader.propose(encode_configure(MACHINE_VERSION, settings))
        self.world.settle_down()

    def later(self, step, wait):
        (self.retries if wait else self.steps).append(step)

    @property
    def leader(self):
        return self.world.hosts[self.world.leader]

    @property
    def read(self):
        return self.leader.filtering.messages_read

    def step(self):
        """Make the steps that are due in this turn; return how many there were."""
        due, self.steps = self.steps, []
        for each in due:
            each()
        self.world.settle_down()
        return len(due)

    def run(self):
        """Make steps until none is due; return how many there were."""
        count = 0
        while self.step():
            count += 1
            assert count < 10_000, "filters step without end"
        return count

    def publish(self, session, *texts, priority=None):
        """Publish messages; their bodies begin with their region."""
        publishes = []
        for text in texts:
            region = text.partition(" ")[0]
            block = commands.Basic.Properties(
                headers={"region": region}, priority=priority
            ).marshal()
            publishes.append(Publish(1, b"\x00\x04work", False, False, block, text.encode()))
        session.publish(publishes, None)
        session.flush()
        self.world.settle_down()

    def attach(self, session, consumer, octets, prefetch=100):
        self.world.run(session.attach(consumer, Attachment("c", prefetch, filter_table=octets)))

    def settle(self, session, operation, consumer, first, last):
        session.settle(consumer, operation, first, last)
        session.flush()
        self.world.settle_down()

    def ready(self):
        return [host.machine.ready_count for host in self.world.hosts.values()]


@pytest.fixture
def market(world):
    return Market(world)


def bodies(listener, consumer):
    return [body.decode() for number, _, body, _ in listener.deliveries if number == consumer]


@BOTH
def test_a_filtered_consumer_gets_what_it_wants_and_leaves_the_rest(
    market, world, listener, gateway
):
    session = world.open(gateway, listener)
    market.publish(session, "eu 1", "us 2", "eu 3", "asia 4")
    market.attach(session, 1, EU)
    market.run()
    market.publish(session, "us 5", "eu 6")
    market.run()
    assert bodies(listener, 1) == ["eu 1", "eu 3", "eu 6"]
    assert market.ready() == [3, 3]
    market.attach(session, 2, US)
    market.run()
    assert bodies(listener, 2) == ["us 2", "us 5"]
    world.run(session.attach(3, Attachment("c", 10)))
    assert bodies(listener, 3) == ["asia 4"]
    assert world.hosts[1].machine.digest() == world.hosts[2].machine.digest()


def test_what_is_in_front_is_read_once_and_in_bounded_steps(market, world, listener):
    session = world.open(1, listener)
    crowd = 5 * FILTER_STEP_MESSAGES
    market.publish(session, *[f"us {n}" for n in range(crowd)])
    market.attach(session, 1, EU, prefetch=1)
    read = 0
    while market.step():
        assert market.read - read <= FILTER_STEP_MESSAGES
        read = market.read
    assert market.read == crowd
    for n in range(20):
        market.publish(session, f"eu {n}")
        market.run()
        market.settle(session, ACCEPT, 1, n + 1, n + 1)
        market.run()
    assert len(bodies(listener, 1)) == 20
    assert market.read == crowd + 20


def test_nothing_is_read_and_nothing_steps_without_credit(market, world, listener):
    session = world.open(1, listener)
    market.attach(session, 1, EU, prefetch=1)
    market.publish(session, "eu 1", *[f"eu {n}" for n in range(2, 100)])
    market.run()
    assert market.read == 1
    market.publish(session, "eu 100")
    assert market.run() <= 1  # the look whether anybody has credit
    assert market.read == 1
    market.settle(session, ACCEPT, 1, 1, 1)
    market.run()
    assert bodies(listener, 1) == ["eu 1", "eu 2"]
    assert market.read == 2


def test_messages_that_come_back_behind_the_cursor_are_seen_again(market, world, listener):
    session = world.open(1, listener)
    other = world.open(2, listener)
    market.publish(session, "eu 1", "us 2", "us 3")
    world.run(other.attach(9, Attachment("all", 2)))
    market.attach(session, 1, EU)
    market.run()
    assert bodies(listener, 9) == ["eu 1", "us 2"]
    assert market.read == 1
    world.run(other.cancel(9))
    market.settle(other, RELEASE, 9, 1, 2)
    market.run()
    assert bodies(listener, 1) == ["eu 1"]
    assert market.read == 3
    assert market.ready() == [2, 2]


def test_what_its_own_consumer_gives_back_comes_again(market, world, listener):
    session = world.open(2, listener)
    market.attach(session, 1, EU)
    market.publish(session, "eu 1", "us 2")
    market.run()
    market.settle(session, RELEASE, 1, 1, 1)
    market.run()
    assert listener.deliveries == [(1, 1, b"eu 1", False), (1, 2, b"eu 1", True)]


@BOTH
def test_filters_survive_a_change_of_leader(market, world, listener, gateway):
    session = world.open(gateway, listener)
    market.attach(session, 1, EU)
    market.publish(session, "us 1", "eu 2")
    market.run()
    world.lead(2)
    session.relocate(2)
    world.settle_down()
    market.publish(session, "eu 3", "us 4")
    market.run()
    assert bodies(listener, 1) == ["eu 2", "eu 3"]
    assert world.hosts[2].filtering.messages_read == 3  # "us 1" once more, and the new ones
    assert market.ready() == [2, 2]


def test_an_acquire_that_a_deposed_leader_lost_is_made_good_by_the_next(market, world, listener):
    session = world.open(2, listener)
    market.publish(session, "eu 1")
    market.attach(session, 1, EU)
    due, market.steps[:] = list(market.steps), []
    for each in due:
        each()
    world.lose_uncommitted()
    world.lead(2)
    session.relocate(2)
    world.settle_down()
    market.run()
    assert bodies(listener, 1) == ["eu 1"]


def test_consumers_of_one_filter_share_it(market, world, listener):
    session = world.open(1, listener)
    market.attach(session, 1, EU, prefetch=10)
    market.attach(session, 2, EU, prefetch=10)
    market.publish(session, *[f"eu {n}" for n in range(8)])
    market.run()
    assert (len(bodies(listener, 1)), len(bodies(listener, 2))) == (4, 4)
    assert market.read == 8


def test_what_the_log_has_no_room_for_is_proposed_again(market, world, listener):
    session = world.open(1, listener)
    market.publish(session, "eu 1", "us 2")
    market.attach(session, 1, EU)
    world.busy = True
    market.run()
    assert bodies(listener, 1) == []
    world.busy = False
    assert len(market.retries) == 1
    market.retries.pop()()
    market.run()
    assert market.retries == []
    assert bodies(listener, 1) == ["eu 1"]
    assert market.read == 2


def test_what_somebody_else_took_first_is_not_given_twice(market, world, listener):
    session = world.open(1, listener)
    market.publish(session, "eu 1", "eu 2")
    market.attach(session, 1, EU)
    due, market.steps[:] = list(market.steps), []
    session.settle(1, ACCEPT, 1, 1)
    run = world.open(1, listener)
    taken = world.run(run.get())
    assert taken is not None
    for each in due:
        each()
    world.settle_down()
    market.run()
    assert bodies(listener, 1) == ["eu 2"]
    assert market.leader.machine.unsettled_count == 2


def test_credit_beyond_one_command_is_served_by_several(market, world, listener):
    session = world.open(1, listener)
    count = 2 * FILTER_ACQUIRE_MAX + 5
    market.attach(session, 1, EU, prefetch=count)
    market.publish(session, *[f"eu {n}" for n in range(count)])
    market.run()
    assert bodies(listener, 1) == [f"eu {n}" for n in range(count)]


def test_a_filter_keeps_its_place_while_nobody_wants_it(market, world, listener):
    session = world.open(1, listener)
    market.publish(session, *[f"us {n}" for n in range(50)])
    for consumer in range(1, 5):
        market.attach(session, consumer, EU)
        market.run()
        world.run(session.cancel(consumer))
    assert market.read == 50
    market.publish(session, "eu 1")
    market.attach(session, 9, EU)
    market.run()
    assert bodies(listener, 9) == ["eu 1"]
    assert market.read == 51


def test_places_of_unused_filters_are_bounded(market, world, listener):
    session = world.open(1, listener)
    market.publish(session, "us 1")
    for consumer in range(1, 2 * FILTERS_IDLE_MAX):
        market.attach(session, consumer, encode_filter(f"n = {consumer}"))
        market.run()
        world.run(session.cancel(consumer))
        market.run()
    assert market.leader.filtering.filter_count == FILTERS_IDLE_MAX


def test_removed_messages_are_passed_over(market, world, listener):
    session = world.open(1, listener)
    market.publish(session, "eu 1")
    market.publish(session, "eu 2")
    market.attach(session, 1, EU)
    assert world.run(session.remove([1, 7])) == 1
    market.run()
    assert bodies(listener, 1) == ["eu 2"]


def test_sessions_that_end_take_their_filters_along(market, world, listener):
    session = world.open(2, listener)
    market.attach(session, 1, EU)
    market.publish(session, "eu 1")
    market.run()
    session.close()
    world.settle_down()
    market.run()
    other = world.open(1, listener)
    market.attach(other, 2, EU)
    market.run()
    assert bodies(listener, 2) == ["eu 1"]


def test_higher_priorities_among_what_was_found_come_first(market, world, listener):
    settings = QueueSettings()
    settings.priority_max = 5
    market.configure(settings)
    session = world.open(1, listener)
    market.publish(session, "eu 1", "us 2", "eu 3", priority=1)
    market.publish(session, "eu 4", priority=5)
    market.attach(session, 1, EU, prefetch=3)
    market.run()
    assert bodies(listener, 1) == ["eu 4", "eu 1", "eu 3"]


def test_messages_of_a_group_that_another_consumer_has_wait_for_it(market, world, listener):
    settings = QueueSettings()
    settings.group_key = b"region"
    market.configure(settings)
    session = world.open(1, listener)
    market.attach(session, 1, EU, prefetch=1)
    market.attach(session, 2, EU, prefetch=5)
    market.publish(session, "eu 1", "eu 2", "us 3")
    market.run()
    first, second = bodies(listener, 1), bodies(listener, 2)
    assert sorted(first + second) == (["eu 1"] if first else ["eu 1", "eu 2"])
    world.run(session.cancel(1 if first else 2))
    market.settle(session, RELEASE, 1 if first else 2, 1, 2)
    market.run()
    assert bodies(listener, 2 if first else 1)[0] == "eu 1"


def test_a_filter_of_a_newer_version_gets_nothing_and_is_logged(market, world, listener, caplog):
    session = world.open(1, listener)
    market.publish(session, "eu 1")
    market.attach(session, 1, encode_filter("region ="))
    market.run()
    assert bodies(listener, 1) == []
    assert "gets nothing: character 9" in caplog.text
