"""Cost of telemetry for a node: processor time of one sample, by its parts.

    python -m bench.telemetry_cost [--queues 1000] [--connections 1000] [--moving 1.0]

Everything that is looked at is real but for the replicas' logs; a part of the queues and of the
connections moves in each second. The rows are written to a directory of their own, and synced.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, TypeVar

from headrace_broker.codecs.column_block import ColumnBlock
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.flow.account import Ledger
from headrace_broker.flow.activity import Activity
from headrace_broker.flow.alarm import NodeReport
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.rate_history import Moves
from headrace_broker.model.definition import QUEUE_QUORUM, Queue
from headrace_broker.model.flow import CONNECTION, LIMIT_WATERMARK, Cause
from headrace_broker.runtime.clients.sample_turns import SampleTurns
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.connection_info import ConnectionInfo
from headrace_broker.runtime.contract.recently_applied import RecentlyApplied
from headrace_broker.runtime.contract.traffic import Traffic
from headrace_broker.runtime.replica.queue_meter import QueueMeter
from headrace_broker.runtime.telemetry.edges import EdgeTaker
from headrace_broker.runtime.telemetry.episodes import Episodes
from headrace_broker.runtime.telemetry.sampler import SampleTaker
from headrace_broker.runtime.telemetry.schema import DEBT_EDGES, FLOW_EVENTS, SCHEMAS
from headrace_broker.runtime.telemetry.shard_log import Bounds, ShardLog
from headrace_broker.runtime.telemetry.sources import Moment, Sources
from headrace_broker.runtime.telemetry.telemetry import Seen, encode
from headrace_raftlog.storage.disk.files import Files

LOOKS: Final = 10
BOUNDS: Final = Bounds(1 << 30, 1 << 40)
START_MS: Final = 1_795_324_261_103


T = TypeVar("T")


class Node:
    """Queues and connections, a part of which moves."""

    def __init__(self, queues: int, connections: int) -> None:
        self.limits = FlowLimits()
        self.ledger = Ledger(self.limits)
        self.queues = [
            Queue("/", f"orders.{group}", QUEUE_QUORUM, group=group, members=(1, 2, 3))
            for group in range(1, queues + 1)
        ]
        self.hosts: dict[int, Any] = {
            queue.group: SimpleNamespace(
                queue=queue,
                machine=QueueMachine(),
                moves=Moves(),
                serving=True,
                meter=QueueMeter(Clock()),
                log=SimpleNamespace(window_bytes=lambda: 1 << 24),
            )
            for queue in self.queues
        }
        self.recent = RecentlyApplied(self.hosts)
        self.infos = {f"n1/1/{number}": self._connection(number) for number in range(connections)}
        self.now_us = 10_000_000

    def _connection(self, number: int) -> ConnectionInfo:
        name = f"10.0.{number >> 8}.{number & 255}:40001 -> 10.0.0.1:5672"
        info = ConnectionInfo(f"n1/1/{number}", name, "10.0.0.7:40001", START_MS)
        info.user, info.vhost, info.channels = "app", "/", 1
        info.flow = Activity(0)
        info.account = self.ledger.open(Cause(info.id, CONNECTION, name, "n1"))
        return info

    def sources(self) -> Sources:
        """Return the sources of telemetry."""
        by_group = {queue.group: queue for queue in self.queues}
        return Sources(
            node="n1",
            view=SimpleNamespace(queue_by_group=by_group.get),  # type: ignore[arg-type]
            ledger=self.ledger,
            limits=self.limits,
            hosts=self.hosts,
            recent=self.recent,
            traffic=Traffic(),
            connections=lambda: self.infos,
            gate=lambda group: None,
            alarms=list,
            report=lambda: NodeReport(1),
            clock_us=lambda: self.now_us,
        )

    def second(self, moving: float) -> None:
        """Let a second pass, in which a part of everything moves."""
        self.now_us += 1_000_000
        for queue in self.queues[: int(moving * len(self.queues))]:
            moves = self.hosts[queue.group].moves
            moves.arrived += 100
            moves.delivered += 100
            moves.settled += 100
            self.recent.note(queue.group, 0)
        for number, info in enumerate(list(self.infos.values())[: int(moving * len(self.infos))]):
            assert info.account is not None
            queue = self.queues[number % len(self.queues)]
            balance = info.account.balance(queue.group)
            balance.borrow(100, 30_000)
            balance.came_through("orders", 100)
            balance.repay(100, 30_000)
            if number % 10 == 0:
                info.flow.stop(LIMIT_WATERMARK, queue.group, self.now_us - 200_000)
                info.flow.go(self.now_us - 100_000)
        self.ledger.sample(1.0)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--moving", type=float, default=1.0)
    options = parser.parse_args()
    node = Node(options.queues, options.connections)
    with tempfile.TemporaryDirectory() as directory:
        looker = Looker(node, directory)
        for _ in range(LOOKS + 1):  # the first one finds everything new
            node.second(options.moving)
            looker.look()
    for name, times in looker.spent.items():
        print(f"{name:10} {sum(times[1:]) / LOOKS:8.2f} ms")
    print(f"{'sum':10} {sum(sum(each[1:]) for each in looker.spent.values()) / LOOKS:8.2f} ms")
    print("bytes on disk a second", looker.byte_counts())


class Looker:
    """Looks at a node, and notes the processor time."""

    def __init__(self, node: Node, directory: str) -> None:
        sources = node.sources()
        self.spent: dict[str, list[float]] = {}
        self._node = node
        self._edges, self._episodes = EdgeTaker(sources, 2000), Episodes(sources, lambda: 1)
        self._samples = SampleTaker(sources, 2000)
        self._logs = {
            name: ShardLog(Files(), f"{directory}/{name}", schema, BOUNDS, _unix_ms)
            for name, schema in SCHEMAS.items()
        }
        for log in self._logs.values():
            log.open()

    def look(self) -> None:
        """Take one look."""
        moment = Moment(START_MS, 1000, self._node.now_us)
        turns = SampleTurns(0)
        edges = self._timed("edges", lambda: asyncio.run(self._edges.take(moment, turns)))
        events = self._timed("events", lambda: self._episodes.take(moment))
        brought = self._edges.brought
        pieces = self._timed("samples", lambda: list(self._samples.take(moment, brought, 0, 0)))
        parts = [part for piece in pieces for part in piece]
        seen = Seen(parts, {DEBT_EDGES: edges, FLOW_EVENTS: events})
        blocks = self._timed("columns", lambda: encode(moment, "n1", seen))
        self._timed("disk", lambda: self._append(moment.at_ms, blocks))

    def _append(self, at_ms: int, blocks: dict[str, list[ColumnBlock]]) -> None:
        for name, each in blocks.items():
            if each:
                self._logs[name].append(at_ms, each)

    def _timed(self, name: str, work: Callable[[], T]) -> T:
        start = time.process_time()
        result = work()
        self.spent.setdefault(name, []).append(1000 * (time.process_time() - start))
        return result

    def byte_counts(self) -> dict[str, int]:
        """Return what a second takes on disk, by log."""
        return {name: log.summary.byte_count // (LOOKS + 1) for name, log in self._logs.items()}


def _unix_ms() -> int:
    return START_MS


if __name__ == "__main__":
    main()
