"""Faults of one process of a node that has several; the others of its host go on."""

from __future__ import annotations

from typing import Final

from headrace_simulation.cluster.broker_cluster import BrokerCluster
from headrace_simulation.cluster.faults import Fault, Kind
from headrace_simulation.cluster.hosts import is_data_of, name_of


class ShardFault(Fault):
    """A fault of one of a host's processes."""

    def __init__(self, cluster: BrokerCluster, node: int, other: int) -> None:
        super().__init__(cluster, node, other)
        self.shard = self.rng.choice(cluster.processes(node))

    def __str__(self) -> str:
        return f"{type(self).__name__} of {name_of(self.shard)}"

    @property
    def nodes(self) -> tuple[int, ...]:
        """See `Fault`."""
        return (self.shard,)


class KillShard(ShardFault):
    """kill -9 of the process alone; it is started again."""

    def begin(self) -> None:
        """See `Fault`."""
        self.cluster.kill(self.shard)

    def end(self) -> None:
        """See `Fault`."""
        self.cluster.machines[self.shard].start()


class PauseShard(ShardFault):
    """SIGSTOP of the process alone."""

    def begin(self) -> None:
        """See `Fault`."""
        self.cluster.machines[self.shard].pause()

    def end(self) -> None:
        """See `Fault`."""
        self.cluster.machines[self.shard].resume()


class LostShard(ShardFault):
    """The process comes back without its data; those of the others are on the same disk."""

    destroys = True

    def begin(self) -> None:
        """See `Fault`."""
        self.cluster.kill(self.shard)
        self.machine.disk.wipe_some(lambda path: is_data_of(self.shard, path))

    def end(self) -> None:
        """See `Fault`."""
        self.cluster.machines[self.shard].start()


SHARDS: Final[tuple[Kind, ...]] = (KillShard, PauseShard)
LOST_SHARDS: Final[tuple[Kind, ...]] = (LostShard,)
