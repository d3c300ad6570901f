"""Asks nodes for points of queues, and for what stands there: see `backup_points`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import BACKUP_ANSWER_S, BACKUP_CATCH_UP_S
from headrace_broker.runtime.backup.points import NO_REPLICA, OK, BackupPoints, NodeSilentError
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.leader_client import QueueGoneError
from headrace_protos.cluster.v1.cluster_pb2 import (
    BackupAnswer,
    BackupKeep,
    BackupOpen,
    BackupProbe,
    BackupQuestion,
    BackupRead,
    BackupUse,
    ClusterPayload,
)

LOG: Final = logging.getLogger("headrace.queue")


class NodeTooOldError(Exception):
    """A node does not judge who uses its points: it has to be upgraded first."""


class Opened(NamedTuple):
    """A point that was opened on a node."""

    node: int
    answer: BackupAnswer


class BackupClient:
    """Asks this node and others.

    Args:
        node: this node's id.
        points: those of this node.
        hosts: replicas on this node by group.
        locate: where a queue's leader is, 0 for unknown.
        send: carries a payload to a node.
        queue_by_group: returns a queue as the catalog has it now, None for none.
    """

    def __init__(
        self,
        node: int,
        points: BackupPoints,
        hosts: dict[int, QueueHost],
        locate: Callable[[Queue], int],
        send: Callable[[int, bytes], bool],
        queue_by_group: Callable[[int], Queue | None],
    ) -> None:
        self._node = node
        self._points = points
        self._hosts = hosts
        self._locate = locate
        self._send = send
        self._queue_by_group = queue_by_group
        self._next = 1
        self._waiting: dict[int, asyncio.Future[BackupAnswer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, queue: Queue, ttl_ms: int, user: str) -> Opened:
        """Open a user's point of a queue on one of its nodes, rather not on the one that leads it.

        The answer of the last one that was asked, when none could.

        Raises:
            QueueGoneError: there is no such queue any more.
            NodeTooOldError: only nodes could that would let other users read it.
        """
        question = BackupQuestion(open=BackupOpen(group=queue.group, ttl_ms=ttl_ms, user=user))
        return await self._ask_replicas(queue, question)

    async def probe(self, queue: Queue, publisher: bytes) -> BackupAnswer:
        """Ask for a queue's content, and a publisher's state there; as `open`."""
        question = BackupQuestion(probe=BackupProbe(group=queue.group, publisher=publisher))
        return (await self._ask_replicas(queue, question)).answer

    async def _ask_replicas(self, queue: Queue, question: BackupQuestion) -> Opened:
        found = self._queue_by_group(queue.group)
        if found is None:
            raise QueueGoneError(f"no queue '{queue.name}' in vhost '{queue.vhost}'")
        opened = Opened(0, BackupAnswer(status=NO_REPLICA, text="no node with a replica answers"))
        too_old = 0
        for node in self._candidates(found):
            try:
                answer = await self._ask(node, question, BACKUP_CATCH_UP_S + BACKUP_ANSWER_S)
            except NodeSilentError:
                continue
            if answer.status == OK and answer.owner != question.open.user:
                self._withdraw(node, answer)
                too_old = node
                continue
            opened = Opened(node, answer)
            if answer.status == OK:
                return opened
        if too_old:
            raise _too_old(too_old)
        return opened

    async def read(self, node: int, asked: BackupRead, user: str) -> BackupAnswer:
        """Return messages of a user's point.

        Raises:
            NodeSilentError: its node does not answer, or its disk does not.
            NodeTooOldError: its node checks no permissions, and has done nothing.
        """
        return await self._use(node, BackupUse(user=user, read=asked))

    async def keep(self, node: int, asked: BackupKeep, user: str) -> BackupAnswer:
        """Put the end of a user's point off; raises as `read`."""
        return await self._use(node, BackupUse(user=user, keep=asked))

    async def close(self, node: int, point: int, user: str) -> BackupAnswer:
        """Give a user's point up; raises as `read`."""
        return await self._use(node, BackupUse(user=user, close=point))

    async def _use(self, node: int, asked: BackupUse) -> BackupAnswer:
        answer = await self._ask(node, BackupQuestion(use=asked), BACKUP_ANSWER_S)
        if answer.owner != asked.user:
            raise _too_old(node)
        return answer

    def _withdraw(self, node: int, opened: BackupAnswer) -> None:
        """Give up a point that no client knows of, without waiting for the answer."""
        question = BackupQuestion(close=opened.point)  # of an older node
        if opened.owner:
            question = BackupQuestion(use=BackupUse(close=opened.point))
        if node == self._node:
            self._points.withdraw(opened.point)
        else:
            self._send(node, ClusterPayload(backup_question=question).SerializeToString())

    def _candidates(self, queue: Queue) -> Iterator[int]:
        """Return the nodes to ask: this one first, the leader last."""
        leader = self._locate(queue) if queue.logged else queue.members[0]
        followers = [node for node in queue.members if node != leader]
        if self._node in followers:
            yield self._node
        yield from (node for node in followers if node != self._node)
        if leader:
            yield leader

    async def _ask(self, node: int, question: BackupQuestion, seconds: float) -> BackupAnswer:
        if node == self._node:
            return await self._answer(question)
        number = question.request = self._next
        self._next += 1
        future: asyncio.Future[BackupAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            payload = ClusterPayload(backup_question=question).SerializeToString()
            async with asyncio.timeout(seconds):
                if not self._send(node, payload):
                    raise NodeSilentError(f"node {node} cannot be reached")
                return await future
        except TimeoutError:
            raise NodeSilentError(f"node {node} does not answer within {seconds:.0f} s") from None
        finally:
            del self._waiting[number]

    async def _answer(self, question: BackupQuestion) -> BackupAnswer:
        kind = question.WhichOneof("kind")
        if kind == "open":
            return await self._points.open(question.open)
        if kind == "read":
            return await self._points.read(question.read)
        if kind == "keep":
            return self._points.keep(question.keep)
        if kind == "probe":
            return await self._points.probe(question.probe)
        if kind == "use":
            return await self._points.use(question.use)
        return self._points.close(question.close)

    # From other nodes

    def receive_question(self, source: int, question: BackupQuestion) -> None:
        """Answer another node; it asks again if that is lost."""
        task = asyncio.get_running_loop().create_task(self._reply(source, question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reply(self, source: int, question: BackupQuestion) -> None:
        try:
            answer = await self._answer(question)
        except NodeSilentError as error:  # it has waited as long without an answer
            LOG.warning("backup request of node %d not answered: %s", source, error)
            return
        except Exception:
            LOG.exception("backup request of node %d failed", source)
            return
        answer.request = question.request
        self._send(source, ClusterPayload(backup_answer=answer).SerializeToString())

    def receive_answer(self, source: int, answer: BackupAnswer) -> None:
        """Take another node's answer; a late one is dropped, and its point closed."""
        future = self._waiting.get(answer.request)
        if future is not None and not future.done():
            future.set_result(answer)
        elif answer.point:
            self._withdraw(source, answer)


def _too_old(node: int) -> NodeTooOldError:
    text = "runs an older version, which does not judge who uses its points: upgrade it first"
    return NodeTooOldError(f"node {node} {text}")
