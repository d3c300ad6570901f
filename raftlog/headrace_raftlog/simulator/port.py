"""Nodes and members as those see them that judge, serve or disturb them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.log import GroupLog
from headrace_raftlog.simulator.coverage import Coverage
from headrace_raftlog.simulator.host_faults import HostFaults
from headrace_raftlog.simulator.loop import Loop
from headrace_raftlog.simulator.machine import Machine
from headrace_raftlog.simulator.network import Network
from headrace_raftlog.simulator.parameters import Parameters
from headrace_raftlog.simulator.store import Store
from headrace_raftlog.storage.disk.disk_watch import DiskWatch


class NodePort(Protocol):
    """A node; see `Node` for its attributes and methods."""

    number: int
    loop: Loop
    parameters: Parameters
    coverage: Coverage
    store: Store
    core_type: type[RaftCore]
    faults: HostFaults
    network: Network
    up: bool
    boot: int
    paused: bool
    fetches: int
    ticks: int
    clock_stands_until: int
    nodes_up: set[int]
    disk_watch: DiskWatch
    resumed_at: int

    @property
    def peers(self) -> Sequence[NodePort]:
        """The other nodes."""

    @property
    def replicas(self) -> Mapping[int, MemberPort]:
        """Members that run here, by group."""

    @property
    def tick_units(self) -> int:
        """See `Node`."""

    @property
    def calm_since(self) -> int:
        """See `Node`."""

    def start(self) -> None:
        """See `Node`."""

    def drop(self, group: int) -> None:
        """See `Node`."""

    def crash(self) -> None:
        """See `Node`."""

    def pause(self) -> None:
        """See `Node`."""

    def resume(self) -> None:
        """See `Node`."""


class MemberPort(Protocol):
    """A member of a group; see `Replica` for its attributes."""

    group: int
    member: int
    core: RaftCore
    log: GroupLog
    store: Store
    machine: Machine
    coverage: Coverage
    stopped: bool
    dirty: bool
    config_changed: bool
    began_at: int

    @property
    def node(self) -> NodePort:
        """Node on which it lives."""

    @property
    def is_leader(self) -> bool:
        """See `Replica`."""
