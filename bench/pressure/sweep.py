"""One broker under loads from half to ten times its capacity."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from pressure.cases import MEMORY_BYTES, MIB, Broker
from pressure.generator import Group, Times, load
from pressure.memory import PeakMemory

PLOT: Final = Path(__file__).parent.parent / "overload.png"
MULTIPLES: Final = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
PUBLISHERS: Final = 100
QUEUES: Final = 20
WINDOW: Final = 100  # of each publisher while the capacity is measured


class Point(NamedTuple):
    """Result of one offered load.

    Attributes:
        multiple: offered, as a multiple of the capacity.
        offered_s: publishes per second that were offered.
        published_s: publishes per second that the broker took.
        received_s: messages per second that its consumers got.
        p50_ms: end to end.
        p99_ms: end to end.
        memory: the most that a node had, in bytes.
        disconnected: connections that were lost.
    """

    multiple: float
    offered_s: float
    published_s: float
    received_s: float
    p50_ms: float
    p99_ms: float
    memory: int
    disconnected: int


def sweep(program: Path, broker: Broker, seconds: int) -> list[Point]:
    """Measure what a broker can do, then offer it parts and multiples of that without confirms."""
    times = Times(4, seconds, 2)
    broker.limit_memory(MEMORY_BYTES)
    consumers = Group("c", QUEUES, consume="s", queues=QUEUES)
    publishers = Group("p", PUBLISHERS, publish="s", queues=QUEUES, window=WINDOW)
    figures = load(program, broker.ports, (publishers, consumers), times)
    capacity = figures["c"].received_s
    print(f"capacity {capacity:,.0f}/s", flush=True)
    points: list[Point] = []
    for multiple in MULTIPLES:
        offered = multiple * capacity
        groups = (publishers._replace(window=0, rate=offered), consumers)
        with PeakMemory(broker.pids()) as peak:
            figures = load(program, broker.ports, groups, times)
        p, c = figures["p"], figures["c"]
        lost = p.disconnected + p.refused + c.disconnected + c.refused
        points.append(Point(multiple, offered, p.sent_s, c.received_s, *c.e2e_ms, peak.most, lost))
        print(f"{points[-1]} {peak.most / MIB:.0f} MiB", flush=True)
    return points
