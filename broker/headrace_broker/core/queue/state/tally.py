"""Counts of messages that left queues without acceptance by a consumer, by reason."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.effect import REASON_NAMES


@final
class Tally:
    """Counts of messages, one for all queues that a node leads. No part of any queue's state.

    Attributes:
        lettered: messages that were to go to a dead-letter exchange, by REASON.
        dropped: those of queues that have none, likewise.
    """

    def __init__(self) -> None:
        self.lettered: dict[int, int] = dict.fromkeys(REASON_NAMES, 0)
        self.dropped: dict[int, int] = dict.fromkeys(REASON_NAMES, 0)

    def note(self, reason: i64, lettered: bool, count: i64) -> None:
        """Count messages that left a queue."""
        counts = self.lettered if lettered else self.dropped
        counts[reason] += count
