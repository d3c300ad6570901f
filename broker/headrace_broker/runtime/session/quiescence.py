"""Notices that a queue answers nothing for long, and says when to send everything again."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.runtime.session.lane import ControlLane, PublishLane

RETRY_TICKS_MIN: Final = 4  # runtime ticks without an answer before everything is sent again
RETRY_TICKS_MAX: Final = 32  # the pause doubles up to this, so that a slow queue is not swamped


@final
class Quiescence:
    """Check of a session's lanes once a tick; a lane that moves does not excuse one that stands."""

    def __init__(self) -> None:
        self._ticks: i64 = 0
        self._patience: i64 = RETRY_TICKS_MIN
        self._publish: i64 = 0  # number of the oldest unanswered command at the last tick, 0: none
        self._control: i64 = 0

    def is_over(self, publishes: PublishLane, controls: ControlLane, closing: bool) -> bool:
        """Count one tick; return whether it is time to resend unanswered commands."""
        publish: i64 = publishes.pending[0].first if publishes.pending else 0
        control: i64 = controls.pending[0].number if controls.pending else 0
        stands = (publish > 0 and publish == self._publish) or (
            control > 0 and control == self._control
        )
        self._publish = publish
        self._control = control
        if not stands and not closing:
            self._ticks = 0
            self._patience = RETRY_TICKS_MIN
            return False
        self._ticks += 1
        if self._ticks < self._patience:
            return False
        self._ticks = 0
        self._patience = min(self._patience * 2, RETRY_TICKS_MAX)
        return True
