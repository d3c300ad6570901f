"""Publishes that a node accepts in one turn of its loop.

Acknowledgements and deliveries are done in every turn, whatever there is of them, and publishes
within a budget, so that turns do not become long: acknowledgements wait for their end.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.limits import INTAKE_MESSAGES_MIN, TURN_US_MAX

FULL: Final = 1 << 16  # the whole of the limits, in the units of `share`
GROWTH_STEPS: Final = 16  # a sixteenth more each time, while turns are short


@final
class TurnBudget:
    """The budget of a turn."""

    def __init__(self, limits: FlowLimits) -> None:
        self.share: i64 = FULL  # of the limits that may be passed on in a turn, at most FULL
        self._limits = limits

    def messages(self) -> i64:
        """Return how many publishes may be passed on in a turn."""
        limits = self._limits
        full = limits.scaled(limits.intake_messages)
        return min(max(full * self.share // FULL, INTAKE_MESSAGES_MIN), full)

    def byte_count(self) -> i64:
        """Return the same in bytes."""
        limits = self._limits
        full = limits.scaled(limits.intake_bytes)
        return max(full * self.share // FULL, 1)

    def poll(self, passed: i64, turn_us: i64) -> None:
        """Adapt it to publishes and microseconds of a turn; called while publishes wait."""
        share = self.share
        full = self._limits.scaled(self._limits.intake_messages)
        if turn_us > TURN_US_MAX:
            used = min(max(passed, INTAKE_MESSAGES_MIN) * FULL // full, share)
            share = min(share, max(used * TURN_US_MAX // turn_us, used // 4))
        else:
            share += max(share // GROWTH_STEPS, FULL // 1000)
        self.share = min(max(share, INTAKE_MESSAGES_MIN * FULL // full), FULL)
