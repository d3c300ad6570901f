"""How much is in a queue, as its leader says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from headrace_broker.model.definition import Queue
from headrace_broker.runtime.pb.cluster_pb2 import ClusterPayload, Counts, CountsRequest
from headrace_broker.runtime.queue_host import QueueHost

ATTEMPT_SECONDS: Final = 1.0  # wait for one node's answer before the leader is looked up again
PAUSE_SECONDS: Final = 0.1  # between attempts: an election takes some of them
ANSWER_SECONDS_MAX: Final = 10.0  # then the queue counts as not available


class QueueCounts(NamedTuple):
    """Ready messages, unsettled messages and attached consumers of a queue."""

    ready: int
    unsettled: int
    consumers: int


class CountsUnavailableError(Exception):
    """No leader of the queue answered: too few of its replicas are running."""


class QueueGoneError(Exception):
    """The queue was deleted before it answered."""


def counts_of(host: QueueHost) -> QueueCounts:
    """Return what a replica holds."""
    machine = host.machine
    return QueueCounts(
        int(machine.ready_count), int(machine.unsettled_count), int(machine.consumer_count)
    )


class CountsClient:
    """Asks leaders, here or on other nodes, for clients: to be asked about is to be used.

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
        self._waiting: dict[int, asyncio.Future[Counts]] = {}

    async def ask(self, queue: Queue) -> QueueCounts:
        """Return the leader's counts.

        Raises:
            CountsUnavailableError: nobody who leads the queue answered.
            QueueGoneError: nobody ever will.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                while True:
                    host = self._hosts.get(queue.group)
                    if host is not None and host.serving:
                        host.use()
                        return counts_of(host)
                    if not self._exists(queue):
                        raise QueueGoneError(f"no queue '{queue.name}' in vhost '{queue.vhost}'")
                    answer = await self._ask_node(self._locate(queue), queue)
                    if answer is not None and answer.serving:
                        return QueueCounts(answer.ready, answer.unsettled, answer.consumers)
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise CountsUnavailableError(f"no leader of queue '{queue.name}' answers") from None

    async def _ask_node(self, target: int, queue: Queue) -> Counts | None:
        if not target or target == self._node:
            return None
        number = self._next
        self._next += 1
        future: asyncio.Future[Counts] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                request = CountsRequest(group=queue.group, request=number)
                payload = ClusterPayload(counts_request=request).SerializeToString()
                return await future if self._send(target, payload) else None
        except TimeoutError:
            return None
        finally:
            del self._waiting[number]

    def receive_request(self, source: int, request: CountsRequest) -> None:
        """Answer another node."""
        answer = Counts(request=request.request)
        host = self._hosts.get(request.group)
        if host is not None and host.serving:
            host.use()
            counts = counts_of(host)
            answer.serving = True
            answer.ready, answer.unsettled, answer.consumers = counts
        self._send(source, ClusterPayload(counts=answer).SerializeToString())

    def receive_answer(self, answer: Counts) -> None:
        """Take another node's answer; one that nobody waits for any more is dropped."""
        future = self._waiting.get(answer.request)
        if future is not None and not future.done():
            future.set_result(answer)
