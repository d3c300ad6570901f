"""Watch on the length of the loop's turns, which adapts the intake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.flow.intake import Intake
from headrace_broker.flow.turn_budget import FULL
from headrace_broker.runtime.intake.intake_turns import IntakeTurns
from headrace_broker.runtime.intake.outflow_watch import OutflowWatch

LOOK_SECONDS: Final = 0.1  # between looks: some turns of a node that has much to do
LOOK_US: Final = 100_000
SMOOTHING: Final = 8  # looks over which the length of turns is averaged


@final
class IntakeWatch:
    """Adapts the budget of a turn a few times a second, while publishes wait for it."""

    def __init__(self, intake: Intake, turns: IntakeTurns, outflow: OutflowWatch) -> None:
        self._intake = intake  # whose budget it is
        self._turns = turns  # measures how long turns are while publishes wait
        self._outflow = outflow  # bounds what comes to the queues led here that are deep
        self._looked_us: i64 = 0
        self._late: i64 = 0  # how late looks are, in SMOOTHING parts

    def poll(self, now_us: i64) -> None:
        """Take a sample; where nothing waits and turns are short, that costs next to nothing."""
        elapsed = now_us - self._looked_us
        if self._looked_us == 0:
            elapsed = LOOK_US
        self._looked_us = now_us
        intake = self._intake
        intake.shares.tick()
        self._look_at_budget()
        # Whoever comes at any time waits for half a turn, on average.
        self._late += max(elapsed - LOOK_US, 0) - self._late // SMOOTHING
        self._outflow.poll(now_us, elapsed, 2 * self._late // SMOOTHING)

    def _look_at_budget(self) -> None:
        intake = self._intake
        turns = intake.turns
        passed = intake.passed
        turn_us = self._turns.take_turn_us()
        intake.turns = 0
        intake.passed = 0
        if turns > 0 or intake.budget.share != FULL:
            intake.budget.poll(passed // turns if turns > 0 else 0, turn_us)


@final
class IntakePoller:
    """Calls an `IntakeWatch` from the loop's timers until it is stopped."""

    def __init__(
        self,
        watch: IntakeWatch,
        clock_us: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._watch = watch
        self._clock_us = clock_us
        self._call_later = call_later
        self._stopped = False

    def start(self) -> None:
        """Begin to look."""
        self._call_later(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """Stop sampling."""
        self._stopped = True

    def _look(self) -> None:
        if not self._stopped:
            self.start()  # before the look: how long that takes is not how late the next one comes
            self._watch.poll(self._clock_us())
