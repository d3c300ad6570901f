"""The operator with real brokers: a cluster from its resource, and what resources declare in it."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import kopf.testing
import pytest
from e2e.harness.cluster import wait_for
from e2e.harness.kubelet import Kubelet
from e2e.harness.ports import free_block
from tests.operator.handlers.kube_server import KubeServer, Name, Object, Store, condition
from tests.operator.handlers.machines import address

from headrace_broker.cli.session.api_client import ApiClient

GROUP: Final = "headrace.dev/v1alpha1"
COMMAND: Final = ["run", "--module=headrace_operator.handlers", "--standalone", "--all-namespaces"]
LISTENERS: Final = (
    *("amqp", "amqps", "http", "https", "grpc", "grpcs", "metrics", "cluster", "frames"),
)


@pytest.fixture
def kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeServer]:
    with KubeServer(tmp_path) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.config))
        monkeypatch.setenv("HEADRACE_OPERATOR_STEP_SECONDS", "0.3")
        monkeypatch.setenv("HEADRACE_OPERATOR_RESYNC_SECONDS", "1")
        with Kubelet(server, tmp_path):
            yield server


@contextmanager
def running() -> Iterator[None]:
    with kopf.testing.KopfRunner(COMMAND, timeout=30) as runner:
        yield
    assert runner.exit_code == 0, runner.output


@functools.cache
def ports() -> dict[str, int]:
    port = free_block(9)
    return {name: port + number for number, name in enumerate(LISTENERS)}


def cluster(nodes: int) -> Object:
    listeners = {"bindAddress": "$(HEADRACE_POD_IP)", **ports()}
    storage = {"size": "1Gi"}
    return {"spec": {"replicas": nodes, "listeners": listeners, "storage": storage}}


def ready(plural: str, name: str) -> Any:
    """Return what tells whether a resource is ready."""
    key = Name(f"{GROUP}/{plural}", "shop", name)

    def holds(store: Store) -> Object | None:
        found = store.objects.get(key)
        generation = (found or {}).get("metadata", {}).get("generation")
        status = (found or {}).get("status") or {}
        is_seen = status.get("observedGeneration") == generation
        is_still = condition(found, "Progressing") == "False"
        return found if is_seen and is_still and condition(found, "Ready") == "True" else None

    return holds


def api(server: KubeServer) -> ApiClient:
    secret = server.do(lambda store: store.objects[Name("v1/secrets", "shop", "mill-default-user")])
    password = base64.b64decode(secret["data"]["password"]).decode()
    return ApiClient(f"{address(0)}:{ports()['http']}", "admin", password)


def declare(server: KubeServer, plural: str, name: str, **spec: Any) -> None:
    body = {"spec": {"clusterRef": {"name": "mill"}, **spec}}
    server.create(f"{GROUP}/{plural}", name, body)
    server.wait(f"{plural} {name}", ready(plural, name))


def told(reason: str) -> Callable[[Store], bool]:
    """Return what tells whether there is an event for a reason."""
    return lambda store: any(
        each["reason"] == reason for name, each in store.objects.items() if _is_event(name)
    )


def ended(server: KubeServer, plural: str, name: str) -> None:
    key = Name(f"{GROUP}/{plural}", "shop", name)
    server.wait(f"the end of {name}", lambda store: key not in store.objects)


def test_a_topology_is_declared_kept_and_deleted(kubernetes: KubeServer) -> None:
    kubernetes.create(f"{GROUP}/brokerclusters", "mill", cluster(1))
    with running():
        kubernetes.wait("a cluster", ready("brokerclusters", "mill"))
        declare(kubernetes, "vhosts", "orders", limits={"max-queues": 10})
        declare(kubernetes, "users", "worker", tags=["monitoring"])
        declare(
            kubernetes,
            "permissions",
            "worker-orders",
            userRef={"name": "worker"},
            vhost="orders",
            read=".*",
            topics=[{"exchange": "amq.topic", "read": "^a"}],
        )
        declare(kubernetes, "queues", "tasks", vhost="orders", replicas=1)
        declare(kubernetes, "exchanges", "jobs", vhost="orders", type="topic")
        to = {"queue": "tasks"}
        declare(
            *(kubernetes, "bindings", "jobs-tasks"),
            vhost="orders",
            source="jobs",
            destination=to,
            routingKey="a.#",
        )
        limits = {"max-length": 100}
        declare(kubernetes, "policies", "short", vhost="orders", pattern="^t", definition=limits)
        client = api(kubernetes)
        queue = client.get("/api/queues/orders/tasks")[1]
        assert (queue["type"], queue["policy"]) == ("quorum", "short")
        assert client.get("/api/permissions/orders/worker")[1]["read"] == ".*"
        # Whoever changes it by hand finds it changed back.
        changed = {"pattern": "^x", "definition": limits}
        assert client.request("PUT", "/api/policies/orders/short", changed).status == 204
        path = "/api/policies/orders/short"
        wait_for("the policy as it was", lambda: client.get(path)[1]["pattern"] == "^t")
        # A queue with messages stays, and so does its resource.
        publish: Object = {"routing_key": "tasks", "payload": "x", "payload_encoding": "string"}
        publish |= {"properties": {}}
        sent = client.request("POST", "/api/exchanges/orders/amq.default/publish", publish)
        assert sent.body == {"routed": True}
        kubernetes.delete(f"{GROUP}/queues", "tasks")
        key = Name(f"{GROUP}/queues", "shop", "tasks")
        kubernetes.wait("that it is kept", lambda store: _reason(store.objects[key]) == "Kept")
        assert client.get("/api/queues/orders/tasks")[0] == 200
        assert client.request("DELETE", "/api/queues/orders/tasks/contents").status == 204
        for plural, name in (
            ("queues", "tasks"),
            ("policies", "short"),
            ("permissions", "worker-orders"),
            ("users", "worker"),
        ):
            if plural != "queues":
                kubernetes.delete(f"{GROUP}/{plural}", name)
            ended(kubernetes, plural, name)
        assert client.get("/api/queues/orders/tasks")[0] == 404
        assert client.get("/api/users/worker")[0] == 404
        # Without its cluster nothing is waited for.
        kubernetes.delete(f"{GROUP}/brokerclusters", "mill")
        kubernetes.wait("that the operator sees it", told("ClusterMissing"))
        kubernetes.delete(f"{GROUP}/exchanges", "jobs")
        ended(kubernetes, "exchanges", "jobs")
        kubernetes.wait("that it is told", told("GivenUp"))


def test_an_alarm_of_a_broker_scales_consumers_and_its_end_does_not_at_once(
    kubernetes: KubeServer,
) -> None:
    clusters, target = f"{GROUP}/brokerclusters", Name("apps/v1/deployments", "shop", "worker")
    kubernetes.create(clusters, "mill", cluster(1))
    kubernetes.create(target.resource, "worker", {"spec": {"replicas": 1}})
    with running():
        kubernetes.wait("a cluster", ready("brokerclusters", "mill"))
        declare(kubernetes, "queues", "tasks", replicas=1)
        declare(
            *(kubernetes, "consumerscalers", "tasks"),
            targetRef={"name": "worker"},
            queues=[{"vhost": "/", "name": "tasks"}],
            maxReplicas=4,
            alarmReaction={"blocked": "Max"},
            stabilization={"scaleDownSeconds": 3600},
        )
        scaler = Name(f"{GROUP}/consumerscalers", "shop", "tasks")
        # The watermark is lowered at run time, and with that the alarm is on.
        watermark(kubernetes, "0.000000001")
        kubernetes.wait("consumers", lambda store: replicas(store, target) == 4)
        watermark(kubernetes, None)
        kubernetes.wait("its end", lambda store: not _stage(store.objects[scaler]))
    rows = kubernetes.do(lambda store: [each for _, name, each in store.changes if name == target])
    assert [row["spec"]["replicas"] for row in rows] == [1, 4]
    decision = kubernetes.do(lambda store: store.objects[scaler]["status"]["decisions"][0])
    assert (decision["reason"], decision["alarmStage"]) == ("AlarmStage2", 2)


def watermark(server: KubeServer, value: str | None) -> None:
    limits = {"flowLimits": {"memoryHighWatermark": value}}
    server.merge(f"{GROUP}/brokerclusters", "mill", {"spec": limits})


def replicas(store: Store, target: Name) -> int:
    return int(store.objects[target]["spec"]["replicas"])


def _stage(found: Object) -> int:
    return int((found.get("status") or {}).get("alarmStage", 0))


def test_a_cluster_of_three_is_founded_and_rolled(kubernetes: KubeServer) -> None:
    kubernetes.create(f"{GROUP}/brokerclusters", "mill", cluster(3))
    with running():
        kubernetes.wait("a cluster", ready("brokerclusters", "mill"))
        declare(kubernetes, "queues", "tasks")
        change = {"spec": {"config": {"limits": {"channelsMax": 100}}}}
        kubernetes.merge(f"{GROUP}/brokerclusters", "mill", change)
        found = kubernetes.wait("the new configuration", ready("brokerclusters", "mill"))
        assert [row["state"] for row in found["status"]["nodes"]] == ["running"] * 3
        restarted = [text for reason, text in kubernetes.events() if reason == "Restart"]
        assert [text.split()[1] for text in restarted] == ["2", "1", "0"]


def test_nodes_get_a_second_shard_one_after_the_other(kubernetes: KubeServer) -> None:
    clusters = f"{GROUP}/brokerclusters"
    kubernetes.create(clusters, "mill", cluster(3))
    with running():
        kubernetes.wait("a cluster", ready("brokerclusters", "mill"))
        declare(kubernetes, "queues", "tasks")
        kubernetes.merge(clusters, "mill", {"spec": {"shards": 2}})
        found = kubernetes.wait("two shards", ready("brokerclusters", "mill"))
        assert found["status"]["shards"] == 2
        assert [row["state"] for row in found["status"]["nodes"]] == ["running"] * 3
        restarted = [text for reason, text in kubernetes.events() if reason == "Restart"]
        assert [text.split()[1] for text in restarted] == ["2", "1", "0"]
        client = api(kubernetes)
        rows = client.get("/api/cluster/nodes")[1]
        names = [[each["name"] for each in row["shards"]] for row in rows]
        assert names == [[f"mill-{n}", f"mill-{n}:1"] for n in range(3)]
        assert [row["zone"] for row in rows] == ["zone-0", "zone-1", "zone-2"]
        # A replica in a second shard is seen where it is: no two nodes go at once.
        queue = "/api/queues/%2F/tasks"
        moved = client.request("DELETE", f"{queue}/members/mill-2?move=true")
        assert moved.status in (200, 204), moved
        members = ["mill-0", "mill-1", "mill-2:1"]
        wait_for("the replica moved", lambda: sorted(client.get(queue)[1]["members"]) == members)
        change = {"spec": {"config": {"limits": {"channelsMax": 100}}}}
        kubernetes.merge(clusters, "mill", change)
        kubernetes.wait("the new configuration", ready("brokerclusters", "mill"))
        assert client.get(queue)[1]["state"] == "running"


def _is_event(name: Name) -> bool:
    return name.resource == "v1/events"


def _reason(found: Object) -> str:
    rows = (found.get("status") or {}).get("conditions") or []
    return next((str(row["reason"]) for row in rows if row["type"] == "Degraded"), "")
