"""Messages through this node's gateways, counted since its start."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.core.queue.tally import Tally


@final
class Traffic:
    """Counters that only grow; `model.status.MessageCounters` says what each means.

    Attributes:
        tally: what the queues led here have let go.
        leases_expired: of groups that lease messages of these.
    """

    def __init__(self) -> None:
        self.publish: i64 = 0
        self.confirm: i64 = 0
        self.deliver: i64 = 0
        self.redeliver: i64 = 0
        self.ack: i64 = 0
        self.tally = Tally()
        self.leases_expired: i64 = 0

    def delivered(self, redelivered: bytes) -> None:
        """Count a run of deliveries, one octet each, 1 for a message that was delivered before."""
        self.deliver += len(redelivered)
        self.redeliver += redelivered.count(1)
