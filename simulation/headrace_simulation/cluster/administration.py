"""Administrators: they move leaders and replicas, declare and delete queues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from headrace_broker.catalog.movement import Step
from headrace_broker.model.reply_code import AmqpError
from headrace_simulation.cluster.clients import Publisher, Site

PAUSE_S: Final = 4.0  # between two of these, on average


Work = Callable[[Site, str], Awaitable[None]]  # of an administrator, on a queue


async def administer(site: Site, queues: Sequence[str], more: Sequence[Work] = ()) -> None:
    """Do one after the other while there is work; what is refused is left alone.

    Args:
        site: where.
        queues: by name.
        more: what is done besides moves, transfers, and declarations of queues that are deleted.
    """
    rng = site.rng
    while site.wanted.publishes:
        await asyncio.sleep(rng.uniform(0.5, 2 * PAUSE_S))
        queue = rng.choice(queues)
        try:
            async with asyncio.timeout(10):
                work = rng.choice((_transfer, _transfer, _move, _come_and_go, *more))
                site.process.note(f"{work.__name__} {queue}")
                await work(site, queue)
        except (AmqpError, TimeoutError) as error:
            site.process.note(f"administrator: {error!r}")


async def _transfer(site: Site, name: str) -> None:
    queue = site.node.broker.queue("/", name)
    nodes = site.node.catalog.catalog.nodes()
    if queue is not None:
        site.history.moved()
        await site.node.operations.transfer(queue, site.rng.choice(nodes))
        site.history.moved()


async def _move(site: Site, name: str) -> None:
    """Move a replica to a node that has none, where there is one."""
    queue = site.node.broker.queue("/", name)
    if queue is None or queue.leaving:
        return
    nodes = [int(each.id) for each in site.node.catalog.catalog.nodes()]
    free = [node for node in nodes if node not in queue.members]
    if free:
        site.history.moved()
        step = Step(queue, (site.rng.choice(free),), (site.rng.choice(queue.members),))
        await site.node.operations.apply_steps([step])
        site.history.moved()


async def _come_and_go(site: Site, name: str) -> None:
    """Declare a queue, publish to it, and delete it; what was in it is gone."""
    name = f"{name}.{site.name('t')}"
    site.history.deleted.add(name)
    await declare(site, name)
    queue = site.node.broker.queue("/", name)
    assert queue is not None, "it was declared here"
    await Publisher(site, queue, 0.02).run(0.5)
    await _topology(site).delete_queue(queue, if_unused=False, if_empty=False)


def _topology(site: Site) -> Any:
    """Return what declares and deletes queues; of a build before, its broker does."""
    broker: Any = site.node.broker
    return getattr(broker, "topology", broker)


async def declare(site: Site, name: str, **arguments: Any) -> None:
    """Declare a quorum queue, however long it takes."""
    while True:
        try:
            await _topology(site).declare_queue(
                "/", name, True, False, False, {"x-queue-type": "quorum", **arguments}, ""
            )
        except AmqpError as error:
            site.process.note(f"declare: {error.text}")
            await asyncio.sleep(0.5)
        else:
            return
