"""Looks at how fast consumers are served by this node, and adapts what it takes in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from headrace_broker.flow.intake import Intake
from headrace_broker.flow.turn_budget import FULL, Round, Sight
from headrace_broker.runtime.intake_turns import IntakeTurns

if TYPE_CHECKING:
    from headrace_broker.runtime.queue_host import QueueHost

LOOK_SECONDS: Final = 0.1  # between looks: some turns of a node that has much to do


@final
class IntakeWatch:
    """Adapts the budget of a turn a few times a second, while publishes wait for it.

    Args:
        intake: whose budget it is.
        turns: measures how long turns are.
        hosts: replicas on this node by queue group.
    """

    def __init__(self, intake: Intake, turns: IntakeTurns, hosts: dict[int, QueueHost]) -> None:
        self._intake = intake
        self._turns = turns
        self._hosts = hosts
        self._seen: dict[int, Sight] = {}
        self._looked_us: i64 = 0

    def look(self, now_us: i64) -> None:
        """Look at the queues led here. Where nothing waits for its turn, that costs nothing."""
        intake = self._intake
        intake.shares.tick()
        elapsed = now_us - self._looked_us
        self._looked_us = now_us
        turns = intake.turns
        passed = intake.passed
        turn_us = self._turns.take_turn_us()
        intake.turns = 0
        intake.passed = 0
        if turns == 0 and intake.budget.share == FULL:
            self._seen.clear()
            return
        before, self._seen = self._seen, {}
        round_ = Round()
        for group, host in self._hosts.items():
            if host.serving:
                machine = host.machine
                sight = before.get(group)
                if sight is None:
                    sight = Sight(machine.last_id, machine.ready_count)
                else:
                    unsettled = machine.unsettled_count
                    sight.look(
                        machine.last_id, machine.ready_count, unsettled, elapsed, turn_us, round_
                    )
                self._seen[group] = sight
        intake.budget.look(round_, passed // turns if turns > 0 else 0, turn_us)


@final
class Looker:
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
        """Look no more."""
        self._stopped = True

    def _look(self) -> None:
        if not self._stopped:
            self._watch.look(self._clock_us())
            self.start()
