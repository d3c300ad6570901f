"""Headrace on a real Kubernetes, from `helm install` to `helm uninstall`: steps, in this order."""

from __future__ import annotations

from functools import partial

import pytest
from e2e.kubernetes.cluster import GROUP, Manifest, condition
from e2e.kubernetes.command import CommandError
from e2e.kubernetes.record import shown
from e2e.kubernetes.release import OPERATOR, OPERATOR_LABEL, definitions
from e2e.kubernetes.scenario import BROKER_CLUSTERS, CHANGE_SECONDS, START_SECONDS, Scenario
from e2e.kubernetes.workload import (
    CLUSTER,
    DONE,
    ORDERS,
    PROGRAM,
    PUBLISHERS,
    SCALER,
    VHOST,
    WORKERS,
    WORKERS_MAX,
    scaler,
    topology,
)

QUEUES = f"queues.{GROUP}"
SCALERS = f"consumerscalers.{GROUP}"


def replicas(scenario: Scenario) -> int:
    """Return how many workers there are to be."""
    return int(scenario.kubernetes.there("deployments", WORKERS)["spec"]["replicas"])


def has_confirms(scenario: Scenario, protocol: str) -> bool:
    return bool(scenario.published(protocol).of("confirmed"))


def test_the_chart_is_installed_and_its_cluster_serves(scenario: Scenario) -> None:
    scenario.release.install()
    body = scenario.wait_cluster("a cluster of three")
    assert body["status"]["founders"] == 3
    assert len(definitions(scenario.kubernetes)) == 10
    claims = scenario.kubernetes.items("persistentvolumeclaims")
    assert len(claims) == (0 if scenario.is_ephemeral else 3)


def test_the_charts_own_tests_pass(scenario: Scenario) -> None:
    assert "Succeeded" in scenario.release.test()


def test_resources_declare_a_topology(scenario: Scenario) -> None:
    rows = topology()
    scenario.kubernetes.apply(*rows)
    for each in rows:
        kind = f"{each['kind'].lower()}.{GROUP}"
        scenario.kubernetes.wait_ready(kind, each["metadata"]["name"])
    queue = scenario.kubernetes.there(QUEUES, ORDERS)
    assert sorted(queue["status"]["members"]) == [f"{CLUSTER}-{number}" for number in range(3)]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"type": "classic"}, "cannot be changed"),
        ({"replicas": 0}, "spec.replicas"),
        ({"deletionPolicy": "Perhaps"}, "spec.deletionPolicy"),
    ],
    ids=lambda value: str(value),
)
def test_what_cannot_be_is_refused_with_a_sentence(
    scenario: Scenario, change: Manifest, sentence: str
) -> None:
    with pytest.raises(CommandError, match=sentence):
        scenario.kubernetes.merge(QUEUES, ORDERS, {"spec": change})


def test_messages_are_published_over_both_protocols_and_worked_on(scenario: Scenario) -> None:
    kubernetes, workload = scenario.kubernetes, scenario.workload
    publishers = [workload.publisher(each) for each in PUBLISHERS]
    kubernetes.apply(workload.program(), workload.workers(), *publishers, scaler())
    for protocol in PUBLISHERS:
        kubernetes.waiter.wait(
            f"a confirm over {protocol}", partial(has_confirms, scenario, protocol), START_SECONDS
        )
    kubernetes.wait_ready(SCALERS, SCALER)
    scenario.wait_progress()


def test_nothing_stops_for_long_when_a_leader_and_the_operator_are_killed(
    scenario: Scenario,
) -> None:
    leader = scenario.kubernetes.there(QUEUES, ORDERS)["status"]["leader"]
    before = scenario.broker_pods()
    scenario.kubernetes.delete("pods", leader, options=("--force", "--grace-period=0"))
    scenario.wait_progress()
    operators = ("--selector", OPERATOR_LABEL, "--force", "--grace-period=0")
    scenario.kubernetes.delete("pods", options=operators)
    scenario.wait_cluster("the killed node to be back")
    after = scenario.broker_pods()
    assert [name for name in before if before[name] != after[name]] == [leader]
    scenario.wait_progress()


def test_a_pod_that_is_deleted_hands_over(scenario: Scenario) -> None:
    before = scenario.broker_pods()
    pod = min(before)
    scenario.kubernetes.delete("pods", pod)
    scenario.kubernetes.waiter.wait(
        "another pod in its place",
        lambda: scenario.broker_pods().get(pod) not in (None, before[pod]),
        CHANGE_SECONDS,
    )
    scenario.wait_cluster("the new pod's node")
    scenario.wait_progress()


def test_a_node_that_has_lost_its_volume_joins_anew(scenario: Scenario) -> None:
    if scenario.is_ephemeral:
        pytest.skip("there are no volumes: the pods that were replaced have lost their data, too")
    kubernetes, pod = scenario.kubernetes, max(scenario.broker_pods())
    claim = f"data-{pod}"
    before = kubernetes.there("persistentvolumeclaims", claim)["metadata"]["uid"]
    kubernetes.delete("persistentvolumeclaims", claim, options=("--wait=false",))
    kubernetes.delete("pods", pod)

    def is_new() -> bool:
        found = kubernetes.get("persistentvolumeclaims", claim)
        return found is not None and found["metadata"]["uid"] != before

    kubernetes.waiter.wait("another volume", is_new, START_SECONDS)
    scenario.wait_cluster("the node without data")
    scenario.wait_progress()


def test_a_memory_alarm_blocks_publishers_and_brings_consumers(scenario: Scenario) -> None:
    kubernetes = scenario.kubernetes
    watermark(scenario, "0.000000001")
    kubernetes.waiter.wait(
        "the alarm", lambda: scenario.cluster()["status"].get("alarms"), START_SECONDS
    )
    kubernetes.waiter.wait(
        "a publisher that is told of it",
        lambda: scenario.published("amqp").was_blocked,
        START_SECONDS,
    )
    kubernetes.waiter.wait("consumers", lambda: replicas(scenario) == WORKERS_MAX, START_SECONDS)
    decision = kubernetes.there(SCALERS, SCALER)["status"]["decisions"][0]
    assert (decision["reason"], decision["alarmStage"]) == ("AlarmStage2", 2)
    watermark(scenario, None)
    kubernetes.waiter.wait(
        "its end", lambda: not scenario.cluster()["status"].get("alarms"), START_SECONDS
    )
    scenario.wait_progress()
    kubernetes.waiter.wait("fewer consumers", lambda: replicas(scenario) == 1, CHANGE_SECONDS)


def watermark(scenario: Scenario, value: str | None) -> None:
    """Set the memory watermark at run time, or have it as it was."""
    patch = {"spec": {"flowLimits": {"memoryHighWatermark": value}}}
    scenario.kubernetes.merge(BROKER_CLUSTERS, CLUSTER, patch)


def test_an_upgrade_restarts_nodes_one_after_the_other(scenario: Scenario) -> None:
    kubernetes, before = scenario.kubernetes, scenario.broker_pods()
    values = scenario.release.values
    values["cluster"]["spec"]["config"] = {"limits": {"channelsMax": 100}}
    values["operator"]["podAnnotations"] = {f"{GROUP}/upgraded": "true"}
    scenario.release.upgrade()
    scenario.wait_cluster("the new configuration everywhere")
    after = scenario.broker_pods()
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    restarts = [each["message"].split()[1] for each in kubernetes.events("Restart", CLUSTER)]
    assert sorted(restarts) == ["0", "1", "2"], restarts
    operator = kubernetes.there("deployments", OPERATOR)["spec"]["template"]["metadata"]
    assert operator["annotations"] == {f"{GROUP}/upgraded": "true"}
    scenario.wait_progress()


@pytest.mark.parametrize("count", [4, 3], ids=["out", "in"])
def test_the_cluster_is_scaled(scenario: Scenario, count: int) -> None:
    kubernetes = scenario.kubernetes
    kubernetes.kubectl("scale", BROKER_CLUSTERS, CLUSTER, f"--replicas={count}")
    scenario.wait_cluster(f"{count} nodes", count)
    names = [f"{CLUSTER}-{number}" for number in range(count)]
    kubernetes.waiter.wait(
        f"{count} pods", lambda: sorted(scenario.broker_pods()) == names, START_SECONDS
    )
    if not scenario.is_ephemeral:
        kubernetes.waiter.wait(
            f"{count} volumes",
            lambda: len(kubernetes.items("persistentvolumeclaims")) == count,
            START_SECONDS,
        )
    queue = kubernetes.wait_ready(QUEUES, ORDERS)
    assert set(queue["status"]["members"]) <= set(names)
    scenario.wait_progress()


def test_a_queue_with_messages_is_kept_when_its_resource_is_deleted(scenario: Scenario) -> None:
    scenario.kubernetes.delete(QUEUES, ORDERS, options=("--wait=false",))

    def is_kept() -> bool:
        body = scenario.kubernetes.there(QUEUES, ORDERS)
        return bool(condition(body, "Degraded").get("reason") == "Kept")

    scenario.kubernetes.waiter.wait("it to be kept", is_kept, START_SECONDS)
    scenario.wait_progress()


def test_nothing_that_was_confirmed_is_lost(scenario: Scenario) -> None:
    scenario.stop_publishers()
    confirmed = scenario.confirmed()
    print(f"  confirmed: {len(confirmed)}")
    for queue in (ORDERS, DONE):
        missing = scenario.collect(queue, confirmed, CHANGE_SECONDS)
        assert not missing, f"confirmed, and not come out of {queue} in time: {shown(missing)}"
    refused = {each: scenario.published(each).of("refused") for each in PUBLISHERS}
    assert not any(refused.values()), {each: shown(rows) for each, rows in refused.items()}
    scenario.removed()
    scenario.kubernetes.delete("deployments", WORKERS)


def test_what_is_declared_goes_with_its_resources(scenario: Scenario) -> None:
    kubernetes = scenario.kubernetes
    kubernetes.delete(SCALERS, SCALER)
    kubernetes.wait_gone(QUEUES, ORDERS)  # it is empty by now, and was to be deleted
    for each in reversed(topology()):
        kind, name = f"{each['kind'].lower()}.{GROUP}", each["metadata"]["name"]
        kubernetes.delete(kind, name, options=("--ignore-not-found", "--wait=false"))
        kubernetes.wait_gone(kind, name)
    given_up = kubernetes.events("GivenUp")
    assert not given_up, [each["message"] for each in given_up]


def test_what_is_left_of_a_cluster_that_is_gone_is_let_go(scenario: Scenario) -> None:
    orphan = next(each for each in topology() if each["kind"] == "Vhost")
    orphan["spec"]["clusterRef"]["name"] = "nowhere"
    kind = f"vhosts.{GROUP}"
    scenario.kubernetes.apply(orphan)
    scenario.kubernetes.waiter.wait(
        "the operator to have seen it",
        lambda: scenario.kubernetes.there(kind, VHOST)["metadata"].get("finalizers"),
        START_SECONDS,
    )
    scenario.kubernetes.delete(kind, VHOST, options=("--wait=false",))
    scenario.kubernetes.wait_gone(kind, VHOST)


def test_nothing_is_left_behind_when_it_is_uninstalled(scenario: Scenario) -> None:
    kubernetes = scenario.kubernetes
    kubernetes.delete("configmaps", PROGRAM, options=("--ignore-not-found",))
    scenario.release.uninstall()
    kubernetes.waiter.wait("an empty namespace", lambda: not kubernetes.left(), START_SECONDS)
    assert scenario.release.cluster_wide() == []
    assert len(definitions(kubernetes)) == 10, "Helm never deletes definitions, as documented"
