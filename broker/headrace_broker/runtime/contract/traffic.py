"""Messages through this node's gateways, counted since its start."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.core.queue.state.tally import Tally
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import TELEMETRY_PURGES_MAX


@final
class Traffic:
    """Counters that only grow; `model.status.MessageCounters` says what each means."""

    def __init__(self) -> None:
        self.publish: i64 = 0
        self.confirm: i64 = 0
        self.deliver: i64 = 0
        self.redeliver: i64 = 0
        self.ack: i64 = 0
        self.tally = Tally()  # what the queues led here have let go
        self.leases_expired: i64 = 0  # of groups that lease messages of these
        # queues that were purged through this node, and how many messages went, until somebody
        # takes them; None where nobody does
        self.purges: list[tuple[Queue, int]] | None = None

    def delivered(self, redelivered: bytes) -> None:
        """Count a run of deliveries, one byte each, 1 for a message that was delivered before."""
        self.deliver += len(redelivered)
        self.redeliver += redelivered.count(1)

    def purged(self, queue: Queue, count: int) -> None:
        """Note that a queue was purged."""
        purges = self.purges
        if purges is not None and len(purges) < TELEMETRY_PURGES_MAX:
            purges.append((queue, count))


@final
class ClientTraffic:
    """Counters of one channel or connection; they only grow."""

    def __init__(self) -> None:
        self.publish: i64 = 0  # messages that its client published
        self.confirm: i64 = 0  # of these, those that were confirmed to it
        self.return_unroutable: i64 = 0  # of these, came back: no queue takes them
        self.drop_unroutable: i64 = 0  # of these, those that were dropped for the same reason
        self.deliver: i64 = 0  # messages that its consumers were sent, to be acknowledged
        self.deliver_no_ack: i64 = 0  # likewise, of consumers that acknowledge nothing
        self.get: i64 = 0  # messages that it fetched singly, to be acknowledged
        self.get_no_ack: i64 = 0  # likewise, without
        self.get_empty: i64 = 0  # how often it wanted to fetch one and there was none
        self.redeliver: i64 = 0  # of what it was sent, that which had been delivered before
        self.ack: i64 = 0  # messages that it has accepted

    def delivered(self, redelivered: bytes, no_ack: bool) -> None:
        """Count a run of deliveries; see `Traffic.delivered`."""
        if no_ack:
            self.deliver_no_ack += len(redelivered)
        else:
            self.deliver += len(redelivered)
        self.redeliver += redelivered.count(1)

    def got(self, redelivered: bytes, no_ack: bool) -> None:
        """Count fetched messages; see `Traffic.delivered`."""
        if no_ack:
            self.get_no_ack += len(redelivered)
        else:
            self.get += len(redelivered)
        self.redeliver += redelivered.count(1)

    def counts(self) -> tuple[int, ...]:
        """Return the counters that `model.stats.CLIENT_FIGURES` names."""
        return (
            *(self.publish, self.confirm, self.return_unroutable, self.drop_unroutable),
            *(self.deliver, self.deliver_no_ack, self.get, self.get_no_ack, self.get_empty),
            *(self.redeliver, self.ack),
        )

    def add(self, other: ClientTraffic) -> None:
        """Add the counters of another one."""
        self.publish += other.publish
        self.confirm += other.confirm
        self.return_unroutable += other.return_unroutable
        self.drop_unroutable += other.drop_unroutable
        self.deliver += other.deliver
        self.deliver_no_ack += other.deliver_no_ack
        self.get += other.get
        self.get_no_ack += other.get_no_ack
        self.get_empty += other.get_empty
        self.redeliver += other.redeliver
        self.ack += other.ack


@final
class ExchangeTraffic:
    """Counters of publishes by clients of this node to an exchange; they only grow."""

    def __init__(self) -> None:
        self.publish_in: i64 = 0  # messages
        self.publish_out: i64 = 0  # messages times the queues that each went to

    def routed(self, count: i64, queues: i64) -> None:
        """Count messages that went to so many queues each."""
        self.publish_in += count
        self.publish_out += count * queues

    def counts(self) -> tuple[int, ...]:
        """Return the counters that `model.stats.EXCHANGE_FIGURES` names."""
        return (self.publish_in, self.publish_out)
