"""Injects the faults of a schedule into a cluster and ends them again."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Final

from e2e.chaos import data
from e2e.chaos.cluster import ChaosCluster, ChaosNode
from e2e.chaos.schedule import (
    LEADER,
    Cut,
    Drain,
    Fault,
    Isolate,
    Kill,
    KillShard,
    Link,
    Pause,
    PauseShard,
    Replace,
    Restart,
    Restore,
    Rot,
    SetClock,
    Slow,
    Step,
    Throttle,
    Truncate,
    Wipe,
    WipeShard,
)
from e2e.harness.cluster import wait_for

from headrace_broker.cli.session.api_client import path_of
from headrace_broker.model.shard import shard_name

DRAIN_SECONDS: Final = 60.0


class Nemesis:
    """Called on the main thread, for nodes live as long as the thread that started them."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self._cluster = cluster
        self._numbers = [node.id for node in cluster.nodes]
        self._drained: list[tuple[ChaosNode, str]] = []  # with what of it is drained

    def inject(self, step: Step, queue: str) -> str:
        """Inject a step's faults; return what that meant.

        Args:
            step: whose faults.
            queue: whose leader LEADER is; the first node, if it has none.
        """
        done: list[str] = []
        for number, fault in enumerate(step.faults):
            if number:
                time.sleep(step.gap)
            done.append(self._inject(fault, queue))
        return ", ".join(done)

    def _inject(self, fault: Fault, queue: str) -> str:
        match fault:
            case Kill(nodes):
                return self._kill(self._resolve(nodes, queue), again=False)
            case Restart(nodes):
                return self._kill(self._resolve(nodes, queue), again=True)
            case KillShard() | PauseShard():
                return self._strike_shards(fault, queue)
            case Pause(nodes):
                victims = self._resolve(nodes, queue)
                for number in victims:
                    self._cluster.node(number).pause()
                return f"paused {victims}"
            case Wipe() | WipeShard() | Restore() | Truncate() | Rot():
                return self._damage(fault, queue)
            case Slow() | SetClock() | Throttle():
                return self._hamper(fault, queue)
            case Isolate(node, sends, receives):
                (victim,) = self._resolve((node,), queue)
                others = [each for each in self._numbers if each != victim]
                links = [(victim, each) for each in others if sends]
                links += [(each, victim) for each in others if receives]
                return self._cut(links)
            case Cut(cuts):
                return self._cut(list(cuts))
            case Drain() | Replace():
                return self._take_out(fault, self._cluster.node(fault.node))

    def _hamper(self, fault: Slow | SetClock | Throttle, queue: str) -> str:
        victims = self._resolve(fault.nodes, queue)
        for number in victims:
            match fault:
                case Slow(_, delay_ms):
                    self._cluster.node(number).disk.set_delay(delay_ms)
                case SetClock(_, shift_ms):
                    self._cluster.node(number).clock.shift(shift_ms)
                case Throttle(_, kbit):
                    self._cluster.network.throttle(number, kbit)
        match fault:
            case Slow(_, delay_ms):
                return f"disks of {victims} take {delay_ms} ms"
            case SetClock(_, shift_ms):
                return f"clocks of {victims} jump by {shift_ms} ms"
            case Throttle(_, kbit):
                return f"links of {victims} carry {kbit} kbit/s"

    def _damage(self, fault: Wipe | WipeShard | Restore | Truncate | Rot, queue: str) -> str:
        match fault:
            case WipeShard(number, shard):
                node = self._cluster.node(number)
                node.kill()
                data.wipe_shard(node.stores, shard)
                return f"killed [{number}] and wiped {shard_name(node.name, shard)}"
            case Wipe(nodes, between):
                return self._wipe_twice(self._resolve(nodes, queue), between)
            case Restore(nodes, between):
                return self._restore(self._resolve(nodes, queue), between)
            case Truncate(nodes, sectors):
                return self._truncate(self._resolve(nodes, queue), sectors)
            case Rot(nodes):
                return self._rot(self._resolve(nodes, queue))

    def _resolve(self, nodes: tuple[int, ...], queue: str) -> list[int]:
        return [node if node != LEADER else self._cluster.leader(queue) or 1 for node in nodes]

    def _strike_shards(self, fault: KillShard | PauseShard, queue: str) -> str:
        kills = isinstance(fault, KillShard)
        done: list[str] = []
        for number in fault.nodes:
            place = number, fault.shard
            if number == LEADER:
                leading = self._cluster.leading_shard(queue)
                place = leading if leading[0] else (1, fault.shard)
            node = self._cluster.node(place[0])
            struck = node.kill_shard(place[1]) if kills else node.pause_shard(place[1])
            done.append(shard_name(node.name, place[1]) + ("" if struck else " (not running)"))
        return f"{'killed' if kills else 'paused'} {', '.join(done)} alone"

    def _kill(self, numbers: list[int], again: bool) -> str:
        for number in numbers:
            self._cluster.node(number).kill()
        if again:
            for number in numbers:
                self._cluster.node(number).start(self._cluster.locals)
        return f"killed {numbers}" + (" and started them" if again else "")

    def _wipe_twice(self, numbers: list[int], between: float) -> str:
        for turn in range(2):
            for number in numbers:
                node = self._cluster.node(number)
                node.kill()
                data.wipe(node.store)
                if turn == 0:
                    node.start(self._cluster.locals)
            if turn == 0:
                time.sleep(between)
        return f"wiped {numbers} twice, {between:.1f} s apart"

    def _restore(self, numbers: list[int], between: float) -> str:
        victims = [self._cluster.node(number) for number in numbers]
        for node in victims:
            node.kill()
            data.keep_copy(node.store, node.store.with_name("copy"))
            node.start(self._cluster.locals)
        for node in victims:
            wait_for(f"{node.name} to be ready", node.is_ready)
        time.sleep(between)
        for node in victims:
            node.kill()
        for node in victims:
            data.put_back(node.store.with_name("copy"), node.store)
        return f"put back copies of {numbers}, {between:.1f} s old"

    def _truncate(self, numbers: list[int], sectors: int) -> str:
        done = []
        for number in numbers:
            node = self._cluster.node(number)
            node.kill()
            for name, store in zip(node.processes, node.stores, strict=True):
                cut = data.zero_end(store, sectors) if sectors else data.drop_newest_segment(store)
                done.append(f"{name}: {cut}")
        return ", ".join(done)

    def _rot(self, numbers: list[int]) -> str:
        done = []
        for place, number in enumerate(numbers):
            node = self._cluster.node(number)
            node.kill()
            done.append(f"{node.name}: {data.rot(node.stores, place)}")
        return ", ".join(done)

    def _take_out(self, fault: Drain | Replace, node: ChaosNode) -> str:
        """Drain a node or one of its processes, and stop what is replaced."""
        shard = fault.shard if isinstance(fault, Drain) else None
        name = node.name if shard is None else shard_name(node.name, shard)
        place = path_of("cluster", "nodes", name)
        node.post(f"{place}/drain")
        self._drained.append((node, name))
        what = f"{name} to be drained"
        wait_for(what, lambda: (node.get(place) or {}).get("drained"), DRAIN_SECONDS)
        if isinstance(fault, Drain):
            return f"drained {name}"
        node.begin_stop()
        assert node.end_stop(), f"{node.name} did not stop in order"
        node.python = Path(fault.python)
        return f"{node.name} is replaced by {node.python}"

    def _cut(self, links: list[Link]) -> str:
        for source, target in links:
            self._cluster.network.cut(source, target)
        return "cut " + " ".join(f"{source}>{target}" for source, target in links)

    def heal(self) -> None:
        """End all faults and start killed nodes; returns before the cluster serves."""
        self._cluster.network.heal_all()
        for node in self._cluster.nodes:
            node.disk.set_delay(0)
            node.clock.shift(0)
            node.resume()
            node.start(self._cluster.locals)
        for node, name in self._drained:
            place = path_of("cluster", "nodes", name)
            wait_for(f"{node.name} to answer", partial(node.get, place))
            node.post(f"{place}/revive")
        self._drained.clear()
