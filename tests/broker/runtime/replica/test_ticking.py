"""When the leader of a queue proposes a tick."""

from __future__ import annotations

import pytest

from headrace_broker.core.queue.command.command import STAMP_BYTES, TICK
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.settings import DEAD_LETTER_AT_MOST_ONCE, QueueSettings
from headrace_broker.model.limits import TICK_HELD_MS_MAX, TIMER_STEP_MS
from headrace_broker.runtime.replica.queue_time import QueueTime
from headrace_broker.runtime.replica.ticking import Ticking


@pytest.fixture
def clock(world):
    """The clock of all nodes."""
    return world.clock


@pytest.fixture
def mortal(world, clock):
    """A world whose queue lets messages wait for a second."""
    settings = QueueSettings()
    settings.message_ttl_ms = 1000
    settings.dead_letter = DEAD_LETTER_AT_MOST_ONCE
    world.watcher.version = MACHINE_VERSION
    world.watcher.settings = settings
    world.lead(1)
    world.settle_down()
    return world


def publish(world, listener, bodies):
    session = world.open(1, listener)
    session.publish(bodies, None)
    session.flush()
    world.settle_down()


def ticks(world):
    return sum(1 for entry in world.log if entry.data[STAMP_BYTES] == TICK)


def test_queue_without_a_time_asks_for_no_call(world, clock, listener, publishes):
    publish(world, listener, publishes(b"x"))
    assert world.watcher.due == []


def test_leader_asks_for_a_call_when_the_first_message_expires(mortal, clock, listener, publishes):
    publish(mortal, listener, publishes(b"x"))
    [due] = mortal.watcher.due
    assert 0 <= due - (clock.ms + 1000) < TIMER_STEP_MS
    clock.ms += 300
    publish(mortal, listener, publishes(b"y"))
    assert len(mortal.watcher.due) == 1


def test_call_in_time_has_the_message_expire(mortal, clock, listener, publishes):
    publish(mortal, listener, publishes(b"x"))
    [due] = mortal.watcher.due
    clock.ms = due
    mortal.hosts[2].tick(due)
    mortal.settle_down()
    assert ticks(mortal) == 0  # not the leader
    mortal.hosts[1].tick(due)
    mortal.hosts[1].tick(due)
    mortal.settle_down()
    assert ticks(mortal) == 1
    assert [host.machine.ready_count for host in mortal.hosts.values()] == [0, 0]
    assert [dead_letter.body for dead_letter in mortal.watcher.all_dead_letters] == [b"x"]
    assert len(mortal.watcher.due) == 1


def test_call_too_early_asks_again(mortal, clock, listener, publishes):
    publish(mortal, listener, publishes(b"x"))
    mortal.hosts[1].tick(clock.ms + 10)
    assert ticks(mortal) == 0
    assert len(mortal.watcher.due) == 2


def test_message_that_is_gone_needs_no_tick(mortal, clock, listener, publishes):
    publish(mortal, listener, publishes(b"x"))
    session = mortal.open(1, listener)
    assert mortal.run(session.purge()) == 1
    mortal.hosts[1].tick(clock.ms + 5000)
    assert ticks(mortal) == 0
    assert len(mortal.watcher.due) == 1


def test_refused_tick_is_tried_a_step_later(mortal, clock, listener, publishes):
    publish(mortal, listener, publishes(b"x"))
    clock.ms += 1100
    mortal.busy = True
    mortal.hosts[1].tick(clock.ms)
    assert mortal.watcher.due[-1] == clock.ms + TIMER_STEP_MS
    mortal.busy = False
    mortal.hosts[1].tick(clock.ms + TIMER_STEP_MS)
    mortal.settle_down()
    assert ticks(mortal) == 1
    assert mortal.hosts[1].machine.ready_count == 0


def test_next_leader_asks_for_its_own_call(mortal, clock, listener, publishes):
    publish(mortal, listener, publishes(b"x"))
    mortal.lead(2)
    assert len(mortal.watcher.due) == 2
    clock.ms += 2000
    mortal.hosts[1].tick(clock.ms)
    mortal.hosts[2].tick(clock.ms)
    mortal.settle_down()
    assert ticks(mortal) == 1
    assert [dead_letter.body for dead_letter in mortal.watcher.all_dead_letters] == [b"x"]


def test_ticks_follow_each_other_at_once_while_much_is_due(mortal, clock, listener, publishes):
    count = 60_000
    for start in range(0, count, 5000):
        publish(mortal, listener, publishes(*[b"x"] * min(5000, count - start)))
    clock.ms += 1100
    mortal.hosts[1].tick(clock.ms)
    mortal.settle_down()
    assert mortal.hosts[1].machine.ready_count == 0
    assert ticks(mortal) > 1
    assert len(mortal.watcher.all_dead_letters) == count


def test_ticks_wait_for_dead_letters_but_not_for_ever(mortal, clock, listener, publishes):
    publish(mortal, listener, publishes(b"x"))
    clock.ms += 1100
    mortal.watcher.congested = True
    held = 0
    while ticks(mortal) == 0:
        mortal.hosts[1].tick(clock.ms)
        mortal.settle_down()
        held += 1
        assert mortal.watcher.due[-1] > clock.ms or ticks(mortal)
        clock.ms += TIMER_STEP_MS
    assert held == TICK_HELD_MS_MAX // TIMER_STEP_MS + 1


def test_ticks_of_a_queue_without_dead_letters_wait_for_none(world, clock, listener, publishes):
    settings = QueueSettings()
    settings.message_ttl_ms = 1000
    world.watcher.version = MACHINE_VERSION
    world.watcher.settings = settings
    world.watcher.congested = True
    world.lead(1)
    publish(world, listener, publishes(b"x"))
    clock.ms += 1100
    world.hosts[1].tick(clock.ms)
    world.settle_down()
    assert world.hosts[1].machine.ready_count == 0


def test_congestion_that_ends_begins_anew(world):
    ticking = Ticking(world.queue, world.watcher, QueueTime(world.clock))
    world.watcher.congested = True
    assert not ticking.is_time(1, 1000, True, False)
    world.watcher.congested = False
    assert ticking.is_time(1, 2000, True, False)
    world.watcher.congested = True
    assert not ticking.is_time(1, 1000 + TICK_HELD_MS_MAX, True, False)


def test_get_and_gone_consumers_are_uses(world, clock, listener, publishes):
    host = world.hosts[1]
    world.lead(1)
    assert host.used_ms == clock.ms
    clock.ms += 50
    session = world.open(2, listener)
    world.run(session.get())
    assert host.used_ms == clock.ms
