"""Consumers with filters: what they get, what they leave, and what looking for it costs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands

from headrace_broker.core.queue.command.leader_command import encode_configure
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.settings import QueueSettings
from headrace_broker.model.limits import (
    FILTER_ACQUIRE_MAX,
    FILTER_SHARE_MESSAGES,
    FILTER_STEP_MESSAGES,
    FILTER_STEP_MS,
    FILTER_STEPS_OF_MESSAGE,
    FILTERS_IDLE_MAX,
)
from headrace_broker.model.message import Publish
from headrace_broker.runtime.contract.port import ACCEPT, RELEASE, Attachment
from headrace_broker.runtime.replica.filter_argument import decode_filter, encode_filter
from headrace_broker.runtime.replica.filtering import FilterTurns

BOTH = pytest.mark.parametrize("gateway", [1, 2], ids=["same_node", "other_node"])
EU = encode_filter("region = 'eu'")
US = encode_filter({"region": "us"})


class Market:
    """A world whose messages have regions, and the steps that its filters want to make."""

    def __init__(self, world):
        self.world = world
        self.steps: list[Callable[[], None]] = []
        self.retries: list[Callable[[], None]] = []
        self.session: Any = None
        for host in world.hosts.values():
            host.filtering.turns.later = self.later
            host.filtering.turns.clock_ns = lambda: 0
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

    def attach(self, session, consumer, byte_count, prefetch=100):
        self.world.run(session.attach(consumer, Attachment("c", prefetch, filter_table=byte_count)))

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
    assert len(market.leader.filtering._cursors) == FILTERS_IDLE_MAX


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
    assert "gets no messages, its filter is invalid: character 9" in caplog.text


def test_filters_look_on_where_a_slow_disk_has_let_them(market, world, listener):
    session = world.open(1, listener)
    for text in ("us 1", "eu 2", "us 3", "eu 4"):
        market.publish(session, text)  # each an entry of its own
    world.disk_is_slow = True
    market.attach(session, 1, EU)
    market.attach(session, 2, US)
    assert market.run() < 10  # nobody steps while there is nothing to see
    assert market.read == 0
    assert len(world.reading) == 1
    world.read_all()
    market.run()
    assert (bodies(listener, 1), bodies(listener, 2)) == (["eu 2", "eu 4"], ["us 1", "us 3"])


def test_what_came_back_and_is_on_the_disk_waits_for_its_turn(market, world, listener):
    session = world.open(1, listener)
    market.publish(session, "eu 1")
    market.publish(session, "us 2")
    market.attach(session, 1, EU, prefetch=1)
    market.run()
    world.disk_is_slow = True
    market.settle(session, RELEASE, 1, 1, 1)
    market.run()
    assert bodies(listener, 1) == ["eu 1"]
    world.read_all()
    market.run()
    assert bodies(listener, 1) == ["eu 1", "eu 1"]


def test_nothing_is_read_for_filters_of_a_queue_that_is_led_elsewhere(market, world, listener):
    session = world.open(1, listener)
    market.publish(session, "eu 1")
    world.disk_is_slow = True
    market.attach(session, 1, EU)
    market.run()
    assert [len(waiting) for waiting in world.reading.values()] == [1]
    world.lead(2)
    assert [len(waiting) for waiting in world.reading.values()] == [0]


class Node:
    """Some queues of one node whose filters share their turns."""

    def __init__(self, make_world, make_listener, count):
        self.turns = FilterTurns()
        self.turns.later = lambda step, wait: self.due.append(step)
        self.turns.clock_ns = lambda: self.now_ns
        self.now_ns = 0
        self.due = []
        self.markets = []
        for _ in range(count):
            world = make_world()
            market = Market(world)
            market.leader.filtering.turns = self.turns
            market.session = world.open(1, make_listener())
            self.markets.append(market)

    def turn(self):
        """Make the turn that is due; return how many messages each queue put to its filters."""
        before = [market.read for market in self.markets]
        [step], self.due = self.due, []
        step()
        for market in self.markets:
            market.world.settle_down()
        return [market.read - read for market, read in zip(self.markets, before, strict=True)]


def test_queues_share_the_budget_of_a_turn(make_world, make_listener):
    node = Node(make_world, make_listener, 3)
    for market in node.markets:
        market.publish(market.session, *["us"] * FILTER_STEP_MESSAGES)
        market.attach(market.session, 1, EU)
    turns = []
    while node.due:
        turns.append(node.turn())
    assert turns[0] == [FILTER_STEP_MESSAGES // 3] * 3
    assert all(sum(each) <= FILTER_STEP_MESSAGES for each in turns)
    assert [market.read for market in node.markets] == [FILTER_STEP_MESSAGES] * 3
    assert len(turns) <= 5


def test_many_queues_take_turns(make_world, make_listener):
    count = FILTER_STEP_MESSAGES // FILTER_SHARE_MESSAGES + 2
    node = Node(make_world, make_listener, count)
    for market in node.markets:
        market.publish(market.session, *["us"] * (2 * FILTER_SHARE_MESSAGES))
        market.attach(market.session, 1, EU)
    first, second = node.turn(), node.turn()
    assert first == [FILTER_SHARE_MESSAGES] * (count - 2) + [0, 0]
    assert second == [FILTER_SHARE_MESSAGES] * (count - 4) + [0, 0] + [FILTER_SHARE_MESSAGES] * 2


def test_a_costly_filter_pays_with_the_turns_that_follow(make_world, make_listener):
    """One message may take milliseconds: then the loop is for others until that is made good."""
    node = Node(make_world, make_listener, 3)
    costly = encode_filter(" OR ".join(["h LIKE '%__b%'"] * 200))
    block = commands.Basic.Properties(headers={"h": "a" * 8191}).marshal()
    filter_ = decode_filter(costly)
    filter_.matches(len(block).to_bytes(4, "big") + block, 0)
    cost = 1 + filter_.work // FILTER_STEPS_OF_MESSAGE
    assert cost > FILTER_STEP_MESSAGES
    for market in node.markets:
        publish = Publish(1, b"\x00\x04work", False, False, block, b"x")
        market.session.publish([publish] * 5, None)
        market.session.flush()
        market.world.settle_down()
        market.attach(market.session, 1, costly)
    turns = []
    while node.due:
        turns.append(node.turn())
    assert all(sum(each) <= 1 for each in turns)
    assert len(turns) >= 14 * cost // FILTER_STEP_MESSAGES
    served = [each.index(1) for each in turns if sum(each)]
    assert served == [0, 1, 2] * 5


def test_time_that_is_over_ends_the_turn_for_all_queues(make_world, make_listener):
    node = Node(make_world, make_listener, 2)
    for market in node.markets:
        market.publish(market.session, *["us"] * 50)
        market.attach(market.session, 1, EU)
    ticks = itertools.count()
    node.turns.clock_ns = lambda: next(ticks) * FILTER_STEP_MS * 1_000_000 // 20
    first, second = node.turn(), node.turn()
    assert 0 < first[0] < 20
    assert first[1] == 0
    assert 0 < second[1] < 20
    assert second[0] == 0
    while node.due:
        node.turn()
    assert [market.read for market in node.markets] == [50, 50]
