"""Credit: how many publishes a reader may hand to a channel before the channel has passed them on.

Source: RabbitMQ's credit flow, and for quorum queues its "quorum commands soft limit".
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.flow.flow_limits import FlowLimits


@final
class Credit:
    """One channel's credit."""

    def __init__(self, limits: FlowLimits) -> None:
        self.deferred = False  # the channel grants none for now
        self._limits = limits
        self._spent: i64 = 0
        self._passed_on: i64 = 0

    @property
    def left(self) -> i64:
        """Publishes that may still be handed over; a batch may take it below 0."""
        return self._limits.scaled(self._limits.credit) - self._spent

    def is_left(self) -> bool:
        """Return whether any is left; grants passed publishes again where limits have changed."""
        if self.left > 0:
            return True
        if not self.deferred:
            self._give()
        return self.left > 0

    def spend(self, messages: i64) -> None:
        """Publishes are handed to the channel."""
        self._spent += messages

    def passed_on(self, messages: i64) -> None:
        """The channel has handed publishes on; it grants as many again, by and by."""
        self._passed_on += messages
        self._grant()

    def defer(self, deferred: bool) -> None:
        """Grant no credit, or do again, at once for all that was passed on meanwhile."""
        self.deferred = deferred
        if not deferred:
            self._give()

    def _grant(self) -> None:
        limits = self._limits
        if not self.deferred and self._passed_on >= limits.scaled(limits.credit_more):
            self._give()

    def _give(self) -> None:
        self._spent -= self._passed_on
        self._passed_on = 0
