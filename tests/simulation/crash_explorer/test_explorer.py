"""The log survives every crash of every workload, within a small bound."""

from __future__ import annotations

import pytest

from headrace_simulation.crash_explorer.crash_point import KILL
from headrace_simulation.crash_explorer.explorer import Bounds, Explorer, Outcome
from headrace_simulation.crash_explorer.subject import Subject
from headrace_simulation.crash_explorer.workload import WORKLOADS


def explore(name: str, seed: int, states_max: int) -> Outcome:
    return Explorer(Subject(), WORKLOADS[name], seed, Bounds(states_max)).run()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_log_survives_crashes(name: str, seed: int) -> None:
    outcome = explore(name, seed, 500)
    assert outcome.violation is None, outcome.violation
    assert outcome.points >= 10
    assert outcome.states >= 30
    assert outcome.states + outcome.nested_states <= 500


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", ["mixed", "mixed_faults"])
def test_log_survives_crashes_of_random_runs(name: str, seed: int) -> None:
    outcome = explore(name, 1000 + seed, 100)
    assert outcome.violation is None, outcome.violation


def test_same_seed_is_the_same_exploration() -> None:
    first, again, other = (explore("mixed", seed, 300) for seed in (5, 5, 6))
    assert first == again
    assert first.calls != other.calls


def test_repeat_goes_to_one_place() -> None:
    explorer = Explorer(Subject(), WORKLOADS["batches"], 0, Bounds())
    outcome = explorer.repeat([(10, KILL), (3, 0)])
    assert outcome.violation is None
    assert [call for call in outcome.calls if call.startswith("after crash 2, ")]
