"""Clock skew between nodes, measured by reports that take their time."""

from __future__ import annotations

import logging
from functools import partial

import msgspec
import pytest

from headrace_broker.flow.alarm import STAGE_PAGING
from headrace_broker.model.limits import (
    ALARM_LEASE_MS,
    ALARM_RENEW_MS,
    CLOCK_ROUND_MS_MAX,
    CLOCK_SKEW_MS_MAX,
)
from headrace_broker.runtime.alarm.alarm_watch import CLEAR, CLOCK, AlarmWatch
from headrace_broker.runtime.alarm.alarms import AlarmBoard, AlarmReport
from headrace_broker.runtime.cluster.cluster_clock import ClusterClock
from headrace_broker.runtime.cluster.steady_clock import SteadyClock

NOW = 1_700_000_000_000
NAMES = {1: "n1", 2: "n2", 3: "n3"}


class NodeClock(SteadyClock):
    """A node's clock on a machine that was started at a time of its own."""

    def __init__(self, world: World, node: int) -> None:
        self.world = world
        self.booted_ms = 1000 * node
        self.error_ms = 0
        super().__init__()

    def unix_ms(self) -> int:
        return NOW + self.world.ms + self.error_ms

    def boottime_us(self) -> int:
        return (self.world.ms + self.booted_ms) * 1000


class World:
    """Three nodes whose reports take `delay_ms`."""

    def __init__(self, measured: int = 3) -> None:
        self.ms = 0
        self.delay_ms = 5
        self.cut: set[int] = set()
        self.lost: set[int] = set()
        self.wire: list[tuple[int, int, int, bytes]] = []
        self.clocks = {node: NodeClock(self, node) for node in NAMES}
        self.measures = {node: ClusterClock(self.clocks[node], node, NAMES) for node in NAMES}
        self.boards = {
            node: AlarmBoard(
                node,
                NAMES,
                lambda: 1,
                partial(self.send, node),
                lambda: self.ms * 1_000_000,
                self.measures[node] if node <= measured else None,
            )
            for node in NAMES
        }

    def send(self, source: int, target: int, payload: bytes) -> bool:
        if {source, target} & self.cut:
            return False
        self.wire.append((self.ms + self.delay_ms, source, target, payload))
        return True

    def connect(self) -> None:
        """Bring all links up."""
        for node, board in self.boards.items():
            for peer in NAMES:
                if peer != node:
                    board.peer_up(peer)
        self.carry(10 * self.delay_ms)

    def carry(self, ms: int) -> None:
        """Let time pass and payloads arrive."""
        for _ in range(ms):
            self.ms += 1
            due = [each for each in self.wire if each[0] <= self.ms]
            self.wire = [each for each in self.wire if each[0] > self.ms]
            for _, source, target, payload in due:
                self.boards[target].receive(
                    source, msgspec.msgpack.decode(payload, type=AlarmReport)
                )

    def run(self, rounds: int) -> None:
        """Let the nodes report so often."""
        for _ in range(rounds):
            for node, board in self.boards.items():
                for peer in NAMES:
                    if peer != node:
                        board._report(peer)
                self.measures[node].poll()
            self.carry(ALARM_RENEW_MS)


@pytest.fixture
def world():
    """Three nodes that are not connected yet."""
    return World()


def test_new_links_are_measured_before_anybody_reports_again(world):
    world.clocks[3].error_ms = 7000
    world.connect()
    status = world.measures[1].status(3)
    assert status.skew_ms == pytest.approx(7000, abs=status.bound_ms + 1)
    assert status.bound_ms == world.delay_ms + 1
    assert world.measures[1].status(1).skew_ms == 0
    assert world.clocks[3].queue_ms() == pytest.approx(NOW + world.ms, abs=10)
    assert not world.wire


def test_skew_is_not_known_of_a_node_that_does_not_measure():
    world = World(measured=2)
    world.connect()
    world.run(3)
    measured = world.measures[1].status(2)
    assert measured is not None
    assert measured.skew_ms == pytest.approx(0, abs=world.delay_ms + 1)
    assert world.measures[1].status(3) is None


def test_slow_round_trip_measures_nothing(world):
    world.delay_ms = CLOCK_ROUND_MS_MAX
    world.connect()
    world.run(5)
    assert world.measures[1].status(2) is None


def test_wrong_clock_is_warned_of_until_it_is_right(world, caplog):
    caplog.set_level(logging.WARNING)
    world.connect()
    world.run(2)
    assert [dict(each.warnings) for each in world.measures.values()] == [{}, {}, {}]
    world.clocks[2].error_ms = 60_000
    world.run(3)
    for measure in world.measures.values():
        assert list(measure.warnings) == [2]
        assert "the clock of node n2 is 60.0 s ahead of the cluster's" in measure.warnings[2]
    assert len(caplog.records) == 3
    assert not any(board.blocked.now.is_on or board.listing() for board in world.boards.values())
    world.clocks[2].error_ms = CLOCK_SKEW_MS_MAX - 100
    world.run(3)
    assert list(world.measures[1].warnings) == [2]
    world.clocks[2].error_ms = 0
    world.run(3)
    assert [dict(each.warnings) for each in world.measures.values()] == [{}, {}, {}]
    assert "right again" in caplog.text


def test_queues_behind_clocks_that_were_set_are_warned_of(world):
    world.connect()
    world.run(2)
    for clock in world.clocks.values():
        clock.error_ms = 3_600_000
    world.run(3)
    warning = world.measures[1].warnings[1]
    assert "the time of the queues that node n1 leads is 3599." in warning
    assert "behind the clocks" in warning
    assert sorted(world.measures[1].warnings) == [1, 2, 3]


def test_node_that_is_not_heard_is_not_warned_of(world):
    world.connect()
    world.clocks[2].error_ms = 60_000
    world.run(2)
    assert list(world.measures[1].warnings) == [2]
    world.cut = {2}
    world.run(ALARM_LEASE_MS // ALARM_RENEW_MS + 2)
    assert dict(world.measures[1].warnings) == {}


def test_watch_shows_warnings_as_no_alarm(world):
    world.connect()
    watch = AlarmWatch(world.boards[1], NAMES.__getitem__, lambda: 5)
    news = watch.news
    world.clocks[2].error_ms = 60_000
    world.run(2)
    blocked = world.boards[1].blocked
    blocked.change(blocked.now)
    assert news.is_set()
    [found] = watch.alarms_on().values()
    assert (found.node, found.resource, found.stage) == ("n2", CLOCK, STAGE_PAGING)
    assert found.since_ms == 5
    assert watch.clear(("n2", CLOCK)).stage == CLEAR
