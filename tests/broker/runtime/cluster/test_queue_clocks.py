"""Messages of a queue whose nodes' wall clocks are set."""

from __future__ import annotations

import pytest

from headrace_broker.core.queue.command.command import stamp_command
from headrace_broker.core.queue.command.leader_command import encode_tick
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.settings import QueueSettings
from headrace_broker.model.limits import CLOCK_SLEW_PARTS, TIMER_STEP_MS
from headrace_broker.runtime.cluster.steady_clock import SteadyClock
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry

NOW = 1_700_000_000_000
DAY = 86_400_000
HOUR = 3_600_000


class NodeClock(SteadyClock):
    """A node's clock, whose wall clock the test sets."""

    def __init__(self, error_ms: int = 0) -> None:
        self.passed_ms = 0
        self.error_ms = error_ms
        super().__init__()

    def unix_ms(self) -> int:
        return NOW + self.passed_ms + self.error_ms

    def boottime_us(self) -> int:
        return self.passed_ms * 1000


class Nodes:
    """Two nodes with a queue, whose clocks and timers run."""

    def __init__(self, make_world, listener, publishes, error_ms: int = 0) -> None:
        self.clocks = {node: NodeClock(error_ms) for node in (1, 2)}
        self.world = make_world(self.clocks)
        self.world.watcher.version = MACHINE_VERSION
        self.settings = self.world.watcher.settings = QueueSettings()
        self.listener = listener
        self.publishes = publishes

    def publish(self, ttl_ms: int) -> None:
        """Publish a message to the queue, in which messages wait for so long at most."""
        self.settings.message_ttl_ms = ttl_ms
        self.world.lead(self.world.leader)
        session = self.world.open(self.world.leader, self.listener)
        session.publish(self.publishes(b"x"), None)
        session.flush()
        self.world.settle_down()

    def set_clocks(self, error_ms: int) -> None:
        """Set the wall clocks of all nodes."""
        for clock in self.clocks.values():
            clock.error_ms = error_ms

    def run(self, ms: int) -> None:
        """Let so much time pass, and ticks be proposed when they were asked for."""
        for _ in range(0, ms, TIMER_STEP_MS):
            for clock in self.clocks.values():
                clock.passed_ms += TIMER_STEP_MS
                clock.queue_ms()
            self.call()

    def call(self) -> None:
        """Call the leader for due work."""
        leader = self.world.leader
        now = int(self.clocks[leader].queue_ms())
        due = self.world.watcher.due
        if any(each <= now for each in due):
            due[:] = [each for each in due if each > now]
            self.world.hosts[leader].tick(now)
        self.world.settle_down()

    @property
    def ready(self) -> int:
        """Return the number of ready messages."""
        return int(self.world.hosts[1].machine.ready_count)


@pytest.fixture
def nodes(make_world, listener, publishes):
    """Nodes whose clocks are right."""
    return Nodes(make_world, listener, publishes)


def wait(nodes, ms):
    """Return after how much time the message goes, at most `ms`."""
    passed = 0
    while nodes.ready and passed < ms:
        nodes.run(TIMER_STEP_MS)
        passed += TIMER_STEP_MS
    return passed


def test_time_to_live_is_that_long_while_clocks_are_right(nodes):
    nodes.publish(5000)
    assert wait(nodes, 10_000) == 5000


def test_clocks_that_are_ahead_for_seconds_end_a_time_to_live_neither_early_nor_late(nodes):
    nodes.publish(5000)
    nodes.run(500)
    nodes.set_clocks(600_000)
    nodes.run(4000)
    assert nodes.ready == 1
    nodes.set_clocks(0)
    assert 4500 + wait(nodes, 700_000) == pytest.approx(5000, abs=5000 // CLOCK_SLEW_PARTS + 100)
    nodes.publish(5000)
    assert wait(nodes, 700_000) == pytest.approx(5000, abs=5000 // CLOCK_SLEW_PARTS + 100)


def test_tick_while_the_clock_is_a_day_ahead_expires_nothing(nodes):
    nodes.publish(HOUR)
    nodes.set_clocks(DAY)
    nodes.run(100)
    nodes.world.hosts[1].propose(encode_tick())
    nodes.world.settle_down()
    nodes.set_clocks(0)
    nodes.run(1000)
    assert nodes.ready == 1


def test_next_leader_whose_clock_is_behind_keeps_time(nodes):
    nodes.publish(5000)
    nodes.run(1000)
    nodes.clocks[2].error_ms = -DAY
    nodes.run(1000)
    nodes.world.lead(2)
    assert 2000 + wait(nodes, 60_000) == pytest.approx(5000, abs=5000 // CLOCK_SLEW_PARTS + 100)


def test_next_leader_whose_clock_is_ahead_expires_nothing_early(nodes):
    nodes.publish(HOUR)
    nodes.clocks[2].error_ms = DAY
    nodes.run(1000)
    nodes.world.lead(2)
    nodes.run(10_000)
    assert nodes.ready == 1


def test_stamp_a_day_ahead_in_the_log_slows_time_and_stops_it_not(nodes):
    world = nodes.world
    world.lead(1)
    world.settle_down()
    ahead = stamp_command(NOW + DAY, encode_tick())
    world.log.append(Entry(len(world.log) + 1, 1, ENTRY_NORMAL, ahead))
    world.settle_down()
    nodes.publish(5000)
    assert wait(nodes, 60_000) == 10_000
    nodes.publish(5000)
    assert wait(nodes, 60_000) == 10_000


def test_cluster_that_was_stopped_for_an_hour_has_aged_by_that(make_world, listener, publishes):
    before = Nodes(make_world, listener, publishes)
    before.publish(HOUR)
    state, _ = before.world.hosts[1].snapshot()
    after = Nodes(make_world, listener, publishes, HOUR)  # other boots, an hour later
    after.settings.message_ttl_ms = HOUR
    after.world.hosts[1].leadership(0, 1, False)
    after.world.hosts[1].restore(state)
    assert after.ready == 1
    after.world.lead(1)
    after.run(100)
    assert after.ready == 0
