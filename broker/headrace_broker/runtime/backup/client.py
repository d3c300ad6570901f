"""Asks nodes for points of queues, and for what stands there: see `backup_points`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import BACKUP_CATCH_UP_S
from headrace_broker.runtime.backup_points import NO_REPLICA, OK, BackupPoints
from headrace_broker.runtime.leader_client import QueueGoneError
from headrace_broker.runtime.pb.cluster_pb2 import (
    BackupAnswer,
    BackupKeep,
    BackupOpen,
    BackupProbe,
    BackupQuestion,
    BackupRead,
    ClusterPayload,
)
from headrace_broker.runtime.queue_host import QueueHost

LOG: Final = logging.getLogger(__name__)

ANSWER_S: Final = 5.0  # seconds for another node's answer; some MiB through a link that is busy


class NodeSilentError(Exception):
    """The node that has a point does not answer."""


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

    async def open(self, queue: Queue, ttl_ms: int) -> Opened:
        """Open a point of a queue on one of its nodes, rather not on the one that leads it.

        The answer of the last one that was asked, when none could.

        Raises:
            QueueGoneError: there is no such queue any more.
        """
        question = BackupQuestion(open=BackupOpen(group=queue.group, ttl_ms=ttl_ms))
        return await self._ask_replicas(queue, question)

    async def probe(self, queue: Queue, publisher: bytes) -> BackupAnswer:
        """Ask what a queue holds, and what it has had of a publisher; as `open`."""
        question = BackupQuestion(probe=BackupProbe(group=queue.group, publisher=publisher))
        return (await self._ask_replicas(queue, question)).answer

    async def _ask_replicas(self, queue: Queue, question: BackupQuestion) -> Opened:
        found = self._queue_by_group(queue.group)
        if found is None:
            raise QueueGoneError(f"no queue '{queue.name}' in vhost '{queue.vhost}'")
        opened = Opened(0, BackupAnswer(status=NO_REPLICA, text="no node with a replica answers"))
        for node in self._candidates(found):
            try:
                answer = await self._ask(node, question, BACKUP_CATCH_UP_S + ANSWER_S)
            except NodeSilentError:
                continue
            opened = Opened(node, answer)
            if answer.status == OK:
                break
        return opened

    async def read(self, node: int, asked: BackupRead) -> BackupAnswer:
        """Return messages of a point.

        Raises:
            NodeSilentError: its node does not answer.
        """
        return await self._ask(node, BackupQuestion(read=asked), ANSWER_S)

    async def keep(self, node: int, asked: BackupKeep) -> BackupAnswer:
        """Put the end of a point off; raises as `read`."""
        return await self._ask(node, BackupQuestion(keep=asked), ANSWER_S)

    async def close(self, node: int, point: int) -> BackupAnswer:
        """Give a point up; raises as `read`."""
        return await self._ask(node, BackupQuestion(close=point), ANSWER_S)

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
            return self._points.read(question.read)
        if kind == "keep":
            return self._points.keep(question.keep)
        if kind == "probe":
            return await self._points.probe(question.probe)
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
        except Exception:
            LOG.exception("a question of node %d about a backup could not be answered", source)
            return
        answer.request = question.request
        self._send(source, ClusterPayload(backup_answer=answer).SerializeToString())

    def receive_answer(self, source: int, answer: BackupAnswer) -> None:
        """Take another node's answer; a late one is dropped, and its point closed."""
        future = self._waiting.get(answer.request)
        if future is not None and not future.done():
            future.set_result(answer)
        elif answer.point:
            question = BackupQuestion(close=answer.point)  # whose answer nobody waits for
            self._send(source, ClusterPayload(backup_question=question).SerializeToString())
