"""The loads of the overload benchmark, and what each is judged by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from peers import node_processes

from headrace_broker.model import limits
from pressure.generator import (
    MESSAGE_OVERHEAD_BYTES,
    Group,
    GroupFigures,
    Times,
    load,
    median_figures,
)
from pressure.goals import Measure, share_of_bound
from pressure.memory import PeakMemory, node_bytes

MIB: Final = 1 << 20
MEMORY_BYTES: Final = 1 << 30  # the watermark in all cases but (f): none of them should need it
SCARCE_BYTES: Final = 64 * MIB  # of (f), above what an idle node has: each broker needs its own
RATIO_MIN: Final = 0.9  # received by published, and by the best of several
MEMORY_RATIO_MAX: Final = 1.1  # peak by watermark
PASSES: Final = 3  # over loads that are compared with each other: rates of a machine drift
PASS_SECONDS_MIN: Final = 4  # measured in each load of a pass
REFILL_SECONDS: Final = 10  # in which the queue of (e) falls to its low watermark and fills again


class Broker(Protocol):
    """A cluster that can be loaded."""

    ports: list[int]

    def pids(self) -> list[int]:
        """Return the processes of its nodes."""

    def limit_memory(self, byte_count: int) -> None:
        """Set the memory watermark of all nodes."""


class Outcome(NamedTuple):
    """Result of a load: the figures of its groups, and a node's peak memory."""

    groups: dict[str, GroupFigures]
    memory: int
    ended: int

    @property
    def disconnected(self) -> int:
        """Connections that ended before they should, or never began."""
        return sum(each.disconnected + each.refused for each in self.groups.values())


class Loader:
    """Loads one cluster and notes what holds in all cases.

    Attributes:
        case: letter of the case that runs.
        measures: of that case.
    """

    def __init__(self, program: Path, broker: Broker, seconds: int) -> None:
        self.broker = broker
        self.times = Times(3, seconds, 3)
        self.case = ""
        self.measures: list[Measure] = []
        self._program = program
        self._memory = 0
        self._disconnected = 0

    def run(self, groups: Sequence[Group], times: Times | None = None) -> Outcome:
        """Load the cluster once."""
        with PeakMemory(self.broker.pids()) as peak:
            figures = load(self._program, self.broker.ports, groups, times or self.times)
        outcome = Outcome(figures, peak.most, len(peak.ended))
        self._memory = max(self._memory, outcome.memory)
        self._disconnected += outcome.disconnected + outcome.ended
        return outcome

    def note(
        self,
        name: str,
        value: float,
        least: float | None = None,
        most: float | None = None,
        digits: int = 0,
    ) -> None:
        """Add a measure."""
        self.measures.append(Measure(self.case, name, value, least, most, digits))

    def finish(self, memory: int) -> None:
        """Add what every case is judged by."""
        self.note("peak memory of a node, MiB", self._memory / MIB)
        self.note("peak memory / watermark", self._memory / memory, None, MEMORY_RATIO_MAX, 2)
        self.note("connections or nodes lost", self._disconnected, None, 0)


def ratio(part: float, whole: float) -> float:
    """Return part / whole, 0 when there is no whole."""
    return part / whole if whole > 0 else 0.0


def balance(loader: Loader, name: str, published: float, received: float) -> None:
    """Note whether consumers keep up."""
    loader.note(f"{name}: received / published", ratio(received, published), RATIO_MIN, None, 2)


def in_turn(
    loader: Loader, loads: Sequence[Sequence[Group]], times: Times
) -> list[dict[str, GroupFigures]]:
    """Run loads one after the other, PASSES times, each time in the other direction.

    Returns:
        For each load the medians of its passes: the best of several rates that were seen once each
        would be the luckiest one.
    """
    runs: list[list[dict[str, GroupFigures]]] = [[] for _ in loads]
    for number in range(PASSES):
        order = range(len(loads)) if number % 2 == 0 else reversed(range(len(loads)))
        for at in order:
            runs[at].append(loader.run(loads[at], times).groups)
    return [
        {name: median_figures([run[name] for run in each]) for name in each[0]} for each in runs
    ]


def windows(loader: Loader) -> None:
    """(a) One publisher, its window from 1 to 10,000."""
    rates: list[float] = []
    for window in (1, 10, 100, 1000, 10_000):
        groups = (Group("p", publish="a", window=window), Group("c", consume="a"))
        figures = loader.run(groups).groups
        published, received = figures["p"].confirmed_s, figures["c"].received_s
        name = f"window {window:,}"
        loader.note(f"{name}: received/s", received)
        loader.note(f"{name}: end-to-end p99, ms", figures["c"].e2e_ms[1], digits=1)
        balance(loader, name, published, received)
        rates.append(received)
    loader.note("largest window / best", ratio(rates[-1], max(rates)), RATIO_MIN, None, 2)


def publishers(loader: Loader) -> None:
    """(b) 50 queues with a consumer each, and more and more publishers of window 100."""
    window, consumers = 100, 50
    rates: dict[int, float] = {}
    counts = (1, 10, 50, 200, 500)
    consumer = Group("c", consumers, consume="b", queues=50)
    publisher = Group("p", publish="b", queues=50, window=window)
    loads = [(publisher._replace(connections=count), consumer) for count in counts]
    times = loader.times._replace(seconds=max(loader.times.seconds // PASSES, PASS_SECONDS_MIN))
    for count, figures in zip(counts, in_turn(loader, loads, times), strict=True):
        rates[count] = figures["c"].received_s
        name = f"{count} publishers"
        loader.note(f"{name}: confirmed/s", figures["p"].confirmed_s)
        loader.note(f"{name}: received/s", rates[count])
        if count == 200:
            p50, p99 = figures["c"].e2e_ms
            loader.note(f"{name}: end-to-end p50, ms", p50)
            loader.note(f"{name}: end-to-end p99, ms", p99)
            most = count * window
            bound = share_of_bound(p99, most, figures["p"].confirmed_s)
            loader.note(f"{name}: p99 / all windows at the published rate", bound, None, 2, 2)
        balance(loader, name, figures["p"].confirmed_s, rates[count])
    loader.note("200 publishers / best", ratio(rates[200], max(rates.values())), RATIO_MIN, None, 2)


def no_confirms(loader: Loader) -> None:
    """(c) 500 publishers that wait for nothing."""
    size = 100
    groups = (
        Group("p", 500, publish="c", queues=50, size=size),
        Group("c", 50, consume="c", queues=50),
    )
    times = loader.times._replace(warmup=12)  # until sockets and what nodes may hold are full
    figures = loader.run(groups, times).groups
    published, received = figures["p"].sent_s, figures["c"].received_s
    loader.note("published/s", published)
    loader.note("received/s", received)
    balance(loader, "steady", published, received)
    p50, p99 = figures["c"].e2e_ms
    loader.note("end-to-end p50, ms", p50)
    loader.note("end-to-end p99, ms", p99)
    processes = sum(len(node_processes(pid)) for pid in loader.broker.pids())
    most = processes * limits.NODE_BUFFER_BYTES / (size + MESSAGE_OVERHEAD_BYTES)
    bound = share_of_bound(p99, most, received)
    loader.note("p99 / what nodes may hold at the received rate", bound, None, 1, 2)


def both_ways(loader: Loader) -> None:
    """(d) A connection consumes, alone and while it publishes to a queue as fast as that takes."""
    feeder = Group("feeder", publish="d", window=1000, rate=5000)
    consumer = Group("mixed", consume="d", prefetch=200, ack=20)
    alone = loader.run((feeder, consumer)).groups["mixed"].received_s
    loader.note("consumed/s alone", alone)
    floods = (("window 1,000, 500 B", 1000, 500), ("no confirms, 4 KiB", 0, 4096))
    for name, window, size in floods:
        mixed = consumer._replace(publish="slow", window=window, size=size)
        both = loader.run((feeder, mixed)).groups["mixed"]
        loader.note(f"{name}: consumed/s while publishing", both.received_s)
        loader.note(f"{name}: published/s", both.sent_s)
        loader.note(f"{name}: consumed / alone", ratio(both.received_s, alone), 0.8, None, 2)


def neighbours(loader: Loader) -> None:
    """(e) A healthy queue, alone and next to one that fills because its consumers are slow."""
    healthy = (Group("hp", publish="h", window=1000), Group("hc", consume="h"))
    filling = (
        Group("sp", 10, publish="full", window=100, size=4096),
        Group("sc", 5, consume="full", prefetch=10, ack=1, delay_us=10_000),
    )
    seconds = max(loader.times.seconds, REFILL_SECONDS)
    times = loader.times._replace(warmup=8, seconds=seconds)  # from when the queue was full once
    alone, beside = in_turn(loader, (healthy, (*healthy, *filling)), times)
    loader.note("healthy: received/s alone", alone["hc"].received_s)
    loader.note("healthy: received/s beside", beside["hc"].received_s)
    loader.note("filling: published/s", beside["sp"].confirmed_s)
    loader.note("filling: received/s", beside["sc"].received_s)
    share = ratio(beside["hc"].received_s, alone["hc"].received_s)
    loader.note("healthy: beside / alone", share, RATIO_MIN, None, 2)
    offered = alone["hc"].received_s / 2  # so that cores are left, as in most clusters
    paced = (healthy[0]._replace(rate=offered), healthy[1])
    figures = loader.run((*paced, *filling), times).groups["hc"]
    share = ratio(figures.received_s, offered)
    loader.note("healthy, offered half of that: received / offered", share, RATIO_MIN, None, 2)
    loader.note("healthy, offered half of that: end-to-end p99, ms", figures.e2e_ms[1], digits=1)


def scarce_memory(loader: Loader) -> None:
    """(f) A memory watermark far below the amount that is published without confirms."""
    size, consumers, delay_us = 16 << 10, 4, 20_000
    groups = (
        Group("p", 20, publish="f", queues=4, size=size),
        Group("c", consumers, consume="f", queues=4, prefetch=20, ack=10, delay_us=delay_us),
    )
    figures = loader.run(groups, loader.times._replace(seconds=3 * loader.times.seconds)).groups
    backlog = (figures["p"].sent - figures["c"].received) * size
    loader.note("published/s", figures["p"].sent_s)
    loader.note("received/s", figures["c"].received_s)
    able = consumers * 1e6 / delay_us
    loader.note("received / what consumers can do", figures["c"].received_s / able, 0.8, None, 2)
    loader.note("alarms that each publisher was told of", figures["p"].blocked / 20, 1, None, 1)
    loader.note("backlog at the end, MiB", backlog / MIB)


class Case(NamedTuple):
    """One case: its letter, how it is run and at which memory watermark."""

    letter: str
    title: str
    run: Callable[[Loader], None]
    memory: int = MEMORY_BYTES  # 0: SCARCE_BYTES above what an idle node has


CASES: Final = (
    Case("a", "one publisher and one consumer", windows),
    Case("b", "publishers of window 100 on 50 queues with a consumer each", publishers),
    Case("c", "500 publishers without confirms, 50 queues with a consumer each", no_confirms),
    Case(
        "d",
        "a connection that floods one queue and consumes from another, fed with 5,000/s",
        both_ways,
    ),
    Case("e", "a queue that fills (4 KiB, slow consumers) beside a healthy one", neighbours),
    Case(
        "f",
        "20 publishers of 16 KiB without confirms, 4 slow consumers, memory for 64 MiB",
        scarce_memory,
        0,
    ),
)


def run_case(case: Case, program: Path, broker: Broker, seconds: int) -> list[Measure]:
    """Run one case on a cluster that was just started."""
    memory = case.memory or max(map(node_bytes, broker.pids())) + SCARCE_BYTES
    broker.limit_memory(memory)
    loader = Loader(program, broker, seconds)
    loader.case = case.letter
    case.run(loader)
    loader.finish(memory)
    return loader.measures
