"""Readers of backups: they open points of queues, and read them slowly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from headrace_broker.codecs.batch import message_body
from headrace_broker.model.definition import Queue
from headrace_broker.runtime.backup.chunk import last_id, read_heads
from headrace_broker.runtime.backup.points import LOST, OK
from headrace_broker.runtime.backup.question import BackupAnswer, ClosePoint, KeepPoint, ReadPoint
from headrace_broker.runtime.rpc.leader import QueueGoneError
from headrace_broker.runtime.rpc.protocol import RpcError
from headrace_simulation.cluster.clients import RETRY_S, Site

if TYPE_CHECKING:
    from headrace_simulation.cluster.history import Message

USER: Final = "guest"
TTL_MS: Final = 10_000
CHUNK_BYTES: Final = 1 << 20
NOT_KEPT: Final = "the log has not kept it"  # begin of a refusal that only a fault of ours explains


@final
class Backup:
    """A backup of one queue."""

    def __init__(self, site: Site, queue: Queue) -> None:
        self._site = site
        self._queue = queue
        self._client = site.node.backups
        self._name = f"{site.name('backup')} of {queue.name}"

    async def run(self) -> None:
        """Read a point to its end, unless it is lost; RpcError, QueueGoneError."""
        site, queue = self._site, self._queue
        asked_ns, there = site.process.world.now_ns, site.history.present(queue.name)
        node, answer = await self._client.open(queue, TTL_MS, USER)
        if answer.status != OK:
            site.process.note(f"{self._name}: {answer.text}")
            return
        # What is accepted meanwhile may be gone at the point.
        there = [each for each in there if not each.accepts and not each.rejected]
        bodies = await self._read(node, answer.point)
        await self._client.ask(node, ClosePoint(answer.point, USER))
        if bodies is not None:
            site.process.note(f"{self._name}: {len(bodies)} messages")
            self._check(bodies, answer.messages, there, asked_ns)

    async def _read(self, node: int, point: int) -> list[bytes] | None:
        """Return the bodies of a point; None where it was lost."""
        rng, bodies, after = self._site.rng, list[bytes](), 0
        while True:
            asked = ReadPoint(point, USER, after, rng.choice((2, 10, 50)), CHUNK_BYTES)
            found = await self._client.ask(node, asked)
            if self._is_over(found):
                return None
            if not found.heads:
                return bodies
            count = sum(1 for _ in read_heads(found.heads))
            bodies += [message_body(found.batch, 0, at) for at in range(count)]
            after = last_id(found.heads)
            await asyncio.sleep(rng.uniform(0, 0.4))
            if rng.random() < 0.5:
                kept = await self._client.ask(node, KeepPoint(point, USER, done=after))
                if self._is_over(kept):
                    return None

    def _is_over(self, answer: BackupAnswer) -> bool:
        if answer.status == OK:
            return False
        self._site.process.note(f"{self._name}: {answer.text}")
        if answer.status == LOST and answer.text.startswith(NOT_KEPT):
            self._site.history.violated(f"{self._name}: {answer.text}")
        return True

    def _check(self, bodies: list[bytes], told: int, there: list[Message], asked_ns: int) -> None:
        history = self._site.history
        if len(bodies) != told or len({*bodies}) != told:
            history.violated(f"{self._name} has {len(bodies)} messages, and was told of {told}")
        missing = [each.body[:24] for each in there if each.body not in {*bodies}]
        if missing:
            history.violated(f"{self._name} lacks {len(missing)} messages: {missing[:3]}")
        for body in bodies:
            history.backed_up(self._name, self._queue.name, body, asked_ns)


async def back_up_from(site: Site, queue: str) -> None:
    """Make one backup of a queue after the other while there is work."""
    while site.wanted.publishes:
        await asyncio.sleep(site.rng.uniform(RETRY_S, 4))
        found = site.node.broker.queue("/", queue)
        if found is not None:
            try:
                await Backup(site, found).run()
            except (RpcError, QueueGoneError) as error:
                site.process.note(f"backup: {error}")
