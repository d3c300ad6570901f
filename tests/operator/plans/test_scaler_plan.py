"""Wanted number of consumers: tables, and storms of alarms."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_operator.plans.scaler_plan import WISHES_MAX, Load, Memory, Verdict, decide
from headrace_operator.specs.field import ClusterReference
from headrace_operator.specs.scaler import (
    AlarmReaction,
    ConsumerScalerSpec,
    QueueReference,
    Stabilization,
    Target,
)

NOW = 1_700_000_000.0
STEP = AlarmReaction()
MAX = AlarmReaction(blocked="Max")
DEAF = AlarmReaction(paging="Ignore", blocked="Ignore")


def spec(
    reaction: AlarmReaction = STEP, up: int = 15, down: int = 300, **more: Any
) -> ConsumerScalerSpec:
    return ConsumerScalerSpec(
        cluster_ref=ClusterReference(name="c"),
        target_ref=Target(name="worker"),
        queues=[QueueReference(name="q")],
        alarm_reaction=reaction,
        stabilization=Stabilization(
            scale_up_seconds=up, scale_down_seconds=down, cooldown_seconds=down
        ),
        **more,
    )


@pytest.mark.parametrize(
    ("of", "load", "replicas", "reason"),
    [
        (spec(), Load(NOW, 1, 1000), 1, ""),
        (spec(), Load(NOW, 1, 1001), 2, "Backlog"),
        (spec(), Load(NOW, 1, 9_000), 3, "Backlog"),  # by a step
        (spec(), Load(NOW, 1, 1000, alarm_stage=1), 2, "AlarmStage1"),
        (spec(DEAF), Load(NOW, 1, 1000, alarm_stage=1), 1, ""),
        (spec(), Load(NOW, 3, 0, alarm_stage=2), 5, "AlarmStage2"),
        (spec(MAX), Load(NOW, 3, 0, alarm_stage=2), 10, "AlarmStage2"),
        (spec(DEAF), Load(NOW, 3, 3000, alarm_stage=2), 3, ""),
        (spec(), Load(NOW, 9, 0, alarm_stage=2), 10, "AlarmStage2"),
        (spec(), Load(NOW, 10, 0, alarm_stage=2), 10, ""),
        (spec(), Load(NOW, 2, 0, advised=4), 4, "Advice"),
        (spec(), Load(NOW, 4, 3_500, advised=2), 4, ""),
        (spec(use_advice=False), Load(NOW, 2, 2000, advised=4), 2, ""),
        (spec(), Load(NOW, 12, 0), 10, "Bounds"),
        (spec(min_replicas=3), Load(NOW, 0, 0), 3, "Bounds"),
        (spec(min_replicas=0), Load(NOW, 0, 1), 1, "Backlog"),
        (spec(min_replicas=0), Load(NOW, 1, 0), 0, "Idle"),
        (spec(), Load(NOW, 8, 100), 6, "Idle"),  # by a step
    ],
)
def test_load_decides_where_nothing_went_before(of, load, replicas, reason) -> None:
    verdict = decide(of, load, Memory())
    assert (verdict.replicas, verdict.reason) == (replicas, reason), verdict.message


def test_a_sentence_has_the_figures() -> None:
    verdict = decide(spec(), Load(NOW, 1, 2500, alarm_stage=1, advised=2), Memory())
    assert verdict.message == (
        "1 -> 3: 2500 messages wait, alarm of stage 1, 2 advised; 5 wanted; more are needed"
    )


@pytest.mark.parametrize(
    ("load", "memory", "says"),
    [
        (Load(NOW, 3, 9000), Memory(changed_at=NOW - 5), "more in 10 s"),
        (Load(NOW, 5, 0, alarm_stage=1), Memory(), "during an alarm"),
        (Load(NOW, 5, 0), Memory(alarm_seen_at=NOW - 100), "an alarm was over"),
        (Load(NOW, 5, 0), Memory(changed_at=NOW - 100), "fewer in 200 s"),
        (Load(NOW, 5, 0), Memory(wishes=((NOW - 299, 6),)), "6 were wanted within the last 300 s"),
        (Load(NOW, 3, 9000), Memory(changed_at=NOW + 9999), "more in 15 s"),  # a clock set back
    ],
)
def test_nothing_changes_within_a_window(load, memory, says) -> None:
    verdict = decide(spec(), load, memory)
    assert verdict.replicas == load.replicas
    assert verdict.reason == ""
    assert says in verdict.message


def test_it_goes_down_to_what_was_wanted_at_most() -> None:
    memory = Memory(wishes=((NOW - 301, 9), (NOW - 200, 4)))
    verdict = decide(spec(), Load(NOW, 5, 0), memory)
    assert (verdict.replicas, verdict.reason) == (4, "Idle")


def run(of: ConsumerScalerSpec, loads: list[tuple[int, int]], every: float) -> list[Verdict]:
    """Decide on each (backlog, alarm stage) in turn, from one consumer on."""
    memory, replicas, verdicts = Memory(), 1, []
    for turn, (backlog, stage) in enumerate(loads):
        verdict = decide(of, Load(NOW + turn * every, replicas, backlog, stage), memory)
        memory, replicas = verdict.memory, verdict.replicas
        verdicts.append(verdict)
    return verdicts


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 2)), min_size=1, max_size=200),
    st.sampled_from([0.25, 1.0, 7.0]),
    st.sampled_from([STEP, MAX, DEAF]),
)
def test_in_any_storm_changes_are_few_and_within_bounds(loads, every, reaction) -> None:
    of = spec(reaction, up=15, down=60)
    verdicts = run(of, loads, every)
    times = [at * every for at, each in enumerate(verdicts) if each.reason]
    assert all(later - earlier >= 15 for earlier, later in itertools.pairwise(times))
    assert all(1 <= each.replicas <= 10 for each in verdicts)
    assert all(len(each.memory.wishes) <= WISHES_MAX for each in verdicts)
    for (_, stage), before, after in zip(loads[1:], verdicts, verdicts[1:], strict=False):
        assert after.replicas >= before.replicas or stage == 0


def test_alarms_that_flap_take_replicas_up_and_not_down() -> None:
    verdicts = run(spec(), [(0, turn % 2 * 2) for turn in range(600)], 1.0)
    replicas = [each.replicas for each in verdicts]
    assert replicas == sorted(replicas)
    assert len({*replicas}) - 1 <= 5  # of at most nine more, two at a time


def test_what_was_wanted_is_remembered_within_a_bound() -> None:
    loads = [(100_000 - turn * 1000, 0) for turn in range(95)]
    verdicts = run(spec(max_replicas=200, down=3600), loads, 1.0)
    wishes = verdicts[-1].memory.wishes
    assert len(wishes) == WISHES_MAX
    assert wishes[0] == (NOW, 100)
