"""Observed state of a cluster, from answers of the API server and the brokers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace_operator.builders.cluster import Cluster
from headrace_operator.observing import (
    Answers,
    Objects,
    broker_nodes,
    drained_by_us,
    forced,
    group_size,
    lacking,
    pod_states,
    quorums,
    waiting,
)
from headrace_operator.plans.observation import Pod, PodState, Quorum
from headrace_operator.specs.cluster import BrokerClusterStatus, StepStatus

MakeCluster = Callable[..., Cluster]
Row = dict[str, Any]


def node(name: str, running: bool = True, replicas: int = 0, being_drained: bool = False) -> Row:
    return {
        "name": name,
        "running": running,
        "being_drained": being_drained,
        "drained": False,
        "replicas": replicas,
    }


def queue(name: str, *members: str, **more: Any) -> Row:
    return {"vhost": "/", "name": name, "type": "quorum", "members": list(members), **more}


def answers(nodes: list[Row], queues: list[Row], members: Any = None, details: Any = ()) -> Answers:
    return Answers(nodes, details, queues, members or {})


def pod(name: str, phase: str = "Running", ready: str = "False", **meta: Any) -> Row:
    conditions = [{"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": name, **meta},
        "status": {"phase": phase, "conditions": conditions},
    }


def test_pods_are_as_far_as_the_api_server_says() -> None:
    pods = [
        pod("mill-0", ready="True", labels={"controller-revision-hash": "new"}),
        pod("mill-1", labels={"controller-revision-hash": "old"}),
        pod("mill-2", phase="Pending"),
        pod("mill-3", ready="True", deletionTimestamp="2026-01-01T00:00:00Z"),
    ]
    stateful_set = {"status": {"updateRevision": "new"}}
    assert pod_states(Objects({}, stateful_set, pods, [])) == {
        0: Pod(PodState.READY, outdated=False),
        1: Pod(PodState.RUNNING, outdated=True),
        2: Pod(PodState.PENDING, outdated=True),
        3: Pod(PodState.TERMINATING, outdated=True),
    }


def test_without_a_revision_no_pod_is_outdated() -> None:
    assert pod_states(Objects({}, None, [pod("mill-0")], []))[0].outdated is False


def test_nodes_that_are_no_pods_are_left_out(make_cluster: MakeCluster) -> None:
    found = answers([node("mill-0"), node("mill-x"), node("other-1")], [])
    assert list(broker_nodes(make_cluster(), found)) == [0]


def test_queues_whose_replicas_stand_alike_are_one_quorum(make_cluster: MakeCluster) -> None:
    every = ("mill-0", "mill-1", "mill-2")
    nodes = [node("mill-0"), node("mill-1"), node("mill-2", running=False)]
    rows = [queue("a", *every), queue("b", *every), queue("c", "mill-2")]
    assert quorums(make_cluster(), answers(nodes, rows)) == (
        Quorum(frozenset([0, 1, 2]), frozenset([0, 1]), "queue 'a' in vhost '/'"),
        Quorum(frozenset([2]), frozenset(), "queue 'c' in vhost '/'"),
    )


def test_a_replica_that_lags_has_not_everything(make_cluster: MakeCluster) -> None:
    row = {"role": "voter", "online": True, "fetching": False, "lag": 0}
    members = [
        {"node": "mill-0", **row},
        {"node": "mill-1", **row, "lag": 3000},
        {"node": "mill-2", **row, "role": "learner"},
    ]
    nodes = [node(f"mill-{ordinal}") for ordinal in range(3)]
    found = answers(nodes, [queue("a", "mill-0", "mill-1")], {("/", "a"): {"members": members}})
    assert quorums(make_cluster(), found)[0][:2] == (frozenset([0, 1]), frozenset([0]))


def test_the_catalog_has_a_quorum_too(make_cluster: MakeCluster) -> None:
    nodes = [node("mill-0"), node("mill-1"), node("mill-2"), node("mill-3")]
    voters = [{"node": f"mill-{ordinal}", "role": "voter"} for ordinal in range(3)]
    details = [{"catalog": []}, {"catalog": [*voters, {"node": "mill-3", "role": "learner"}]}]
    found = quorums(make_cluster(), answers(nodes, [], details=details))
    assert found == (Quorum(frozenset([0, 1, 2]), frozenset([0, 1, 2]), "the catalog"),)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("Fill", {2: [("/", "a", "mill-2")]}),
        ("None", {}),
        ("All", {2: [("/", "a", "mill-2"), ("/", "b", "mill-2")]}),
    ],
)
def test_new_nodes_get_replicas_by_policy(
    make_cluster: MakeCluster, policy: str, expected: Any
) -> None:
    nodes = [node("mill-0", replicas=2), node("mill-1", replicas=2), node("mill-2")]
    both = ("mill-0", "mill-1")
    rows = [queue("a", *both), queue("b", *both, arguments={"x-quorum-initial-group-size": 2})]
    cluster = make_cluster({"scaling": {"growQueues": policy}})
    assert lacking(cluster, answers(nodes, rows)) == expected


def sharded(name: str, **more: Any) -> Row:
    found = node(name, **more)
    return {**found, "shards": [found, {**found, "name": f"{name}:1"}]}


def test_replicas_in_any_shard_count_for_their_node(make_cluster: MakeCluster) -> None:
    nodes = [sharded(f"mill-{ordinal}") for ordinal in range(3)]
    members = [
        {"node": name, "role": "voter", "online": True, "fetching": False, "lag": 0}
        for name in ("mill-0:1", "mill-1", "mill-2:1")
    ]
    rows = [queue("a", "mill-0:1", "mill-1", "mill-2:1")]
    found = answers(nodes, rows, {("/", "a"): {"members": members}})
    everywhere = frozenset([0, 1, 2])
    assert quorums(make_cluster(), found)[0][:2] == (everywhere, everywhere)
    assert lacking(make_cluster(), found) == {}


def test_a_new_node_gets_replicas_in_all_its_shards(make_cluster: MakeCluster) -> None:
    nodes = [sharded("mill-0", replicas=4), sharded("mill-1", replicas=4), sharded("mill-2")]
    rows = [queue(name, "mill-0", "mill-1:1") for name in "abcd"]
    found = lacking(make_cluster(), answers(nodes, rows))
    first, second = "mill-2", "mill-2:1"
    places = [("/", "a", first), ("/", "b", second), ("/", "c", first), ("/", "d", second)]
    assert found == {2: places}


@pytest.mark.parametrize("state", [{"running": False}, {"being_drained": True}])
def test_a_shard_that_is_down_or_drained_gets_no_replicas(
    make_cluster: MakeCluster, state: Row
) -> None:
    nodes = [sharded(f"mill-{ordinal}") for ordinal in range(3)]
    nodes[2]["shards"][1] |= state
    rows = [queue(name, "mill-0", "mill-1:1") for name in "ab"]
    found = lacking(make_cluster(), answers(nodes, rows))
    assert found == {2: [("/", "a", "mill-2"), ("/", "b", "mill-2")]}
    nodes[2]["shards"][0] |= state
    assert lacking(make_cluster(), answers(nodes, rows)) == {}


def test_a_node_that_is_drained_gets_no_replicas(make_cluster: MakeCluster) -> None:
    nodes = [node("mill-0"), node("mill-1"), node("mill-2", being_drained=True)]
    assert lacking(make_cluster(), answers(nodes, [queue("a", "mill-0", "mill-1")])) == {}


def test_a_policy_says_how_many_replicas_there_are() -> None:
    arguments = {"x-quorum-initial-group-size": 3}
    definition = {"target-group-size": 5}
    assert group_size(queue("a", arguments=arguments, effective_policy_definition=definition)) == 5
    assert group_size(queue("a", arguments=arguments, effective_policy_definition=None)) == 3


def test_what_is_waited_for_stands_in_the_status() -> None:
    now = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    status = BrokerClusterStatus(step=StepStatus(name="drain 2", since="2026-01-01T00:00:00Z"))
    assert waiting(status, now) == ("drain 2", 60)
    assert waiting(BrokerClusterStatus(), now).seconds == 0


def test_what_was_drained_or_forced_stands_in_annotations() -> None:
    annotations = {"headrace.dev/drained": "2,0", "headrace.dev/force-restart": "1"}
    assert drained_by_us(annotations) == {0, 2}
    assert forced(annotations) == 1
    assert drained_by_us({}) == set()
    assert forced({"headrace.dev/force-restart": "all"}) is None
