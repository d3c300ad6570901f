"""How much is in a queue, as its leader says."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace_broker.model.definition import Queue
from headrace_broker.runtime.leader_client import LeaderClient
from headrace_broker.runtime.pb.cluster_pb2 import ClusterPayload, Counts, CountsRequest
from headrace_broker.runtime.queue_host import QueueHost


class QueueCounts(NamedTuple):
    """Ready messages, unsettled messages and attached consumers of a queue."""

    ready: int
    unsettled: int
    consumers: int


def counts_of(host: QueueHost) -> QueueCounts:
    """Return what a replica holds."""
    machine = host.machine
    return QueueCounts(
        int(machine.ready_count), int(machine.unsettled_count), int(machine.consumer_count)
    )


def asked_counts_of(host: QueueHost) -> QueueCounts:
    """Return what a replica holds and note that somebody wanted to know."""
    host.use()
    return counts_of(host)


class CountsClient:
    """Asks leaders, for clients: to be asked about is to be used; see `LeaderClient`."""

    def __init__(
        self,
        node: int,
        hosts: dict[int, QueueHost],
        locate: Callable[[Queue], int],
        send: Callable[[int, bytes], bool],
        exists: Callable[[Queue], bool],
    ) -> None:
        self._leaders: LeaderClient[QueueCounts] = LeaderClient(node, hosts, locate, send, exists)

    async def ask(self, queue: Queue) -> QueueCounts:
        """Return the leader's counts.

        Raises:
            LeaderUnavailableError: nobody who leads the queue answered.
            QueueGoneError: nobody ever will.
        """

        def question(number: int) -> ClusterPayload:
            request = CountsRequest(group=queue.group, request=number)
            return ClusterPayload(counts_request=request)

        return await self._leaders.ask(queue, asked_counts_of, question)

    def receive_request(self, source: int, request: CountsRequest) -> None:
        """Answer another node."""
        answer = Counts(request=request.request)
        host = self._leaders.serving_host(request.group)
        if host is not None:
            answer.serving = True
            answer.ready, answer.unsettled, answer.consumers = asked_counts_of(host)
        self._leaders.answer(source, ClusterPayload(counts=answer))

    def receive_answer(self, answer: Counts) -> None:
        """Take another node's answer."""
        counts = QueueCounts(answer.ready, answer.unsettled, answer.consumers)
        self._leaders.receive(answer.request, counts if answer.serving else None)
