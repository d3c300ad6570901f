"""Nodes, and further processes of them, that are drained and revived, or forgotten and come back.

Administrators ask for it through other nodes, in the steps of production's HTTP interface.
"""

from __future__ import annotations

import asyncio
from typing import Final

from headrace_broker.catalog.movement import shrink
from headrace_broker.catalog.placement import places_of
from headrace_broker.model.definition import Node
from headrace_broker.model.reply_code import PRECONDITION_FAILED, AmqpError
from headrace_broker.model.shard import processes_of
from headrace_simulation.cluster.broker_cluster import BrokerCluster
from headrace_simulation.cluster.clients import Site
from headrace_simulation.cluster.errand import Errand
from headrace_simulation.cluster.faults import Fault, Kind
from headrace_simulation.cluster.hosts import is_data_of, name_of
from headrace_simulation.cluster.software import PORT

LEAVE_S: Final = 20.0  # for replicas to leave a process; then it is looked at again why they stay
LOOK_S: Final = 0.5


class Drain(Fault):
    """A node is drained, and revived; it goes on voting."""

    mean_s = 5.0
    least_s = 4.0

    def __init__(self, cluster: BrokerCluster, node: int, other: int) -> None:
        super().__init__(cluster, node, other)
        self.members = self.named()
        self.errand = Errand(cluster, cluster.processes(node))
        cluster.done.append(self.errand.is_done)

    def named(self) -> tuple[int, ...]:
        """Return the processes that are concerned, the one that is named first."""
        return self.cluster.processes(self.node)

    def __str__(self) -> str:
        which = "all of " if len(self.members) > 1 else ""
        return f"{type(self).__name__} of {which}{name_of(self.members[0])}"

    @property
    def nodes(self) -> tuple[int, ...]:
        """See `Fault`."""
        return ()

    def begin(self) -> None:
        """See `Fault`."""
        self.errand.then(self.drain)

    def end(self) -> None:
        """See `Fault`."""
        self.errand.only(self.revive)

    async def drain(self, site: Site) -> None:
        """Drain the node, which is to have all its processes drained."""
        await self._set_maintenance(site, on=True)

    async def revive(self, site: Site) -> None:
        """Revive the node, with all its processes."""
        await self._set_maintenance(site, on=False)

    async def _set_maintenance(self, site: Site, *, on: bool) -> None:
        node = await self._known(site)
        if node is None:
            return
        site.history.moved()
        await site.node.operations.set_maintenance(node, on)
        site.history.moved()
        await self._known(site)
        view = site.node.catalog.catalog
        for member in self.members:
            found = view.node(member)
            if found is not None and found.maintenance is not on:
                done = "drained" if on else "revived"
                site.history.violated(f"{node.name} was {done}, and {found.name} was not")

    async def _known(self, site: Site) -> Node | None:
        """Return the node, or what is left of it, as the catalog knows it now."""
        await site.node.topology.catch_up()
        found = map(site.node.catalog.catalog.node, self.members)
        return next((node for node in found if node is not None), None)


class DrainShard(Drain):
    """A further process of a node is drained alone, and revived."""

    def named(self) -> tuple[int, ...]:
        """See `Drain`."""
        return (self.rng.choice(self.cluster.processes(self.node)[1:]),)


class Forget(Drain):
    """A node is drained, gives its replicas up, is forgotten, and comes back with an empty disk."""

    mean_s = 6.0
    least_s = 12.0
    after_s = 20.0  # in which it is taken in again

    @property
    def nodes(self) -> tuple[int, ...]:
        """See `Fault`."""
        return self.members

    def begin(self) -> None:
        """See `Fault`."""
        super().begin()
        self._wiped: set[int] = set()
        self._is_over = False
        self.errand.then(self._forget)

    def end(self) -> None:
        """See `Fault`."""
        self._is_over = True
        self.errand.only(self._return)

    async def _forget(self, site: Site) -> None:
        """Move replicas off all its processes, and remove them, the first one last."""
        node = await self._known(site)
        if node is None:
            return
        operations, view = site.node.operations, site.node.catalog.catalog
        processes = processes_of(node, view.nodes())
        for each in processes:
            operations.check_forget(each)
        for each in processes:
            await self._empty(site, each)
            await operations.forget(each)
            site.process.note(f"forgot {each.name}")

    async def _empty(self, site: Site, node: Node) -> None:
        operations, view = site.node.operations, site.node.catalog.catalog
        spares = {
            each.id: view.replica_count(each.id)
            for each in view.nodes()
            if each.id != node.id and not each.maintenance
        }
        placed = operations.placed_on(node.id)
        steps = shrink(placed, node.id, operations.up(), spares, places_of(view.nodes()))
        outcomes = await operations.apply_steps(steps)
        for _ in range(int(LEAVE_S / LOOK_S)):
            site.history.moved()
            if not any(queue.logged for queue in operations.placed_on(node.id)):
                return
            if self._is_over:
                break
            await asyncio.sleep(LOOK_S)
        problems = "; ".join(outcome.problem for outcome in outcomes if outcome.problem)
        raise AmqpError(PRECONDITION_FAILED, f"{node.name} still has replicas: {problems}")

    async def _return(self, site: Site) -> None:
        """Start what was forgotten without its data, and revive what was not."""
        await self.revive(site)
        view, cluster = site.node.catalog.catalog, self.cluster
        gone = [each for each in self.members if view.node(each) is None]
        for each in gone:
            if each == self.node:  # the first one is announced, the others join by themselves
                name = name_of(each)
                await site.node.operations.admit(Node(each, name, f"{name}:{PORT}"))
        for each in gone:
            if each not in self._wiped:
                self._wiped.add(each)
                cluster.kill(each)
                self.machine.disk.wipe_some(lambda path, own=each: is_data_of(own, path))  # type: ignore[misc]
            cluster.machines[each].start()
        site.history.moved()


class ForgetShard(Forget):
    """The same of a further process of a node alone."""

    def named(self) -> tuple[int, ...]:
        """See `Drain`."""
        return (self.rng.choice(self.cluster.processes(self.node)[1:]),)


DRAINS: Final[tuple[Kind, ...]] = (Drain, DrainShard)
FORGETS: Final[tuple[Kind, ...]] = (Forget, ForgetShard)
