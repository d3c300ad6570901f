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
    Fault,
    Isolate,
    Kill,
    Link,
    Pause,
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
)
from e2e.harness.cluster import wait_for

from headrace_broker.cli.session.api_client import path_of

DRAIN_SECONDS: Final = 60.0


class Nemesis:
    """Called on the main thread, for nodes live as long as the thread that started them."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self._cluster = cluster
        self._numbers = [node.id for node in cluster.nodes]
        self._drained: list[ChaosNode] = []

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
            case Pause(nodes):
                victims = self._resolve(nodes, queue)
                for number in victims:
                    self._cluster.node(number).pause()
                return f"paused {victims}"
            case Slow(nodes, delay_ms):
                victims = self._resolve(nodes, queue)
                for number in victims:
                    self._cluster.node(number).disk.set_delay(delay_ms)
                return f"disks of {victims} take {delay_ms} ms"
            case Wipe() | Restore() | Truncate() | Rot():
                return self._damage(fault, queue)
            case SetClock(nodes, shift_ms):
                for number in nodes:
                    self._cluster.node(number).clock.shift(shift_ms)
                return f"clocks of {list(nodes)} jump by {shift_ms} ms"
            case Throttle(nodes, kbit):
                for number in nodes:
                    self._cluster.network.throttle(number, kbit)
                return f"links of {list(nodes)} carry {kbit} kbit/s"
            case Isolate(node, sends, receives):
                (victim,) = self._resolve((node,), queue)
                others = [each for each in self._numbers if each != victim]
                links = [(victim, each) for each in others if sends]
                links += [(each, victim) for each in others if receives]
                return self._cut(links)
            case Cut(cuts):
                return self._cut(list(cuts))
            case Replace(number, python):
                return self._replace(self._cluster.node(number), Path(python))

    def _damage(self, fault: Wipe | Restore | Truncate | Rot, queue: str) -> str:
        match fault:
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
            cut = (
                data.zero_end(node.store, sectors)
                if sectors
                else data.drop_newest_segment(node.store)
            )
            done.append(f"{node.name}: {cut}")
        return ", ".join(done)

    def _rot(self, numbers: list[int]) -> str:
        done = []
        for place, number in enumerate(numbers):
            node = self._cluster.node(number)
            node.kill()
            done.append(f"{node.name}: {data.rot(node.store, place)}")
        return ", ".join(done)

    def _replace(self, node: ChaosNode, python: Path) -> str:
        place = path_of("cluster", "nodes", node.name)
        node.post(f"{place}/drain")
        self._drained.append(node)
        what = f"{node.name} to be drained"
        wait_for(what, lambda: (node.get(place) or {}).get("drained"), DRAIN_SECONDS)
        node.begin_stop()
        assert node.end_stop(), f"{node.name} did not stop in order"
        node.python = python
        return f"{node.name} is replaced by {python}"

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
        for node in self._drained:
            place = path_of("cluster", "nodes", node.name)
            wait_for(f"{node.name} to answer", partial(node.get, place))
            node.post(f"{place}/revive")
        self._drained.clear()
