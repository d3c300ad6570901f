"""Workload of the scenario: resources of Headrace, and pods that use the brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from e2e.kubernetes.cluster import GROUP, LABEL, Manifest

API_VERSION: Final = f"{GROUP}/v1alpha1"
CLUSTER: Final = "mill"
VHOST: Final = "sales"
USER: Final = "shop"
ORDERS, TASKS, DONE = "orders", "tasks", "done"  # queues
EVENTS: Final = "events"  # the exchange that leads to the first two
KEY: Final = "order.new"
WORKERS: Final = "workers"  # the Deployment that is scaled
WORKERS_MAX: Final = 3
SCALER: Final = "workers"
PROGRAM: Final = "client-program"  # the ConfigMap with what pods run
# In two ranges, so that one set of numbers tells all messages apart.
PUBLISHERS: Final = {"amqp": 1, "grpc": 1_000_000_000}
COLLECTORS: Final = {ORDERS: "amqp", DONE: "grpc"}
FILE: Final = Path(__file__).with_name("client_program.py")
UID: Final = 10001  # of the image

SECURITY: Final[Manifest] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def cluster_spec(ephemeral: bool) -> Manifest:
    """Return the spec of the BrokerCluster that comes with the release."""
    return {
        "replicas": 3,
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "512Mi"},
        },
        "storage": {"size": "1Gi", "ephemeral": ephemeral},
        "pod": {"preStopSleepSeconds": 2},
    }


def topology() -> list[Manifest]:
    """Return the resources that declare everything in the brokers."""
    bindings = [
        _declared(
            "Binding",
            f"{EVENTS}-{queue}",
            vhost=VHOST,
            source=EVENTS,
            destination={"queue": queue},
            routingKey="order.#",
        )
        for queue in (ORDERS, TASKS)
    ]
    return [
        _declared("Vhost", VHOST, limits={"max-connections": 100}),
        _declared("User", USER, tags=["management"]),
        _declared(
            *("Permission", f"{USER}-{VHOST}"),
            vhost=VHOST,
            userRef={"name": USER},
            write=f"^({EVENTS}|amq\\.default)$",
            read=".*",
        ),
        _declared("Exchange", EVENTS, vhost=VHOST, type="topic"),
        *[_declared("Queue", name, vhost=VHOST, replicas=3) for name in (ORDERS, TASKS, DONE)],
        *bindings,
        _declared(
            *("Policy", "long"),
            vhost=VHOST,
            pattern=".*",
            applyTo="queues",
            definition={"max-length": 10_000_000, "overflow": "reject-publish"},
        ),
    ]


def scaler() -> Manifest:
    """Return what scales the workers: quickly, for a scenario of minutes."""
    return _declared(
        *("ConsumerScaler", SCALER),
        targetRef={"kind": "Deployment", "name": WORKERS},
        queues=[{"vhost": VHOST, "name": TASKS}],
        minReplicas=1,
        maxReplicas=WORKERS_MAX,
        backlogPerConsumer=1000,
        alarmReaction={"blocked": "Max"},
        stabilization={"scaleUpSeconds": 2, "scaleDownSeconds": 10, "cooldownSeconds": 10},
    )


def _declared(kind: str, name: str, **spec: Any) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"clusterRef": {"name": CLUSTER}, **spec},
    }


class Workload:
    """Pods that use the brokers.

    Args:
        namespace: where they are.
        image: the broker's.
    """

    def __init__(self, namespace: str, image: str) -> None:
        self._namespace = namespace
        self._image = image

    def program(self) -> Manifest:
        """Return the ConfigMap with what the pods run."""
        text = FILE.read_text(encoding="utf-8")
        return {**self._named("v1", "ConfigMap", PROGRAM), "data": {FILE.name: text}}

    def publisher(self, protocol: str) -> Manifest:
        """Return a pod that publishes until it is told to stop."""
        first = str(PUBLISHERS[protocol])
        where = ["--exchange", EVENTS, "--key", KEY, "--first", first]
        return self._pod(publisher_name(protocol), ["publish", protocol, *where])

    def collector(self, queue: str) -> Manifest:
        """Return a pod that takes all that is in a queue."""
        return self._pod(collector_name(queue), ["collect", COLLECTORS[queue], queue])

    def workers(self) -> Manifest:
        """Return the Deployment that moves messages from one queue to another."""
        labels = {"app": WORKERS, LABEL: self._namespace}
        return {
            **self._named("apps/v1", "Deployment", WORKERS),
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": self._pod_spec(["work", TASKS, "--to", DONE]),
                },
            },
        }

    def _named(self, api_version: str, kind: str, name: str) -> Manifest:
        meta = {"name": name, "labels": {LABEL: self._namespace}}
        return {"apiVersion": api_version, "kind": kind, "metadata": meta}

    def _pod(self, name: str, arguments: list[str]) -> Manifest:
        spec = {**self._pod_spec(arguments), "restartPolicy": "Never"}
        return {**self._named("v1", "Pod", name), "spec": spec}

    def _pod_spec(self, arguments: list[str]) -> Manifest:
        secret = f"{USER}-user-credentials"
        fields = {"HOST": "host", "USER": "username", "PASSWORD": "password"}
        environment: list[Manifest] = [
            {
                "name": f"HEADRACE_{name}",
                "valueFrom": {"secretKeyRef": {"name": secret, "key": key}},
            }
            for name, key in fields.items()
        ]
        container = {
            "name": "client",
            "image": self._image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", f"/scenario/{FILE.name}", *arguments],
            "env": [*environment, {"name": "HEADRACE_VHOST", "value": VHOST}],
            "resources": {
                "requests": {"cpu": "50m", "memory": "64Mi"},
                "limits": {"memory": "256Mi"},
            },
            "securityContext": SECURITY,
            "volumeMounts": [
                {"name": "program", "mountPath": "/scenario", "readOnly": True},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }
        return {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 10,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": UID,
                "runAsGroup": UID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [
                {"name": "program", "configMap": {"name": PROGRAM}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "8Mi"}},
            ],
        }


def publisher_name(protocol: str) -> str:
    """Return the name of a publisher's pod."""
    return f"publisher-{protocol}"


def collector_name(queue: str) -> str:
    """Return the name of a collector's pod."""
    return f"collector-{queue}"
