"""The time of a queue while clocks of its three nodes are set and drift, and its leader changes."""

from __future__ import annotations

from random import Random

import pytest

from headrace_broker.model.limits import (
    ALARM_LEASE_MS,
    CLOCK_NOISE_MS,
    CLOCK_SETTLE_MS,
    CLOCK_SLEW_PARTS,
)
from headrace_broker.runtime.cluster.cluster_clock import ClusterClock
from headrace_broker.runtime.cluster.steady_clock import SteadyClock
from headrace_broker.runtime.replica.queue_time import QueueTime

NOW = 1_700_000_000_000
DAY = 86_400_000
STEP_MS = 500
REPORT_STEPS = 2  # nodes report once a second
DRIFT_PPM = 200
NODES = (1, 2, 3)
# How far the time of a node that is cut off, and of the others, may go apart until that is noticed.
APART_MS = 2 * ALARM_LEASE_MS // CLOCK_SLEW_PARTS
# What nodes may differ by besides: noise that is followed, a round trip's error, each way.
SLACK_MS = 4 * CLOCK_NOISE_MS


class World:
    """Real time, and which links stand."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.true_ms = NOW
        self.cut: set[int] = set()  # nodes that nobody hears


class NodeClock(SteadyClock):
    """Clocks of a machine: the wall clock is wrong as the test says, and both drift."""

    def __init__(self, world: World, error_ms: int, drift_ppm: int) -> None:
        self.world = world
        self.error_ms = error_ms
        self.drift_ppm = drift_ppm
        super().__init__()

    @property
    def _passed_ms(self) -> int:
        passed = self.world.true_ms - NOW
        return passed + passed * self.drift_ppm // 1_000_000

    def unix_ms(self) -> int:
        return NOW + self._passed_ms + self.error_ms

    def boottime_us(self) -> int:
        return (self._passed_ms + 1_000_000) * 1000


class Node:
    """A node with its clock, its view of the others, and its queue's time where it leads."""

    def __init__(self, world: World, number: int, error_ms: int = 0) -> None:
        self.number = number
        self.world = world
        drift = world.rng.randint(-DRIFT_PPM, DRIFT_PPM)
        self.clock = NodeClock(world, error_ms, drift)
        self.cluster = ClusterClock(self.clock, number, dict.fromkeys(NODES, "node"))
        self.time = QueueTime(self.clock)


class Run:
    """A queue on three nodes under faults of clocks, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.rng = self.world.rng
        self.nodes = {number: Node(self.world, number) for number in NODES}
        self.leader = 1
        self.restarted_at = NOW
        self.steps = 0
        self.young_cut_ms = 0  # for which a node was cut off while a process was young
        self.report()
        self.report()
        self.nodes[1].time.begin(0)
        self.begun = self.stamp = int(self.nodes[1].time.stamp())

    def report(self) -> None:
        """Let every node that is heard tell the others its clocks."""
        for source in NODES:
            for target in NODES:
                if source != target and not {source, target} & self.world.cut:
                    reading = self.nodes[source].cluster.reading(target)
                    self.nodes[target].cluster.receive(source, reading)

    def step(self) -> None:
        """Let half a second pass, and maybe something go wrong."""
        self.steps += 1
        self.world.true_ms += STEP_MS
        young = self.world.true_ms - self.restarted_at <= CLOCK_SETTLE_MS
        self.young_cut_ms += STEP_MS if self.world.cut and young else 0
        for node in self.nodes.values():
            node.cluster.poll()
        if self.steps % REPORT_STEPS == 0:
            self.report()
        if self.rng.random() < 0.1:
            self._disturb()
        stamp = int(self.nodes[self.leader].time.stamp())
        assert stamp >= self.stamp, "the queue's time went back"
        self.stamp = stamp

    def _disturb(self) -> None:
        rng = self.rng
        node = rng.choice(list(self.nodes.values()))
        kind = rng.random()
        if kind < 0.3:
            node.clock.error_ms = rng.choice((1, -1)) * rng.choice((300, 5000, 600_000, DAY))
        elif kind < 0.4:
            error = rng.choice((-DAY, -5000, 5000, DAY))
            for each in self.nodes.values():  # the source of all their clocks went wrong
                each.clock.error_ms = error
        elif kind < 0.6:
            node.clock.error_ms = 0
        elif kind < 0.7:
            self.world.cut = {node.number} if self.world.cut == set() else set()
            if self.leader in self.world.cut:  # from now on it commits no stamp
                self._lead(rng.choice([each for each in NODES if each != self.leader]))
            for each in self.nodes.values():
                for peer in NODES:
                    each.cluster.peer_up(peer)
            self.report()
            self.report()
        elif kind < 0.8:
            self._restart(node.number)
        else:
            self._lead(node.number)

    def _restart(self, number: int) -> None:
        """Start a node's process anew, one at a time, and not before the last one has settled."""
        settled = self.world.true_ms - self.restarted_at > 2 * CLOCK_SETTLE_MS
        if number == self.leader or self.world.cut or not settled:
            return
        error = self.nodes[number].clock.error_ms
        self.nodes[number] = Node(self.world, number, error)
        for each in self.nodes.values():
            each.cluster.peer_up(number)
        self.restarted_at = self.world.true_ms
        self.report()
        self.report()

    def _lead(self, number: int) -> None:
        """Change the leader to a node that reaches a majority."""
        if number not in self.world.cut:
            before = self.nodes[self.leader].clock.queue_ms()
            jump = int(self.nodes[number].clock.queue_ms()) - max(int(before), self.stamp)
            assert jump <= self.apart_ms + SLACK_MS
            self.leader = number
            self.nodes[number].time.begin(self.stamp)

    @property
    def apart_ms(self) -> int:
        """Return the allowed difference of a node from the others.

        After a cut it stays so as long as too few of them are settled.
        """
        return APART_MS + self.young_cut_ms // CLOCK_SLEW_PARTS

    @property
    def elapsed_ms(self) -> int:
        """Real time since the queue began."""
        return self.world.true_ms - NOW


def longest(ms: int) -> int:
    """Return how far a queue's time may go on in a real time."""
    return ms + ms // CLOCK_SLEW_PARTS + ms * DRIFT_PPM // 1_000_000 + SLACK_MS


@pytest.mark.parametrize("seed", range(12))
def test_time_of_a_queue_goes_on_and_never_faster_than_it_may(seed):
    run = Run(seed)
    for _ in range(60):
        before, ms = run.stamp, run.elapsed_ms
        for _ in range(20):
            run.step()
            assert run.stamp - run.begun <= longest(run.elapsed_ms)
        assert run.stamp - before >= (run.elapsed_ms - ms) // 2 - SLACK_MS, "it stands still"


@pytest.mark.parametrize("seed", range(12))
def test_message_expires_neither_early_nor_never(seed):
    run = Run(1000 + seed)
    rng = Random(seed)
    waiting: list[tuple[int, int, int]] = []  # TTL, real time and stamp when it was published
    expired = 0
    for _ in range(1200):
        if rng.random() < 0.05:
            waiting.append((rng.choice((1000, 30_000, 300_000)), run.elapsed_ms, run.stamp))
        run.step()
        for message in list(waiting):
            ttl, published, stamp = message
            real = run.elapsed_ms - published
            if run.stamp - stamp >= ttl:
                waiting.remove(message)
                expired += 1
                assert longest(real) + run.apart_ms >= ttl, (
                    f"a TTL of {ttl} ms ended after {real} ms"
                )
            else:
                assert real <= 2 * (ttl + SLACK_MS) + STEP_MS, f"{ttl} ms are not over in {real} ms"
    assert expired > 10
