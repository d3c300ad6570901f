"""Clusters from their resource to their end: kopf and all handlers against an API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import kopf.testing
import pytest
from tests.operator.handlers.kube_server import KubeServer, Name, Object, Store, condition
from tests.operator.handlers.machines import Broker, Machines

CLUSTERS: Final = "headrace.dev/v1alpha1/brokerclusters"
NAME: Final = Name(CLUSTERS, "shop", "mill")
COMMAND: Final = ["run", "--module=headrace_operator.handlers", "--standalone", "--all-namespaces"]

RunOperator = Callable[[], Any]


@pytest.fixture
def run_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[KubeServer, Broker, Machines, RunOperator]]:
    with KubeServer(tmp_path) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.config))
        monkeypatch.setenv("HEADRACE_OPERATOR_STEP_SECONDS", "0.1")
        monkeypatch.setenv("HEADRACE_OPERATOR_RESYNC_SECONDS", "1")
        broker = Broker()

        @contextmanager
        def run() -> Iterator[None]:
            with kopf.testing.KopfRunner(COMMAND, timeout=30) as runner:
                yield
            assert runner.exit_code == 0, runner.output

        with Machines(server, broker) as machines:
            yield server, broker, machines, run


def cluster(broker: Broker, **spec: Any) -> Object:
    listeners = {"http": broker.port}
    return {"spec": {"replicas": 3, "listeners": listeners, **spec}}


def settled(generation: int) -> Callable[[Store], Object | None]:
    """Return what tells whether the cluster is as its resource says."""

    def holds(store: Store) -> Object | None:
        found = store.objects.get(NAME)
        status = (found or {}).get("status") or {}
        if status.get("observedGeneration") != generation:
            return None
        is_still = _reason(found) == "AsWanted"
        return found if condition(found, "Ready") == "True" and is_still else None

    return holds


def looked_at(generation: int) -> Callable[[Store], Object | None]:
    """Return what tells whether the operator has seen a cluster's change."""

    def holds(store: Store) -> Object | None:
        found = store.objects[NAME]
        return found if found["status"].get("observedGeneration") == generation else None

    return holds


def test_a_cluster_is_made_rolled_scaled_and_deleted(run_operator: Any) -> None:
    server, broker, machines, run = run_operator
    server.create(CLUSTERS, "mill", cluster(broker))
    with run():
        found = server.wait("a cluster", settled(1))
        status = found["status"]
        assert (status["founders"], status["formed"], status["version"]) == (3, True, "0.1.0")
        assert [row["state"] for row in status["nodes"]] == ["running"] * 3
        assert machines.restarts == 3
        # Another image: each pod is drained, made anew, and serves again, the highest first.
        server.merge(CLUSTERS, "mill", {"spec": {"image": "headrace/broker:2"}})
        server.wait("the new image", settled(2))
        drained = [path for _, path in broker.calls if path.endswith(("/drain", "/revive"))]
        assert drained == [
            f"cluster/nodes/mill-{ordinal}/{what}"
            for ordinal in (2, 1, 0)
            for what in ("drain", "revive")
        ]
        assert machines.restarts == 6
        pod = server.get("v1/pods", "mill-0")
        assert pod is not None
        assert pod["spec"]["containers"][0]["image"] == "headrace/broker:2"
        # One more, then two less.
        server.merge(CLUSTERS, "mill", {"spec": {"replicas": 4}})
        server.wait("a fourth node", settled(3))
        assert server.names("v1/pods") == ["mill-0", "mill-1", "mill-2", "mill-3"]
        server.merge(CLUSTERS, "mill", {"spec": {"replicas": 2}})
        server.wait("two nodes", settled(4))
        assert server.names("v1/pods") == ["mill-0", "mill-1"]
        assert sorted(broker.nodes) == ["mill-0", "mill-1"]
        server.delete(CLUSTERS, "mill")
        server.wait("the end", lambda store: NAME not in store.objects)
        assert server.names("v1/secrets") == server.names("v1/configmaps") == []


def test_an_upgrade_is_finished_by_whoever_the_spec_says(run_operator: Any) -> None:
    server, broker, _, run = run_operator
    broker.problem = "node 'mill-1' runs an older version"
    server.create(CLUSTERS, "mill", cluster(broker))
    with run():
        server.wait("a cluster", settled(1))
        assert server.get(CLUSTERS, "mill")["status"]["clusterVersion"] == 1
        rollout = {"rollout": {"finishUpgrade": "Automatic"}}
        server.merge(CLUSTERS, "mill", {"spec": rollout})
        server.wait("another look", settled(2))
        assert ("POST", "cluster/version/raise") not in broker.calls  # a node is in the way
        broker.problem = ""
        server.wait("the version", lambda store: _version(store.objects[NAME]) == 2)
        assert broker.calls.count(("POST", "cluster/version/raise")) == 1


def test_more_shards_than_a_cluster_may_have_are_told(run_operator: Any) -> None:
    server, broker, _, run = run_operator
    server.create(CLUSTERS, "mill", cluster(broker, shards=4))
    with run():
        found = server.wait("a cluster", settled(1))
        assert found["status"]["shards"] == 4
        server.merge(CLUSTERS, "mill", {"spec": {"replicas": 5, "shards": None}})
        found = server.wait("as many as there may be", lambda store: _refusal(store.objects[NAME]))
        assert condition(found, "Degraded") == "True"
        server.wait("four nodes", lambda store: store.objects[NAME]["status"]["replicas"] == 4)


def test_ports_that_shards_cannot_have_are_told_and_not_applied(run_operator: Any) -> None:
    server, broker, machines, run = run_operator
    server.create(CLUSTERS, "mill", cluster(broker, shards=2))
    with run():
        server.wait("a cluster", settled(1))
        before = server.get("apps/v1/statefulsets", "mill")["spec"]
        taken = {"listeners": {"cluster": 7100, "amqp": 7200}, "replicas": 4}
        server.merge(CLUSTERS, "mill", {"spec": taken})
        found = server.wait("the refusal", lambda store: _refusal(store.objects[NAME]))
        assert condition(found, "Degraded") == "True"
        [row] = [row for row in found["status"]["conditions"] if row["type"] == "Degraded"]
        assert row["message"] == "listeners: a port of one of 2 shards is taken, or above 65535"
        restarts = machines.restarts
        assert server.get("apps/v1/statefulsets", "mill")["spec"] == before
        calls = list(broker.calls)
        server.merge(CLUSTERS, "mill", {"spec": {"replicas": 2}})
        server.wait("the refusal of fewer nodes", looked_at(3))
        assert broker.calls == calls, "no node leaves whose pod could not go"
        assert not server.get(CLUSTERS, "mill")["status"].get("step")
        server.merge(CLUSTERS, "mill", {"spec": {"listeners": {"amqp": 5672}, "replicas": 4}})
        server.wait("a fourth node", settled(4))
        assert machines.restarts == restarts + 1
        assert server.names("v1/pods") == ["mill-0", "mill-1", "mill-2", "mill-3"]


def test_a_cluster_that_lacks_a_secret_keeps_its_nodes_as_they_are(run_operator: Any) -> None:
    server, broker, machines, run = run_operator
    server.create(CLUSTERS, "mill", cluster(broker))
    with run():
        server.wait("a cluster", settled(1))
        before = server.get("apps/v1/statefulsets", "mill")["spec"]
        calls, restarts = list(broker.calls), machines.restarts
        clients = {"clients": {"mode": "Secret", "secretName": "to-come"}}
        for generation, replicas in ((2, 4), (3, 2)):
            server.merge(CLUSTERS, "mill", {"spec": {"tls": clients, "replicas": replicas}})
            found = server.wait("a look", looked_at(generation))
            [row] = [row for row in found["status"]["conditions"] if row["type"] == "Degraded"]
            assert (row["reason"], row["message"]) == (
                "SecretMissing",
                "Secret to-come has no tls.crt",
            )
            server.wait("another", lambda store: not store.objects[NAME]["status"].get("step"))
            assert server.get("apps/v1/statefulsets", "mill")["spec"] == before
        assert (broker.calls, machines.restarts) == (calls, restarts)


def test_a_cluster_whose_status_is_lost_keeps_its_shards(run_operator: Any) -> None:
    server, broker, _, run = run_operator
    server.create(CLUSTERS, "mill", cluster(broker, shards=4))
    with run():
        server.wait("a cluster", settled(1))
    server.do(lambda store: store.objects[NAME].pop("status"))
    server.merge(CLUSTERS, "mill", {"spec": {"shards": None}})
    with run():
        found = server.wait("a cluster again", settled(2))
        assert found["status"]["shards"] == 4


def _refusal(found: Object) -> Object | None:
    rows = (found.get("status") or {}).get("conditions") or []
    return found if any(row["reason"] == "Shards" for row in rows) else None


def test_an_operator_that_begins_in_the_middle_goes_on(run_operator: Any) -> None:
    server, broker, machines, run = run_operator
    server.create(CLUSTERS, "mill", cluster(broker))
    with run():
        server.wait("a cluster", settled(1))
        server.merge(CLUSTERS, "mill", {"spec": {"image": "headrace/broker:2"}})
        server.wait("a drained node", lambda store: _is_drained(store.objects[NAME]))
    with run():
        server.wait("the new image", settled(2))
    found = server.get(CLUSTERS, "mill")
    assert found is not None
    assert not _is_drained(found)
    assert machines.restarts == 6
    assert not any(row["being_drained"] for row in broker.nodes.values())


def test_a_paused_cluster_is_looked_at_and_not_changed(run_operator: Any) -> None:
    server, broker, machines, run = run_operator
    server.create(CLUSTERS, "mill", cluster(broker))
    with run():
        server.wait("a cluster", settled(1))
        paused = {"metadata": {"annotations": {"headrace.dev/paused": "true"}}}
        server.merge(CLUSTERS, "mill", paused)
        server.merge(CLUSTERS, "mill", {"spec": {"image": "headrace/broker:2"}})
        server.wait("a pause", lambda store: _reason(store.objects[NAME]) == "Paused")
        assert machines.restarts == 3
        paused["metadata"]["annotations"]["headrace.dev/paused"] = "false"
        server.merge(CLUSTERS, "mill", paused)
        server.wait("the new image", settled(2))
    assert machines.restarts == 6


def test_what_fails_again_and_again_is_told_once(run_operator: Any) -> None:
    server, broker, _, run = run_operator
    server.do(lambda store: store.forbidden.add("v1/configmaps"))
    server.create(CLUSTERS, "mill", cluster(broker))
    with run():
        server.wait("a failure", lambda store: condition(store.objects[NAME], "Degraded") == "True")
        before = server.do(lambda store: store.refusals)
        server.wait("two more", lambda store: store.refusals >= before + 2)
        assert [reason for reason, _ in server.events()].count("Failed") == 1
        server.do(lambda store: store.forbidden.clear())
        server.wait("a cluster", settled(1))


def _version(found: Object) -> int:
    return int(found["status"].get("clusterVersion") or 0)


def _is_drained(found: Object) -> bool:
    return bool((found["metadata"].get("annotations") or {}).get("headrace.dev/drained"))


def _reason(found: Object | None) -> str:
    rows = ((found or {}).get("status") or {}).get("conditions") or []
    return next((str(row["reason"]) for row in rows if row["type"] == "Progressing"), "")
