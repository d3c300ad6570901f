"""The budget of a turn: as much as turns that are not too long have room for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.turn_budget import FULL, TurnBudget
from headrace_broker.model.limits import INTAKE_MESSAGES_MIN, TURN_US_MAX


def run(budget: TurnBudget, looks: int, publish_us: float) -> float:
    """Pass on as much as may be, at so much of the loop for each, and return a turn's length."""
    turn_us = 0.0
    for _ in range(looks):
        turn_us = 500.0 + int(budget.messages()) * publish_us
        budget.poll(budget.messages(), int(turn_us))
    return turn_us


def test_long_turns_are_cut_short() -> None:
    assert run(TurnBudget(FlowLimits()), 60, 100.0) <= 1.2 * TURN_US_MAX


def test_it_grows_again_when_turns_are_short() -> None:
    budget = TurnBudget(FlowLimits())
    run(budget, 60, 100.0)
    assert budget.share < FULL // 2
    run(budget, 200, 1.0)
    assert budget.share == FULL


@given(st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 1_000_000)), max_size=40))
def test_whatever_is_seen_publishers_go_on_and_limits_hold(looks: list[tuple[int, int]]) -> None:
    limits = FlowLimits()
    budget = TurnBudget(limits)
    for passed, turn_us in looks:
        budget.poll(passed, turn_us)
        assert INTAKE_MESSAGES_MIN <= budget.messages() <= limits.intake_messages
        assert 0 < budget.byte_count() <= limits.intake_bytes
    limits.share = 1
    assert 1 <= budget.messages() <= limits.scaled(limits.intake_messages)
