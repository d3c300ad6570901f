"""Pauses after which a session sends again what its queue has not answered."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.runtime.session.lane import ControlLane, PublishLane

RETRY_TICKS_MIN: Final = 4  # runtime ticks without an answer before everything is sent again
RETRY_TICKS_MAX: Final = 32  # the pause doubles up to this, so that a slow queue is not swamped
BUSY_TICKS_MAX: Final = 8  # as RETRY_TICKS_MAX, for a leader that refuses; from 1 tick


@final
class Quiescence:
    """Check of a session's lanes once a tick; a lane that moves does not excuse one that stands."""

    def __init__(self) -> None:
        self._ticks: i64 = 0
        self._patience: i64 = RETRY_TICKS_MIN  # ticks in silence before everything is sent again
        self._busy_patience: i64 = 1  # as `_patience`, behind a refusal
        self._busy = False  # the leader has refused a command since everything was sent last
        self._target = 0  # node id of the leader that `_patience` is about
        self._publish: i64 = 0  # number of the oldest unanswered command at the last tick, 0: none
        self._control: i64 = 0

    def refused(self) -> None:
        """Take note of a leader that is there and takes nothing now: it is asked again sooner."""
        self._busy = True

    def is_over(
        self, publishes: PublishLane, controls: ControlLane, closing: bool, target: int
    ) -> bool:
        """Count one tick; return whether it is time to resend unanswered commands.

        Args:
            publishes: the session's publishes.
            controls: its control commands.
            closing: whether its end is not answered.
            target: node id of the leader that it talks to; a new one is given no more time than
                the first.
        """
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
            self._busy_patience = 1
            self._busy = False
            return False
        if target != self._target:
            self._target = target
            self._patience = RETRY_TICKS_MIN
        self._ticks += 1
        if self._busy:
            return self._ticks >= self._busy_patience and self._again_when_busy()
        return self._ticks >= self._patience and self._again()

    def _again(self) -> bool:
        self._ticks = 0
        self._patience = min(self._patience * 2, RETRY_TICKS_MAX)
        return True

    def _again_when_busy(self) -> bool:
        self._ticks = 0
        self._patience = RETRY_TICKS_MIN
        self._busy_patience = min(self._busy_patience * 2, BUSY_TICKS_MAX)
        self._busy = False
        return True
