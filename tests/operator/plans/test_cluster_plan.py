"""The next step for a cluster: each rule, all combinations of states, and whole changes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operator.plans.world import World

from headrace_operator.plans.cluster_plan import next_step
from headrace_operator.plans.observation import (
    Bounds,
    BrokerNode,
    Cluster,
    Pod,
    PodState,
    Quorum,
    Waiting,
)
from headrace_operator.plans.step import Action, Step

ALL = frozenset({0, 1, 2})
READY = Pod(PodState.READY)
UP = BrokerNode(running=True)
DRAINED = BrokerNode(running=True, draining=True, drained=True)
DRAINING = BrokerNode(running=True, draining=True)
DOWN = BrokerNode(running=False)
READY_PODS = dict.fromkeys(range(3), READY)
OUTDATED = dict.fromkeys(range(3), Pod(PodState.READY, outdated=True))
THREE = dict.fromkeys(range(3), UP)
FOUR = dict.fromkeys(range(4), UP)


def cluster(**changes: Any) -> Cluster:
    """Return three nodes that are as they should be, but for what is said."""
    well = Cluster(3, 3, READY_PODS, THREE, (Quorum(ALL, ALL, "queue 'q'"),))
    return well._replace(**changes)


def pod(ordinal: int, state: PodState, outdated: bool = False) -> dict[int, Pod]:
    return {**READY_PODS, ordinal: Pod(state, outdated)}


def node(ordinal: int, seen: BrokerNode) -> dict[int, BrokerNode]:
    return {**THREE, ordinal: seen}


def two(*current: int, at: tuple[int, int] = (1, 2)) -> tuple[Quorum, ...]:
    return (Quorum(frozenset(at), frozenset(current), "it"),)


LACKING = node(1, UP._replace(lacks=4))
LATE = Waiting("drain 2", 61)
STATES: list[tuple[dict[str, Any], Action, int, str]] = [
    ({}, Action.NOTHING, -1, "as it should be"),
    ({"paused": True, "wanted": 5}, Action.NOTHING, -1, "paused"),
    ({"wanted": 5}, Action.SCALE, 5, "3 of 5 nodes"),
    ({"answers": False, "nodes": {}}, Action.WAIT, -1, "no node answers"),
    (
        {"answers": False, "nodes": {}, "pods": pod(1, PodState.PENDING, outdated=True)},
        *(Action.RESTART, 1, "does not start"),
    ),
    ({"pods": pod(1, PodState.TERMINATING)}, Action.WAIT, -1, "pod 1 is terminating"),
    ({"nodes": node(2, DOWN)}, Action.WAIT, -1, "pod 2 is ready, its node is not heard"),
    ({"nodes": {0: UP, 1: UP}}, Action.WAIT, -1, "has not joined"),
    (
        {"pods": pod(2, PodState.RUNNING, outdated=True), "nodes": node(2, DOWN)},
        *(Action.RESTART, 2, "does not serve"),
    ),
    ({"quorums": two(1)}, Action.WAIT, -1, "replicas on node 2 catch up, that of it"),
    (
        {"nodes": node(1, DRAINED), "drained_by_us": frozenset({1})},
        *(Action.REVIVE, 1, "serves again"),
    ),
    ({"nodes": node(1, DRAINED)}, Action.NOTHING, -1, "as it should be"),
    ({"nodes": LACKING}, Action.GROW, 1, "4 queues get a replica on node 1"),
    ({"nodes": LACKING, "waiting": Waiting("grow 1", 5)}, Action.WAIT, -1, "are still to get"),
    ({"nodes": LACKING, "waiting": Waiting("grow 1", 9999)}, Action.NOTHING, -1, "as it should"),
    ({"pods": OUTDATED}, Action.DRAIN, 2, "pod 2 is to restart"),
    ({"pods": OUTDATED, "nodes": node(2, DRAINING)}, Action.WAIT, -1, "drained before it restarts"),
    (
        {"pods": OUTDATED, "nodes": node(2, DRAINING), "waiting": LATE},
        Action.RESTART,
        2,
        "from the",
    ),
    ({"pods": OUTDATED, "nodes": node(2, DRAINED)}, Action.RESTART, 2, "restarts from the new"),
    ({"pods": OUTDATED, "quorums": two(1, 2)}, Action.DRAIN, 0, "pod 0 is to restart"),
    (
        {"pods": OUTDATED, "quorums": two(1, 2) + two(0, 1, at=(0, 1))},
        *(Action.WAIT, -1, "it; a third replica would keep"),
    ),
    ({"pods": OUTDATED, "quorums": two(1, 2), "forced": 2}, Action.DRAIN, 2, "is to restart"),
    ({"replicas": 4, "nodes": FOUR}, Action.DRAIN, 3, "is to leave"),
    ({"replicas": 4, "nodes": {**FOUR, 3: DRAINING}}, Action.WAIT, -1, "before it leaves"),
    (
        {"replicas": 4, "nodes": {**FOUR, 3: DRAINED._replace(replicas=7)}},
        *(Action.FORGET, 3, "7 replicas move"),
    ),
    ({"replicas": 4}, Action.SCALE, 3, "node 3 has left"),
    ({"nodes": {**FOUR, 3: DOWN}}, Action.FORGET, 3, "leaves the cluster"),
    (
        {"replicas": 4, "nodes": {**FOUR, 3: DRAINED}, "quorums": two(at=(3, 4))},
        *(Action.WAIT, -1, "it has no majority for it"),
    ),
    ({"claims": ALL | {3}}, Action.NOTHING, -1, "as it should be"),
    ({"claims": ALL | {3}, "delete_claims": True}, Action.DELETE_CLAIM, 3, "is not wanted"),
]


@pytest.mark.parametrize(("changes", "action", "subject", "says"), STATES)
def test_each_state_has_its_next_step(changes, action, subject, says) -> None:
    step = next_step(cluster(**changes))
    assert (step.action, step.subject) == (action, subject), step.reason
    assert says in step.reason


def test_a_single_node_is_restarted_without_being_drained() -> None:
    step = next_step(Cluster(1, 1, {0: Pod(PodState.READY, outdated=True)}, {0: UP}))
    assert (step.action, step.subject) == (Action.RESTART, 0)


CRASHING = Pod(PodState.RUNNING, outdated=True)


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_new_template_reaches_pods_that_crash_all_of_them(nodes) -> None:
    seen = Cluster(nodes, nodes, dict.fromkeys(range(nodes), CRASHING), {}, answers=False)
    assert next_step(seen).action is Action.WAIT, "they may be starting"
    for ordinal in range(nodes):
        late = seen._replace(waiting=Waiting(next_step(seen).what, 901))
        step = next_step(late)
        assert (step.action, step.subject) == (Action.RESTART, ordinal)
        seen = seen._replace(pods={**seen.pods, ordinal: Pod(PodState.TERMINATING)})
    assert next_step(seen._replace(waiting=Waiting("answer", 901))).action is Action.WAIT


def test_pods_that_nobody_hears_stay_while_another_one_serves() -> None:
    pods = {0: READY, 1: CRASHING, 2: CRASHING}
    late = Waiting("answer", 901)
    step = next_step(Cluster(3, 3, pods, {}, waiting=late, answers=False))
    assert (step.action, step.overdue) == (Action.WAIT, True)


def test_a_new_template_reaches_pods_without_which_there_is_no_majority() -> None:
    pods = {0: Pod(PodState.RUNNING), 1: CRASHING, 2: CRASHING}
    nodes = {0: UP, 1: DOWN, 2: DOWN}
    seen = cluster(pods=pods, nodes=nodes, quorums=(Quorum(ALL, frozenset({0}), "the catalog"),))
    step = next_step(seen)
    assert (step.action, step.subject) == (Action.RESTART, 1)
    step = next_step(seen._replace(pods={**pods, 1: Pod(PodState.TERMINATING, outdated=True)}))
    assert (step.action, step.subject) == (Action.RESTART, 2)


def test_a_replica_that_never_catches_up_and_a_node_that_is_never_drained_are_left() -> None:
    """Each is waited for within its bound, and not both in turns for ever."""
    pods = {**OUTDATED, 3: READY, 4: Pod(PodState.READY, outdated=True)}
    lagging = Quorum(ALL, frozenset({0, 2}), "queue 'q'")
    seen = Cluster(5, 5, pods, dict.fromkeys(range(5), UP), (lagging,))
    steps: list[Step] = []
    while not steps or steps[-1].action is not Action.RESTART:
        assert len(steps) < 400, steps[-3:]
        step = next_step(seen)
        name = step.what or step.action.value  # as the status has it
        seconds = seen.waiting.seconds + 10 if name == seen.waiting.what else 0
        seen = seen._replace(waiting=Waiting(name, seconds))
        if step.action is Action.DRAIN:
            seen = seen._replace(nodes={**seen.nodes, step.subject: DRAINING})
        steps.append(step)
    assert steps[-1].subject == 4


def test_a_wait_says_when_it_takes_too_long() -> None:
    seen = cluster(pods=pod(1, PodState.PENDING), bounds=Bounds(catch_up=30))
    step = next_step(seen)
    assert not step.overdue
    assert not next_step(seen._replace(waiting=Waiting("pod 0", 31))).overdue
    overdue = next_step(seen._replace(waiting=Waiting(step.what, 31)))
    assert overdue.overdue
    assert overdue.reason == f"{step.reason}; this takes longer than 30 s"


def endangered(seen: Cluster, step: Step) -> Quorum | None:
    """Return queues whose majority a step would take, if there are any."""
    for each in seen.quorums:
        most = len(each.voters) // 2
        after = each.voters - {step.subject}
        restarts = step.action is Action.RESTART and step.subject in each.current
        if restarts and after and len(each.current) > most >= len(each.current) - 1:
            return each
        forgets = step.action is Action.FORGET and step.subject in each.voters
        if forgets and after and len(each.current & after) <= len(after) // 2:
            return each
        if step.action is Action.SCALE and not each.voters.isdisjoint(
            range(step.subject, seen.replicas)
        ):
            return each
    return None


PODS = [Pod(state, outdated) for state in PodState for outdated in (False, True)]
NODES = [None, DOWN, DOWN._replace(draining=True), UP, DRAINING, DRAINED]
QUORUMS = [
    Quorum(voters, frozenset(current), "q")
    for voters in (ALL, frozenset({0, 2}), frozenset({1}))
    for count in range(len(voters) + 1)
    for current in itertools.combinations(sorted(voters), count)
]


@pytest.mark.parametrize("wanted", [1, 2, 3, 4])
def test_no_step_takes_a_majority_in_any_combination_of_states(wanted) -> None:
    """Three pods, two of them in each of ten states; a node in each of six; each kind of quorum."""
    actions = set()
    for pods in itertools.product([READY, Pod(PodState.READY, outdated=True)], PODS, PODS):
        for third in NODES:
            nodes = {0: UP, 1: UP} if third is None else {0: UP, 1: UP, 2: third}
            for quorum in QUORUMS:
                seen = Cluster(wanted, 3, dict(enumerate(pods)), nodes, (quorum,))
                step = next_step(seen)
                actions.add(step.action)
                assert endangered(seen, step) is None, (seen, step)
    expected = {1: Action.FORGET, 2: Action.FORGET, 3: Action.RESTART, 4: Action.SCALE}
    assert expected[wanted] in actions


def settle(world: World, turns: int = 400) -> list[Step]:
    """Take steps until nothing is left to do; fail when that never comes."""
    steps: list[Step] = []
    for _ in range(turns):
        step = take_step(world)
        if step.action is Action.NOTHING:
            return steps
        steps.append(step)
    raise AssertionError(f"not done: {steps[-5:]}")


def take_step(world: World) -> Step:
    seen = world.seen()
    step = next_step(seen)
    assert endangered(seen, step) is None, (seen, step)
    world.execute(step)
    world.pass_time()
    return step


def told(steps: list[Step]) -> list[tuple[str, int]]:
    return [(each.action.value, each.subject) for each in steps if each.action is not Action.WAIT]


def test_a_new_template_reaches_one_pod_after_the_other() -> None:
    world = World(3, [{0, 1, 2}])
    world.revision = 2
    assert told(settle(world)) == [
        (action, ordinal) for ordinal in (2, 1, 0) for action in ("Drain", "Restart", "Revive")
    ]


def test_scaling_in_moves_replicas_before_pods_go_and_volumes_last() -> None:
    world = World(5, [{2, 3, 4}, {0, 4, 1}])
    world.wanted = 3
    assert told(settle(world)) == [
        ("Drain", 4),
        *[("Forget", 4)] * 3,
        ("Scale", 4),
        ("Drain", 3),
        *[("Forget", 3)] * 2,
        ("Scale", 3),
        ("DeleteClaim", 4),
        ("DeleteClaim", 3),
    ]
    assert [voters for voters, _ in world.queues] == [{0, 1, 2}] * 2


def test_a_cluster_shrinks_to_one_node() -> None:
    world = World(3, [{0, 1, 2}, {1, 2}, {2}])
    world.wanted = 1
    settle(world)
    assert world.queues[0][0] == {0}
    assert [at for at, each in world.members.items() if each.known] == [0]


ACCIDENTS = st.tuples(
    st.integers(0, 30), st.sampled_from(["kill", "upgrade", "scale"]), st.integers(0, 4)
)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(3, 5),
    st.lists(st.sets(st.integers(0, 4), min_size=1, max_size=5), min_size=1, max_size=4),
    st.lists(ACCIDENTS, max_size=5),
)
def test_whatever_happens_no_majority_is_taken_and_all_is_done_in_the_end(
    nodes, queues, accidents
) -> None:
    """Pods die, templates change and sizes change in the middle of other changes."""
    placed = [{at % nodes for at in each} for each in queues]
    world = World(nodes, [each for each in placed if len(each) != 2])  # a pair is never restarted
    for turn in range(31):
        for at, kind, which in accidents:
            if at == turn and kind == "kill" and which < world.replicas:
                world.kill(which)
            elif at == turn and kind == "upgrade":
                world.revision += 1
            elif at == turn and kind == "scale":
                world.wanted = max(3, which + 1)
        take_step(world)
    settle(world)
    kept = {at for at, each in world.members.items() if each.known}
    assert kept == set(range(world.wanted))
    assert all(not world.members[at].draining for at in kept)
    assert all(world.members[at].revision == world.revision for at in kept)
