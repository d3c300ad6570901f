"""Message counts of a queue, from its leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from headrace_broker.model.definition import Queue
from headrace_broker.model.status import WatermarkStatus
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.leader_client import LeaderClient
from headrace_protos.cluster.v1.cluster_pb2 import (
    ClusterPayload,
    Counts,
    CountsRequest,
    Watermark,
)


class QueueCounts(NamedTuple):
    """Ready messages, unsettled messages and attached consumers of a queue.

    Attributes:
        oldest_ms: Unix time at which the oldest ready message arrived, 0 without one.
        watermark: whether it holds too much.
        leased: those of the unsettled ones that groups hold.
        archived: settled messages that are kept.
        archived_octets: of their bodies.
        delayed: messages that become available later; None where the leader does not tell.
        dead: dead letters that are kept until they have arrived, likewise.
    """

    ready: int
    unsettled: int
    consumers: int
    oldest_ms: int = 0
    watermark: WatermarkStatus = WatermarkStatus()
    leased: int = 0
    archived: int = 0
    archived_octets: int = 0
    delayed: int | None = None
    dead: int | None = None

    @property
    def held(self) -> int:
        """Messages that have not left for good, as far as the leader tells."""
        return self.ready + self.unsettled + (self.delayed or 0) + (self.dead or 0)

    @property
    def is_empty(self) -> bool:
        """True if a delete with `if-empty` passes: as in RabbitMQ, unsettled messages do not count.

        Where a leader of an older release does not tell what is delayed, the octets held do.
        """
        if self.delayed is None and not self.unsettled and self.watermark.octets:
            return False
        return self.held == self.unsettled


def counts_of(host: QueueHost) -> QueueCounts:
    """Return what a replica holds."""
    machine = host.machine
    return QueueCounts(
        int(machine.ready_count),
        int(machine.unsettled_count),
        int(machine.consumer_count),
        int(machine.oldest_ms()),
        watermark_of(host),
        int(machine.leased_count),
        int(machine.archived_count),
        int(machine.archived_octets),
        int(machine.delayed_count),
        int(machine.dead_count),
    )


def watermark_of(host: QueueHost) -> WatermarkStatus:
    """Return whether a replica's queue holds too much."""
    machine = host.machine
    settings = machine.settings
    return WatermarkStatus(
        saturated=machine.saturated,
        withheld=int(machine.withheld_count),
        octets=int(machine.held_octets),
        high=int(settings.high_watermark),
        low=int(settings.low_watermark),
        high_octets=int(settings.high_watermark_octets),
        low_octets=int(settings.low_watermark_octets),
    )


def used_counts_of(host: QueueHost) -> QueueCounts:
    """Return what a replica holds to a client, for whom asking is using."""
    host.use()
    return counts_of(host)


class CountsClient:
    """Asks leaders, here or on other nodes; see `LeaderClient`."""

    def __init__(
        self,
        node: int,
        hosts: dict[int, QueueHost],
        locate: Callable[[Queue], int],
        send: Callable[[int, bytes], bool],
        exists: Callable[[Queue], bool],
    ) -> None:
        self._leaders: LeaderClient[QueueCounts] = LeaderClient(node, hosts, locate, send, exists)

    async def ask(self, queue: Queue, using: bool = False) -> QueueCounts:
        """Return the leader's counts; `using` for who uses the queue by that, and keeps it alive.

        Raises:
            LeaderUnavailableError: no leader of the queue answered.
            QueueGoneError: the queue was deleted.
        """

        def question(number: int) -> ClusterPayload:
            request = CountsRequest(group=queue.group, request=number, using=using)
            return ClusterPayload(counts_request=request)

        return await self._leaders.ask(queue, used_counts_of if using else counts_of, question)

    def receive_request(self, source: int, request: CountsRequest) -> None:
        """Answer another node."""
        answer = Counts(request=request.request)
        host = self._leaders.serving_host(request.group)
        if host is not None:
            answer.serving = True
            counts = used_counts_of(host) if request.using else counts_of(host)
            answer.ready, answer.unsettled, answer.consumers, answer.oldest_ms = counts[:4]
            answer.leased, answer.archived, answer.archived_octets = counts[5:8]
            if counts.delayed is not None and counts.dead is not None:
                answer.delayed, answer.dead = counts.delayed, counts.dead
            answer.watermark.CopyFrom(Watermark(**msgspec.structs.asdict(counts.watermark)))
        self._leaders.answer(source, ClusterPayload(counts=answer))

    def receive_answer(self, answer: Counts) -> None:
        """Take another node's answer."""
        mark = answer.watermark
        watermark = WatermarkStatus(
            mark.saturated,
            mark.withheld,
            mark.octets,
            mark.high,
            mark.low,
            mark.high_octets,
            mark.low_octets,
        )
        counts = QueueCounts(
            answer.ready,
            answer.unsettled,
            answer.consumers,
            answer.oldest_ms,
            watermark,
            answer.leased,
            answer.archived,
            answer.archived_octets,
            answer.delayed if answer.HasField("delayed") else None,
            answer.dead if answer.HasField("dead") else None,
        )
        self._leaders.receive(answer.request, counts if answer.serving else None)
