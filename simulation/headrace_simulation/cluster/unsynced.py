"""The power loss that costs most: of who has promised something and not synced it yet."""

from __future__ import annotations

from typing import Final

from headrace_raftlog.model.group import LEADER
from headrace_simulation.cluster.faults import Fault, Isolation, Kind
from headrace_simulation.cluster.world import MS, NS

LOOK_NS: Final = 20 * MS
CUT_S: Final = 8.0  # for which the others must do without who knows more


class Unsynced(Fault):
    """A node with a slow disk loses its power once another one leads by its vote.

    The third node is cut off meanwhile. Then that other one is, and the first and the third have
    to go on: what the first had promised without a sync they do not know.
    """

    mean_s = 3.0
    least_s = 4.0
    after_s = CUT_S + 2.0

    @property
    def nodes(self) -> tuple[int, ...]:
        """See `Fault`."""
        return tuple(self.cluster.machines)

    def begin(self) -> None:
        """See `Fault`."""
        third = next(e for e in self.cluster.hosts if e not in (self.node, self.other))
        self._third = Isolation(self.cluster, third, self.node)
        self._second = Isolation(self.cluster, self.other, self.node)
        self._led = self._groups_of(self.other)
        self._is_over = False
        self._third.begin()
        self.machine.disk.sync_s = 3.0
        self.cluster.world.at(LOOK_NS, self._look)

    def end(self) -> None:
        """See `Fault`."""
        if self._is_over:
            return
        self._is_over = True
        world = self.cluster.world
        self.cluster.kill(self.node, power=True)
        self.machine.disk.sync_s = 0.001
        self._second.begin()
        self._third.end()
        world.at(NS // 4, self.start)
        world.at(int(CUT_S * NS), self._second.end)

    def _look(self) -> None:
        """Strike a moment after the other node leads a group that it has not led before."""
        if self._is_over:
            return
        if self._groups_of(self.other) - self._led:
            self.cluster.world.at(int(self.rng.uniform(0.15, 0.8) * NS), self.end)
        else:
            self.cluster.world.at(LOOK_NS, self._look)

    def _groups_of(self, number: int) -> set[int]:
        node = self.cluster.nodes.get(number)
        host = getattr(node.raft, "_host", None) if node is not None else None
        if host is None:
            return set()
        return {each.group for each in host.groups() if each.core.role == LEADER}


UNSYNCED: Final[tuple[Kind, ...]] = (Unsynced,)
