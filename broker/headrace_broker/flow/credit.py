"""Credit: how many publishes a reader may hand to a channel before the channel has passed them on.

Source: RabbitMQ's credit flow, and for quorum queues its "quorum commands soft limit".
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.flow.flow_limits import FlowLimits


@final
class Credit:
    """One channel's credit.

    Attributes:
        left: publishes that may still be handed over; a batch may take it below 0.
        withheld: the channel grants none for now.
    """

    def __init__(self, limits: FlowLimits) -> None:
        self.withheld = False
        self._limits = limits
        self.left: i64 = limits.scaled(limits.credit)
        self._passed_on: i64 = 0

    def spend(self, messages: i64) -> None:
        """Publishes are handed to the channel."""
        self.left -= messages

    def passed_on(self, messages: i64) -> None:
        """The channel has handed publishes on; it grants as many again, by and by."""
        self._passed_on += messages
        self._grant()

    def withhold(self, withheld: bool) -> None:
        """Grant no credit, or do again, at once for all that was passed on meanwhile."""
        self.withheld = withheld
        if not withheld and self._passed_on > 0:
            self.left += self._passed_on
            self._passed_on = 0

    def _grant(self) -> None:
        limits = self._limits
        if not self.withheld and self._passed_on >= limits.scaled(limits.credit_more):
            self.left += self._passed_on
            self._passed_on = 0
