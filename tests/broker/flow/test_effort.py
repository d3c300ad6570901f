"""Budgets of connections for work besides publishes and acknowledgements."""

from __future__ import annotations

from collections.abc import Callable

from headrace_broker.flow.effort import Effort, EffortTurns
from headrace_broker.model.limits import (
    CONTROL_PARTS,
    CONTROL_TURN_UNITS,
    CONTROL_TURN_UNITS_MIN,
    METHOD_UNITS,
)


class Loop:
    """Calls in the next turn; has much else to do in each, unless `quiet`."""

    def __init__(self, quiet: bool = False) -> None:
        self.soon: list[Callable[[], None]] = []
        self.now_us = 0
        self._quiet = quiet

    def busy_us(self) -> int:
        """The processor time so far."""
        if not self._quiet:
            self.now_us += 1_000_000
        return self.now_us

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


def methods_until_spent(effort: Effort) -> int:
    count = 0
    while not effort.is_spent:
        effort.spend(METHOD_UNITS)
        count += 1
    return count


def test_one_connection_may_spend_the_whole_turn_and_the_next_one_again() -> None:
    loop = Loop()
    effort = Effort(EffortTurns(loop.call_soon, loop.busy_us))
    assert methods_until_spent(effort) == CONTROL_TURN_UNITS // METHOD_UNITS
    assert methods_until_spent(effort) == 0
    loop.turn()
    assert methods_until_spent(effort) == CONTROL_TURN_UNITS // METHOD_UNITS


def test_those_that_spend_all_share_the_next_turn() -> None:
    loop = Loop()
    turns = EffortTurns(loop.call_soon, loop.busy_us)
    efforts = [Effort(turns) for _ in range(8)]
    for effort in efforts:
        methods_until_spent(effort)
    loop.turn()
    counts = [methods_until_spent(effort) for effort in efforts]
    assert counts == [CONTROL_TURN_UNITS // METHOD_UNITS // 8] * 8


def test_those_that_pause_for_a_turn_keep_others_at_half_their_part() -> None:
    loop = Loop()
    turns = EffortTurns(loop.call_soon, loop.busy_us)
    efforts = [Effort(turns) for _ in range(8)]
    for effort in efforts:
        methods_until_spent(effort)
    loop.turn()
    efforts[0].spend(1)
    loop.turn()
    assert methods_until_spent(efforts[0]) == CONTROL_TURN_UNITS // METHOD_UNITS // 4


def test_each_may_do_one_method_however_many_there_are() -> None:
    loop = Loop()
    turns = EffortTurns(loop.call_soon, loop.busy_us)
    efforts = [Effort(turns) for _ in range(1000)]
    for _ in range(2):
        for effort in efforts:
            methods_until_spent(effort)
        loop.turn()
    assert [methods_until_spent(effort) for effort in efforts] == [1] * 1000


def test_turns_end_when_nobody_does_anything() -> None:
    loop = Loop()
    effort = Effort(EffortTurns(loop.call_soon, loop.busy_us))
    effort.spend(1)
    assert len(loop.soon) == 1
    loop.turn()
    assert not loop.soon


def test_turns_that_do_little_else_have_few_methods() -> None:
    loop = Loop(quiet=True)
    turns = EffortTurns(loop.call_soon, loop.busy_us)
    effort = Effort(turns)
    calls = Effort(turns, of_calls=True)
    for _ in range(3):
        methods_until_spent(effort)
        loop.turn()
    assert methods_until_spent(effort) == CONTROL_TURN_UNITS_MIN // METHOD_UNITS
    assert methods_until_spent(calls) == CONTROL_TURN_UNITS // METHOD_UNITS


def test_turns_that_messages_make_long_have_more_methods() -> None:
    loop = Loop(quiet=True)
    turns = EffortTurns(loop.call_soon, loop.busy_us)
    effort = Effort(turns)
    for others_us in (CONTROL_PARTS * 512, CONTROL_PARTS * 10 * CONTROL_TURN_UNITS, 0):
        spent = METHOD_UNITS * methods_until_spent(effort)
        loop.now_us += spent + others_us
        loop.turn()
        expected = min(max(others_us // CONTROL_PARTS, CONTROL_TURN_UNITS_MIN), CONTROL_TURN_UNITS)
        assert int(turns.units) == expected
