"""Publishes that a node accepts in one turn of its loop.

Acknowledgements and deliveries are done in every turn, whatever there is of them, and publishes
within a budget, so that turns do not become long: acknowledgements wait for their end.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.limits import TURN_MESSAGES_MIN, TURN_US_MAX

FULL: Final = 1 << 16  # the whole of the limits, in the units of `share`
GROWTH_STEPS: Final = 16  # a sixteenth more each time, while turns are short


@final
class TurnBudget:
    """The budget of a turn.

    Attributes:
        share: of the limits that may be passed on in a turn, at most FULL.
    """

    def __init__(self, limits: FlowLimits) -> None:
        self.share: i64 = FULL
        self._limits = limits

    def messages(self) -> i64:
        """Return how many publishes may be passed on in a turn."""
        limits = self._limits
        full = limits.scaled(limits.turn_messages)
        return min(max(full * self.share // FULL, TURN_MESSAGES_MIN), full)

    def octets(self) -> i64:
        """Return the same in octets."""
        limits = self._limits
        full = limits.scaled(limits.turn_octets)
        return max(full * self.share // FULL, 1)

    def look(self, passed: i64, turn_us: i64) -> None:
        """Adapt it; called a few times a second while publishes wait for it.

        Args:
            passed: publishes passed on in a turn, on average since the last time.
            turn_us: length of a turn, likewise.
        """
        share = self.share
        full = self._limits.scaled(self._limits.turn_messages)
        if turn_us > TURN_US_MAX:
            used = min(max(passed, TURN_MESSAGES_MIN) * FULL // full, share)
            share = min(share, max(used * TURN_US_MAX // turn_us, used // 4))
        else:
            share += max(share // GROWTH_STEPS, FULL // 1000)
        self.share = min(max(share, TURN_MESSAGES_MIN * FULL // full), FULL)
