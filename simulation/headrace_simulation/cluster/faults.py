"""Faults: each has a beginning and an end, and knows which nodes it concerns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final

from headrace_simulation.cluster.broker_cluster import BrokerCluster
from headrace_simulation.cluster.machine import Machine
from headrace_simulation.cluster.network import Link
from headrace_simulation.cluster.world import MS, NS


class Fault:
    """One fault of a run."""

    mean_s = 4.0  # seconds that it lasts, on average
    least_s = 0.1  # likewise, at least
    after_s = 0.0  # for which it is felt after its end
    destroys = False  # promises of the node's disk may be lost: one node at a time only

    def __init__(self, cluster: BrokerCluster, node: int, other: int) -> None:
        self.cluster = cluster
        self.node = node  # number of a host
        self.other = other  # another one
        self.rng = cluster.world.rng

    @property
    def machine(self) -> Machine:
        """The node's machine; clock and disk are those of all its processes."""
        return self.cluster.machines[self.node]

    @property
    def nodes(self) -> tuple[int, ...]:
        """Processes that are not to be reckoned with while it lasts."""
        return self.cluster.processes(self.node)

    def __str__(self) -> str:
        return f"{type(self).__name__} of n{self.node}"

    @abstractmethod
    def begin(self) -> None:
        """Inject the fault."""

    @abstractmethod
    def end(self) -> None:
        """Mend it."""

    def start(self) -> None:
        """Start what does not run on the node."""
        self.cluster.start_host(self.node)


class Kill(Fault):
    """kill -9; the supervisor starts the process again."""

    def begin(self) -> None:
        """See `Fault`."""
        self.cluster.kill_host(self.node)

    def end(self) -> None:
        """See `Fault`."""
        self.start()


class PowerLoss(Fault):
    """The machine loses its power, and what was not synced."""

    def begin(self) -> None:
        """See `Fault`."""
        self.cluster.kill(self.node, power=True)

    def end(self) -> None:
        """See `Fault`."""
        self.start()


class Roll(Fault):
    """kill -9, and another build of the broker starts on the node's data."""

    mean_s = 1.0
    least_s = 0.5

    def begin(self) -> None:
        """See `Fault`."""
        cluster = self.cluster
        cluster.kill_host(self.node)
        others = [each for each in cluster.builds if each is not cluster.software[self.node]]
        cluster.software[self.node] = self.rng.choice(others)

    def end(self) -> None:
        """See `Fault`."""
        self.start()


class Pause(Fault):
    """SIGSTOP."""

    def begin(self) -> None:
        """See `Fault`."""
        for each in self.nodes:
            self.cluster.machines[each].pause()

    def end(self) -> None:
        """See `Fault`."""
        for each in self.nodes:
            self.cluster.machines[each].resume()


class Isolation(Fault):
    """Nothing gets through to a node, nor from it."""

    def begin(self) -> None:
        """See `Fault`."""
        for each in self._links():
            each.cut()

    def end(self) -> None:
        """See `Fault`."""
        for each in self._links():
            each.heal()

    def _links(self) -> list[Link]:
        network, host = self.cluster.network, self.machine.host
        others = [f"n{each}" for each in self.cluster.hosts if each != self.node]
        return [network.link(host, each) for each in others] + [
            network.link(each, host) for each in others
        ]


class Cut(Fault):
    """Two nodes do not reach each other, or one of them not the other."""

    def __init__(self, cluster: BrokerCluster, node: int, other: int) -> None:
        super().__init__(cluster, node, other)
        self._both = self.rng.random() < 0.5

    def __str__(self) -> str:
        return f"Cut {'between' if self._both else 'one way,'} n{self.node} n{self.other}"

    def begin(self) -> None:
        """See `Fault`."""
        network = self.cluster.network
        network.link(f"n{self.node}", f"n{self.other}").cut()
        if self._both:
            network.link(f"n{self.other}", f"n{self.node}").cut()

    def end(self) -> None:
        """See `Fault`."""
        network = self.cluster.network
        network.link(f"n{self.node}", f"n{self.other}").heal()
        network.link(f"n{self.other}", f"n{self.node}").heal()


class SlowLinks(Fault):
    """Links from a node are slow, and lose segments now and then."""

    def begin(self) -> None:
        """See `Fault`."""
        rate = self.rng.choice((64 << 10, 512 << 10, 4 << 20))
        delay = self.rng.choice((2, 40, 150)) * MS
        self._set(rate, delay, self.rng.choice((0.0, 0.01, 0.05)))

    def end(self) -> None:
        """See `Fault`."""
        self._set(100 << 20, MS // 4, 0.0)

    def _set(self, rate: int, delay_ns: int, stalls: float) -> None:
        for each in self.cluster.hosts:
            if each != self.node:
                link = self.cluster.network.link(self.machine.host, f"n{each}")
                link.rate, link.delay_ns, link.stalls = rate, delay_ns, stalls


class DiskHang(Fault):
    """The disk does not answer."""

    mean_s = 12.0

    def begin(self) -> None:
        """See `Fault`."""
        self.machine.disk.is_hung = True

    def end(self) -> None:
        """See `Fault`."""
        self.machine.disk.is_hung = False


class SlowDisk(Fault):
    """Syncs take long."""

    def begin(self) -> None:
        """See `Fault`."""
        self.machine.disk.sync_s = self.rng.choice((0.02, 0.1, 0.4))

    def end(self) -> None:
        """See `Fault`."""
        self.machine.disk.sync_s = 0.001


class DiskError(Fault):
    """One call fails; the node ends, and is started again."""

    def begin(self) -> None:
        """See `Fault`."""
        call = self.rng.choice(("sync", "sync", "write", "rename", "sync_directory", "create"))
        self.machine.disk.fail_next(call)

    def end(self) -> None:
        """See `Fault`."""
        self.machine.disk.fails.clear()


class DiskFull(Fault):
    """There is no space."""

    def begin(self) -> None:
        """See `Fault`."""
        disk = self.machine.disk
        used = sum(len(data) for data in disk.copy().values())
        disk.capacity_bytes = used + self.rng.choice((0, 4 << 10, 64 << 10))

    def end(self) -> None:
        """See `Fault`."""
        self.machine.disk.capacity_bytes = 0


class Blackout(Fault):
    """All machines lose their power at once, and come back one after the other."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """See `Fault`."""
        return tuple(self.cluster.machines)

    def begin(self) -> None:
        """See `Fault`."""
        for node, machine in self.cluster.machines.items():
            self.cluster.kill(node, power=True)
            self.cluster.world.at(int(self.rng.uniform(0.5, 8.0) * NS), machine.start)

    def end(self) -> None:
        """See `Fault`."""
        for machine in self.cluster.machines.values():
            machine.start()


class LyingDisk(Fault):
    """Syncs do nothing for a time, and then the power is lost."""

    destroys = True

    def begin(self) -> None:
        """See `Fault`."""
        self.machine.disk.lies = True

    def end(self) -> None:
        """See `Fault`."""
        self.cluster.kill(self.node, power=True)
        self.machine.disk.lies = False
        self.cluster.world.at(NS // 2, self.start)


class LostDisk(Fault):
    """The machine comes back with an empty disk."""

    destroys = True

    def begin(self) -> None:
        """See `Fault`."""
        self.cluster.kill(self.node, power=True)
        self.machine.disk.wipe()

    def end(self) -> None:
        """See `Fault`."""
        self.start()


class OldDisk(Fault):
    """The machine comes back with what its disk held some time ago."""

    destroys = True

    def begin(self) -> None:
        """See `Fault`."""
        self._copy = self.machine.disk.copy()

    def end(self) -> None:
        """See `Fault`."""
        self.cluster.kill(self.node, power=True)
        if self._copy:
            self.machine.disk.put_back(self._copy)
        self.cluster.world.at(NS, self.start)


class OldDiskAtWorst(OldDisk):
    """The same while another disk hangs, and who has everything is off when the node is back.

    The node whose disk hung has heard what the old copy lacks: it must not elect a leader with it.
    """

    mean_s = 3.0
    least_s = 9.0
    after_s = 8.0

    @property
    def nodes(self) -> tuple[int, ...]:
        """See `Fault`."""
        return tuple(self.cluster.machines)

    def begin(self) -> None:
        """See `Fault`."""
        super().begin()
        self.cluster.machines[self.other].disk.is_hung = True

    def end(self) -> None:
        """See `Fault`."""
        for node in set(self.cluster.hosts) - {self.node, self.other}:
            self.cluster.kill_host(node)
            self.cluster.world.at(8 * NS, self.cluster.start_host, node)
        super().end()
        self.cluster.machines[self.other].disk.is_hung = False


class Clone(Fault):
    """The same directory is run twice: a copy of it, on another machine."""

    def begin(self) -> None:
        """See `Fault`."""
        self._clone = self.cluster.clone(self.node)
        self._clone.start()

    def end(self) -> None:
        """See `Fault`."""
        self._clone.kill()


class Rot(Fault):
    """A bit of the log changes while the machine is off."""

    destroys = True

    def begin(self) -> None:
        """See `Fault`."""
        self.cluster.kill_host(self.node)
        found = self.machine.disk.rot()
        self.cluster.world.trace.note(self.machine.host, f"rot in {found}")

    def end(self) -> None:
        """See `Fault`."""
        self.start()


class ClockJump(Fault):
    """Wall-clock time is set."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """See `Fault`."""
        return ()

    def begin(self) -> None:
        """See `Fault`."""
        self._seconds = self.rng.choice((-86_400.0, -5.0, 5.0, 3600.0, 86_400.0))
        self.machine.clock.jump(self._seconds)

    def end(self) -> None:
        """See `Fault`."""
        self.machine.clock.jump(-self._seconds)


class ClockDrift(Fault):
    """The machine's clocks go wrong."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """See `Fault`."""
        return ()

    def begin(self) -> None:
        """See `Fault`."""
        self.machine.clock.set_rate(self.rng.choice((0.9, 0.97, 1.03, 1.1)))

    def end(self) -> None:
        """See `Fault`."""
        self.machine.clock.set_rate(1.0)


Kind = Callable[[BrokerCluster, int, int], Fault]

PROCESSES: Final[tuple[Kind, ...]] = (Kill, PowerLoss, Pause)
ROLLS: Final[tuple[Kind, ...]] = (Roll,)
NETWORK: Final[tuple[Kind, ...]] = (Isolation, Cut, SlowLinks)
DISKS: Final[tuple[Kind, ...]] = (DiskHang, SlowDisk, DiskError, DiskFull)
LOSSES: Final[tuple[Kind, ...]] = (LostDisk, OldDisk, LyingDisk, Rot)
BLACKOUTS: Final[tuple[Kind, ...]] = (Blackout,)
OLD: Final[tuple[Kind, ...]] = (OldDiskAtWorst,)
CLONES: Final[tuple[Kind, ...]] = (Clone,)
CLOCKS: Final[tuple[Kind, ...]] = (ClockJump, ClockDrift)
