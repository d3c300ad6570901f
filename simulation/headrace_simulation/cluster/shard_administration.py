"""Administrators of nodes with several processes: replicas move by production's plans."""

from __future__ import annotations

from typing import Final

from headrace_broker.catalog.movement import Step, add_step, shrink
from headrace_broker.catalog.placement import places_of
from headrace_simulation.cluster.clients import Site

REPLICAS: Final = 3


async def move_off(site: Site, name: str) -> None:
    """Take a replica off a process, to the one that production chooses; others may be moving."""
    queue = site.node.broker.queue("/", name)
    if queue is None:
        return
    operations, view = site.node.operations, site.node.catalog.catalog
    member = site.rng.choice(queue.members)
    spares = {
        each.id: view.replica_count(each.id)
        for each in view.nodes()
        if each.id != member and not each.maintenance
    }
    places = places_of(view.nodes())
    await _take(site, shrink([queue], member, operations.up(), spares, places))


async def add(site: Site, name: str) -> None:
    """Give a queue that has few replicas one more, in some process."""
    queue = site.node.broker.queue("/", name)
    if queue is None or len(queue.members) >= REPLICAS:
        return
    nodes = site.node.catalog.catalog.nodes()
    serving = [node.id for node in nodes if not node.maintenance]
    if serving:
        await _take(site, [add_step(queue, site.rng.choice(serving), places_of(nodes))])


async def _take(site: Site, steps: list[Step]) -> None:
    site.history.moved()
    for outcome in await site.node.operations.apply_steps(steps):
        if outcome.problem:
            site.process.note(f"administrator: {outcome.problem}")
    site.history.moved()
