"""Asks nodes for points of queues, and for what stands there: see `backup.points`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import BACKUP_ANSWER_S, BACKUP_CATCH_UP_S
from headrace_broker.runtime.backup.points import NO_REPLICA, OK, BackupPoints
from headrace_broker.runtime.backup.question import (
    BackupAnswer,
    ClosePoint,
    KeepPoint,
    OpenPoint,
    Probe,
    ReadPoint,
)
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.leader import QueueGoneError
from headrace_broker.runtime.rpc.protocol import RpcError

LINK_FACTOR: Final = 1.2  # of the time for an answer: a node says itself that its disk hangs


class Opened(NamedTuple):
    """A point that was opened on a node."""

    node: int
    answer: BackupAnswer


class BackupClient:
    """Asks this node and others."""

    def __init__(
        self,
        rpc: Rpc,
        points: BackupPoints,  # those of this node
        locate: Callable[[Queue], int],
        queue_by_group: Callable[[int], Queue | None],
    ) -> None:
        self._rpc = rpc  # asks them
        self._locate = locate  # where a queue's leader is, 0 for unknown
        # returns a queue as the catalog has it now, None for none
        self._queue_by_group = queue_by_group
        rpc.serve(OpenPoint, lambda _, asked: points.open(asked))
        rpc.serve(ReadPoint, lambda _, asked: points.read(asked))
        rpc.serve(KeepPoint, lambda _, asked: points.keep(asked))
        rpc.serve(ClosePoint, lambda _, asked: points.close(asked))
        rpc.serve(Probe, lambda _, asked: points.probe(asked))

    async def open(self, queue: Queue, ttl_ms: int, user: str) -> Opened:
        """Open a user's point of a queue on one of its nodes, rather not on the one that leads it.

        The answer of the last one that was asked, when none could.

        Raises QueueGoneError: there is no such queue any more.
        """
        return await self._ask_replicas(queue, OpenPoint(queue.group, ttl_ms, user))

    async def probe(self, queue: Queue, publisher: bytes) -> BackupAnswer:
        """Ask for a queue's content, and a publisher's state there; as `open`."""
        return (await self._ask_replicas(queue, Probe(queue.group, publisher))).answer

    async def _ask_replicas(self, queue: Queue, question: OpenPoint | Probe) -> Opened:
        found = self._queue_by_group(queue.group)
        if found is None:
            raise QueueGoneError(f"no queue '{queue.name}' in vhost '{queue.vhost}'")
        opened = Opened(0, BackupAnswer(NO_REPLICA, "no node with a replica answers"))
        for node in self._candidates(found):
            try:
                answer = await self._ask_replica(node, question)
            except RpcError:
                continue
            opened = Opened(node, answer)
            if answer.status == OK:
                break
        return opened

    async def _ask_replica(self, node: int, question: OpenPoint | Probe) -> BackupAnswer:
        def withdraw(late: BackupAnswer) -> None:
            """Give up a point that nobody was told of."""
            if late.point and isinstance(question, OpenPoint):
                self._rpc.tell(node, ClosePoint(late.point, question.user))

        seconds = BACKUP_CATCH_UP_S + BACKUP_ANSWER_S
        return await self._rpc.ask(node, question, seconds, late=withdraw)

    async def ask(self, node: int, question: ReadPoint | KeepPoint | ClosePoint) -> BackupAnswer:
        """Return what a node answers about a user's point.

        Raises RpcError: it does not answer, or its disk does not.
        """
        return await self._rpc.ask(node, question, BACKUP_ANSWER_S * LINK_FACTOR)

    def _candidates(self, queue: Queue) -> Iterator[int]:
        """Return the nodes to ask: this one first, the leader last."""
        own = self._rpc.node
        leader = self._locate(queue) if queue.logged else queue.members[0]
        followers = [node for node in queue.members if node != leader]
        if own in followers:
            yield own
        yield from (node for node in followers if node != own)
        if leader:
            yield leader
