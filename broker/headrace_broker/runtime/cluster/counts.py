"""Message counts of a queue, from its leader."""

from __future__ import annotations

from headrace_broker.model.definition import Queue
from headrace_broker.model.status import QueueCounts, WatermarkStatus
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.leader import LeaderQuestion, Leaders


def counts_of(host: QueueHost) -> QueueCounts:
    """Return what a replica holds."""
    machine = host.machine
    settings = machine.settings
    watermark = WatermarkStatus(
        saturated=machine.saturated,
        deferred=int(machine.deferred_count),
        byte_count=int(machine.held_bytes),
        high=int(settings.high_watermark),
        low=int(settings.low_watermark),
        high_bytes=int(settings.high_watermark_bytes),
        low_bytes=int(settings.low_watermark_bytes),
    )
    return QueueCounts(
        int(machine.ready_count),
        int(machine.unsettled_count),
        int(machine.consumer_count),
        int(machine.oldest_ms()),
        watermark,
        int(machine.leased_count),
        int(machine.archived_count),
        int(machine.archived_bytes),
        int(machine.delayed_count),
        int(machine.dead_count),
    )


class AskCounts(LeaderQuestion[QueueCounts], frozen=True, tag="counts"):
    """Request the number of messages in a queue."""

    using: bool = False  # who asks uses the queue by that, so that it does not expire


class CountsClient:
    """Asks leaders, here or on other nodes."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders
        leaders.serve(AskCounts, _answer)

    async def ask(self, queue: Queue, using: bool = False) -> QueueCounts:
        """Return the leader's counts; `using` for who uses the queue by that, and keeps it alive.

        Raises LeaderUnavailableError: no answer; QueueGoneError: there never will be one.
        """
        return await self._leaders.ask(queue, AskCounts(queue.group, using))

    async def ask_whom(self, queue: Queue) -> tuple[QueueCounts, int]:
        """Return the leader's counts and the id of its node; errors are those of `ask`."""
        return await self._leaders.ask_whom(queue, AskCounts(queue.group))


def _answer(host: QueueHost, question: AskCounts) -> QueueCounts:
    if question.using:
        host.use()
    return counts_of(host)
