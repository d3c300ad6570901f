"""Asks whoever leads a queue, here or on another node, until somebody answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from headrace_broker.model.definition import Queue
from headrace_broker.runtime.pb.cluster_pb2 import ClusterPayload
from headrace_broker.runtime.queue_host import QueueHost

ATTEMPT_SECONDS: Final = 1.0  # wait for one node's answer before the leader is looked up again
PAUSE_SECONDS: Final = 0.1  # between attempts: an election takes some of them
ANSWER_SECONDS_MAX: Final = 10.0  # then the queue counts as not available

A = TypeVar("A")


class LeaderUnavailableError(Exception):
    """No leader of the queue answered: too few of its replicas are running."""


class QueueGoneError(Exception):
    """The queue was deleted before it answered."""


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

    async def ask(
        self, queue: Queue, here: Callable[[QueueHost], A], payload: Callable[[int], ClusterPayload]
    ) -> A:
        """Return the leader's answer.

        Args:
            queue: which queue.
            here: answers when it is led on this node.
            payload: returns the question to another node under a request number.

        Raises:
            LeaderUnavailableError: nobody who leads the queue answered.
            QueueGoneError: nobody ever will.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                while True:
                    host = self._hosts.get(queue.group)
                    if host is not None and host.serving:
                        return here(host)
                    if not self._exists(queue):
                        raise QueueGoneError(f"no queue '{queue.name}' in vhost '{queue.vhost}'")
                    answer = await self._ask_node(self._locate(queue), payload)
                    if answer is not None:
                        return answer
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise LeaderUnavailableError(f"no leader of queue '{queue.name}' answers") from None

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

    def answer(self, target: int, payload: ClusterPayload) -> None:
        """Answer another node; it asks again if that is lost."""
        self._send(target, payload.SerializeToString())

    def receive(self, number: int, answer: A | None) -> None:
        """Take another node's answer, None from one that does not lead; a late one is dropped."""
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(answer)
