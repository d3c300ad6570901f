"""The StatefulSet: what of it may not change, does not."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_operator.builders.cluster import node_id, ordinal_of
from headrace_operator.builders.container import container, probes
from headrace_operator.builders.stateful_set import stateful_set

# What the API server takes in an update of a StatefulSet.
CHANGEABLE = {
    "replicas",
    "template",
    "updateStrategy",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
    "revisionHistoryLimit",
}


def fixed(manifest: Any) -> Any:
    return {key: value for key, value in manifest["spec"].items() if key not in CHANGEABLE}


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 5},
        {"image": "other:2"},
        {"storage": {"whenDeleted": "Retain"}},
        {"listeners": {"amqp": 1234}},
        {"pod": {"labels": {"a": "b"}, "antiAffinity": "None"}},
        {"tls": {"clients": {"mode": "Operator"}}},
        {"monitoring": {"monitor": "PodMonitor"}},
    ],
)
def test_a_change_of_the_spec_is_one_that_a_stateful_set_takes(
    make_cluster: Any, spec: Any
) -> None:
    assert fixed(stateful_set(make_cluster(spec))) == fixed(stateful_set(make_cluster()))


def test_volumes_that_are_to_grow_leave_the_stateful_set_as_it_is(make_cluster: Any) -> None:
    grown = make_cluster({"storage": {"size": "20Gi"}})
    assert fixed(stateful_set(grown)) != fixed(stateful_set(make_cluster()))
    assert fixed(stateful_set(grown._replace(claim_size="10Gi"))) == fixed(
        stateful_set(make_cluster())
    )


def test_pods_found_nodes_while_others_come(make_cluster: Any) -> None:
    """Replicas may lag behind the spec, and the configuration names nodes that are on their way."""
    cluster = make_cluster({"replicas": 5}, replicas=3, nodes=4)
    assert stateful_set(cluster)["spec"]["replicas"] == 3


def test_ids_of_nodes_begin_at_one() -> None:
    assert [node_id(ordinal) for ordinal in range(3)] == [1, 2, 3]
    assert ordinal_of("mill-a-12") == 12
    with pytest.raises(ValueError, match="invalid literal"):
        ordinal_of("mill")


def test_the_selector_is_written_as_kubectl_takes_it(make_cluster: Any) -> None:
    cluster = make_cluster()
    pairs = dict(pair.split("=") for pair in cluster.selector_text.split(","))
    assert pairs == cluster.selector


@pytest.mark.parametrize(
    ("spec", "live", "ready"),
    [
        ({}, "httpGet", "httpGet"),
        ({"probes": {"readiness": "GRPC"}}, "httpGet", "grpc"),
        ({"tls": {"clients": {"mode": "Operator", "plain": False}}}, "httpGet", "httpGet"),
        (
            {"tls": {"clients": {"mode": "Operator", "plain": False, "verify": "Required"}}},
            "tcpSocket",
            "tcpSocket",
        ),
    ],
)
def test_probes_ask_what_a_kubelet_can_ask(
    make_cluster: Any, spec: Any, live: str, ready: str
) -> None:
    found = probes(make_cluster(spec))
    assert live in found["livenessProbe"]
    assert live in found["startupProbe"]
    assert ready in found["readinessProbe"]


def test_a_node_has_its_time_to_recover_before_it_is_started_anew(make_cluster: Any) -> None:
    startup = probes(make_cluster({"probes": {"startupSeconds": 100, "periodSeconds": 30}}))
    assert startup["startupProbe"]["failureThreshold"] * 30 >= 100


def test_extra_variables_replace_those_of_the_operator(make_cluster: Any) -> None:
    rack = {"name": "RACK", "value": "r-$(HEADRACE_NODE_NAME)"}
    zone = {"name": "HEADRACE_POD_ZONE", "value": "$(RACK)"}
    shards = {"name": "HEADRACE_NODE_SHARDS", "value": "auto"}
    spec = {"pod": {"extraEnv": [rack, zone, shards]}, "shards": 2}
    variables = container(make_cluster(spec)._replace(shards=2))["env"]
    names = [row["name"] for row in variables]
    assert len(set(names)) == len(names) == len(container(make_cluster())["env"]) + 2
    assert variables[names.index("HEADRACE_POD_ZONE")] == zone
    order = ["HEADRACE_NODE_NAME", "RACK", "HEADRACE_POD_ZONE"]
    assert sorted(order, key=names.index) == order, "each may refer to those before"
    assert variables[names.index("HEADRACE_NODE_SHARDS")]["value"] == "2"
