"""Requests to the leader of a queue, here or on another node, repeated until it answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from headrace_broker.model.definition import Queue
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.replica.reading.answers import Answers
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_protos.cluster.v1.cluster_pb2 import ClusterPayload

ATTEMPT_SECONDS: Final = 1.0  # wait for one node's answer before the leader is looked up again
PAUSE_SECONDS: Final = 0.1  # between attempts: an election takes some of them
ANSWER_SECONDS_MAX: Final = 10.0  # then the queue counts as not available

LOG: Final = logging.getLogger("headrace.cluster")

A = TypeVar("A")


class LeaderUnavailableError(Exception):
    """No leader of the queue answered: too few of its replicas are running."""


class QueueGoneError(Exception):
    """The queue was deleted before it answered."""


class Reach(NamedTuple):
    """Arguments of a `LeaderClient`: how leaders of queues are found and asked."""

    node: int
    hosts: dict[int, QueueHost]
    locate: Callable[[Queue], int]
    send: Callable[[int, bytes], bool]
    exists: Callable[[Queue], bool]


class LeaderClient(Generic[A]):
    """Asks one kind of question.

    Args:
        node: this node's id.
        hosts: replicas on this node by group.
        locate: where the leader of a queue is, 0 for unknown.
        send: carries a payload to a node.
        exists: whether a queue, this incarnation of it, is in the catalog as applied here.
    """

    def __init__(
        self,
        node: int,
        hosts: dict[int, QueueHost],
        locate: Callable[[Queue], int],
        send: Callable[[int, bytes], bool],
        exists: Callable[[Queue], bool],
    ) -> None:
        self._node = node
        self._hosts = hosts
        self._locate = locate
        self._send = send
        self._exists = exists
        self._next = 1
        self._waiting: dict[int, asyncio.Future[A | None]] = {}
        self._answers = Answers()
        self._tasks: set[asyncio.Task[None]] = set()  # answers to other nodes that are read

    async def ask(
        self, queue: Queue, here: Callable[[QueueHost], A], payload: Callable[[int], ClusterPayload]
    ) -> A:
        """Return the leader's answer.

        Args:
            queue: which queue.
            here: answers when it is led on this node.
            payload: returns the question to another node under a request number.

        Raises:
            LeaderUnavailableError: no leader of the queue answered.
            QueueGoneError: the queue was deleted.
        """
        return await self.ask_reading(queue, lambda host, _: here(host), payload)

    async def ask_reading(
        self,
        queue: Queue,
        here: Callable[[QueueHost, Entries], A],
        payload: Callable[[int], ClusterPayload],
    ) -> A:
        """Return the leader's answer, for which entries of the log may have to be read.

        Args:
            queue: which queue.
            here: answers when it is led on this node, as `Answers.cut` says.
            payload: as for `ask`, as is what is raised.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                while True:
                    host = self.serving_host(queue.group)
                    answer = None if host is None else await self._cut(host, here)
                    if answer is not None:
                        return answer
                    if not self._exists(queue):
                        raise QueueGoneError(f"no queue '{queue.name}' in vhost '{queue.vhost}'")
                    answer = await self._ask_node(self._locate(queue), payload)
                    if answer is not None:
                        return answer
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            text = f"no leader of queue '{queue.name}' answers"
            if self.serving_host(queue.group) is not None:
                text = f"the disk does not give back messages of queue '{queue.name}' in time"
            raise LeaderUnavailableError(text) from None

    async def _ask_node(self, target: int, payload: Callable[[int], ClusterPayload]) -> A | None:
        if not target or target == self._node:
            return None
        number = self._next
        self._next += 1
        future: asyncio.Future[A | None] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                if not self._send(target, payload(number).SerializeToString()):
                    return None
                return await future
        except TimeoutError:
            return None
        finally:
            del self._waiting[number]

    def serving_host(self, group: int) -> QueueHost | None:
        """Return the replica that another node asks for, when it leads."""
        host = self._hosts.get(group)
        return host if host is not None and host.serving else None

    async def _cut(self, host: QueueHost, here: Callable[[QueueHost, Entries], A]) -> A | None:
        """Return the answer of a replica; None where it leads no more."""
        group = host.queue.group
        return await self._answers.cut(
            host.log,
            group,
            lambda entries: here(host, entries),
            lambda: self.serving_host(group) is host,
        )

    def answer_reading(
        self,
        source: int,
        group: int,
        here: Callable[[QueueHost, Entries], A],
        payload: Callable[[A | None], ClusterPayload],
    ) -> None:
        """Answer another node's question, for which entries of the log may have to be read.

        Args:
            source: which node.
            group: of the queue.
            here: answers when it is led on this node, as `Answers.cut` says.
            payload: returns the answer to that node, given None where another one leads.
        """
        host = self.serving_host(group)
        if host is None:
            self.answer(source, payload(None))
            return
        entries = Entries(host.log)
        found = here(host, entries)
        if not entries.missing:
            self.answer(source, payload(found))
            return
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._read(source, host, entries, here, payload))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(
        self,
        source: int,
        host: QueueHost,
        entries: Entries,
        here: Callable[[QueueHost, Entries], A],
        payload: Callable[[A | None], ClusterPayload],
    ) -> None:
        """Answer another node once what the first look has missed is read."""
        group = host.queue.group
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):  # then nobody waits for it any more
                found = await self._answers.read(
                    entries,
                    group,
                    lambda entries: here(host, entries),
                    lambda: self.serving_host(group) is host,
                )
        except TimeoutError:
            return
        except Exception:
            LOG.exception("request of node %d about group %d failed", source, group)
            return
        self.answer(source, payload(found))

    def answer(self, target: int, payload: ClusterPayload) -> None:
        """Answer another node; it asks again if that is lost."""
        self._send(target, payload.SerializeToString())

    def receive(self, number: int, answer: A | None) -> None:
        """Take another node's answer, None from one that does not lead; a late one is dropped."""
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(answer)
