"""The broker's container: command, variables, ports, probes, volumes.

Every path is a constant here and reaches the broker as a variable of the container: neither the
image nor the configuration file knows one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headrace_operator.builders.cluster import Cluster, Manifest
from headrace_operator.builders.config_file import FILE
from headrace_operator.builders.secret import JOIN_KEY, client_names

NAME: Final = "broker"
ZONE: Final = "topology.kubernetes.io/zone"  # label of machines, and of pods
DATA: Final = "/var/lib/headrace"  # mount point of the volume
STORE: Final = f"{DATA}/store"  # the node's own directory: a volume may hold lost+found besides
CONFIG: Final = "/etc/headrace/config"
DEFAULT_USER: Final = "/etc/headrace/default-user"
JOIN: Final = "/etc/headrace/join"
JOIN_VOLUME: Final = "join"
SHARDS: Final = "HEADRACE_NODE_SHARDS"
PROOF_REQUIRED: Final = "HEADRACE_CLUSTER_JOIN_SECRET_REQUIRED"
NODE_TLS: Final = "/etc/headrace/node-tls"
CLIENT_TLS: Final = "/etc/headrace/client-tls"
CLIENT_CA: Final = "/etc/headrace/client-ca"
TEMPORARY: Final = "/tmp"  # noqa: S108 - an emptyDir of the pod's own: the root is read-only

LIVE: Final = "/api/health/live"
READY: Final = "/api/health/ready"
_SECRET_MODE: Final = 0o440
_OWN_NAME: Final = "$(HEADRACE_NODE_NAME)"


def container(cluster: Cluster) -> Manifest:
    """Return the container of a node."""
    spec = cluster.spec
    found: Manifest = {
        "name": NAME,
        "image": cluster.image,
        "imagePullPolicy": spec.image_pull_policy,
        "command": ["headrace"],
        "args": ["serve", "--log-level", spec.config.logging.level],
        "env": _with_extra(environment(cluster), spec.pod.extra_env or []),
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in {**cluster.ports, **cluster.inner_ports}.items()
        ],
        "resources": _resources(cluster),
        **probes(cluster),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": volume_mounts(cluster),
    }
    if spec.pod.pre_stop_sleep_seconds:
        found["lifecycle"] = {"preStop": {"sleep": {"seconds": spec.pod.pre_stop_sleep_seconds}}}
    return found


def _with_extra(own: list[Manifest], extra: list[Manifest]) -> list[Manifest]:
    """Return all variables: those of a user replace the operator's, but for SHARDS.

    A variable may refer to those before it, so the user's stand behind what is known of the pod.
    """
    given = [row for row in extra if row.get("name") != SHARDS]
    names = {row.get("name") for row in given}
    rows = [row for row in own if row["name"] not in names]
    first = [row for row in rows if "valueFrom" in row]
    return [*first, *given, *(row for row in rows if "value" in row)]


def _resources(cluster: Cluster) -> Manifest:
    resources = cluster.spec.resources
    given = {"requests": resources.requests, "limits": resources.limits}
    return {name: value for name, value in given.items() if value}


def environment(cluster: Cluster) -> list[Manifest]:
    """Return the variables of the container: who the node is, where it listens, where files are."""
    spec = cluster.spec
    own = {
        "HEADRACE_NODE_NAME": "metadata.name",
        "HEADRACE_POD_IP": "status.podIP",
        # that of the machine, from Kubernetes 1.35 on; "" for a pod without the label
        "HEADRACE_POD_ZONE": f"metadata.labels['{ZONE}']",
    }
    secret = {"name": cluster.default_user_secret, "key": "username"}
    values = {
        "HEADRACE_CONFIG": f"{CONFIG}/{FILE}",
        "HEADRACE_NODE_DATA_DIR": STORE,
        "HEADRACE_CLUSTER_LISTEN": f"{spec.listeners.bind_address}:{spec.listeners.cluster}",
        "HEADRACE_DEFAULT_USER_PASSWORD_FILE": f"{DEFAULT_USER}/password",
        **_join_secret(cluster),
        **_listeners(cluster),
        **_metrics(cluster),
        "HEADRACE_HTTP_HOSTS": ",".join(http_hosts(cluster)),
        **({SHARDS: str(cluster.shards)} if cluster.shards > 1 else {}),
        **_node_tls(cluster),
        **_client_tls(cluster),
    }
    return [
        *[{"name": key, "valueFrom": {"fieldRef": {"fieldPath": own[key]}}} for key in own],
        {"name": "HEADRACE_DEFAULT_USER_NAME", "valueFrom": {"secretKeyRef": secret}},
        *[{"name": key, "value": value} for key, value in values.items()],
    ]


def _join_secret(cluster: Cluster) -> dict[str, str]:
    found = {"HEADRACE_CLUSTER_JOIN_SECRET_FILE": f"{JOIN}/{JOIN_KEY}"}
    return found if cluster.proof_required else {**found, PROOF_REQUIRED: "false"}


def is_proof_required(stateful_set: Manifest | None, pods: Sequence[Manifest]) -> bool:
    """Return whether nodes may refuse those that do not know the join secret.

    A cluster that was made without one is given it first: its pods, replaced one after the other,
    could not talk to those that are still to come. Once all have it, it is required.

    Args:
        stateful_set: that is there, None for none.
        pods: that are there.
    """
    if stateful_set is None:
        return True
    spec = stateful_set["spec"]
    template = spec["template"]["spec"]
    if not _has_join_secret(template):
        return False
    variables = [row["name"] for each in template["containers"] for row in each.get("env", [])]
    if PROOF_REQUIRED not in variables:
        return True
    return len(pods) >= spec["replicas"] and all(_has_join_secret(pod["spec"]) for pod in pods)


def shards_of(stateful_set: Manifest | None) -> int:
    """Return how many shards each pod of a StatefulSet has, 1 where there is none."""
    containers = stateful_set["spec"]["template"]["spec"]["containers"] if stateful_set else []
    rows = [row for each in containers for row in each.get("env", []) if row["name"] == SHARDS]
    return int(rows[0]["value"]) if rows else 1


def _has_join_secret(pod_spec: Manifest) -> bool:
    return any(each["name"] == JOIN_VOLUME for each in pod_spec.get("volumes") or [])


def _listeners(cluster: Cluster) -> dict[str, str]:
    address = cluster.spec.listeners.bind_address
    ports = cluster.ports
    return {
        f"HEADRACE_LISTENERS_{name.upper()}": f"{address}:{ports[name]}" if name in ports else ""
        for name in ("amqp", "amqps", "http", "https", "grpc", "grpcs")
    }


def _metrics(cluster: Cluster) -> dict[str, str]:
    listeners, monitoring = cluster.spec.listeners, cluster.spec.monitoring
    found = {
        "HEADRACE_LISTENERS_METRICS": f"{listeners.bind_address}:{listeners.metrics}",
        "HEADRACE_METRICS_ANONYMOUS": str(monitoring.anonymous).lower(),
        "HEADRACE_METRICS_PER_OBJECT": str(monitoring.per_object).lower(),
    }
    if monitoring.tracing.endpoint is not None:
        found["HEADRACE_TRACING_ENDPOINT"] = monitoring.tracing.endpoint
        found["HEADRACE_TRACING_RATIO"] = f"{monitoring.tracing.percent / 100:.2f}"
    return found


def _node_tls(cluster: Cluster) -> dict[str, str]:
    """Return where a node's certificate is; the operator's Secret has one for each node."""
    mode = cluster.spec.tls.internal.mode
    if mode == "Disabled":
        return {}
    own = _OWN_NAME if mode == "Operator" else "tls"
    return {
        "HEADRACE_CLUSTER_TLS_CERTIFICATE_FILE": f"{NODE_TLS}/{own}.crt",
        "HEADRACE_CLUSTER_TLS_KEY_FILE": f"{NODE_TLS}/{own}.key",
        "HEADRACE_CLUSTER_TLS_CA_FILE": f"{NODE_TLS}/ca.crt",
    }


def _client_tls(cluster: Cluster) -> dict[str, str]:
    if not cluster.serves_tls:
        return {}
    found = {
        "HEADRACE_TLS_CERTIFICATE_FILE": f"{CLIENT_TLS}/tls.crt",
        "HEADRACE_TLS_KEY_FILE": f"{CLIENT_TLS}/tls.key",
    }
    clients = cluster.spec.tls.clients
    if clients.verify != "None":
        where = CLIENT_CA if clients.ca_secret_name else CLIENT_TLS
        found["HEADRACE_TLS_CA_FILE"] = f"{where}/ca.crt"
    return found


def http_hosts(cluster: Cluster) -> list[str]:
    """Return the names by which nodes may be asked over HTTP; addresses need not be named."""
    return sorted(name for name in client_names(cluster) if ":" not in name)


def probes(cluster: Cluster) -> Manifest:
    """Return the probes.

    Where every listener asks for a certificate, which a kubelet has none of, it is looked whether
    they are there: that for AMQP is as long as clients are taken.
    """
    spec = cluster.spec.probes
    live, ready = _checks(cluster)
    timing = {"periodSeconds": spec.period_seconds, "timeoutSeconds": spec.timeout_seconds}
    looks = -(-spec.startup_seconds // spec.period_seconds)
    return {
        "startupProbe": {**live, **timing, "failureThreshold": looks},
        "livenessProbe": {**live, **timing, "failureThreshold": spec.failure_threshold},
        "readinessProbe": {**ready, **timing, "failureThreshold": 2},
    }


def _checks(cluster: Cluster) -> tuple[Manifest, Manifest]:
    listeners = cluster.spec.listeners
    if not cluster.serves_plain and cluster.spec.tls.clients.verify == "Required":
        return {"tcpSocket": {"port": "https"}}, {"tcpSocket": {"port": "amqps"}}
    where = (
        {"port": "http", "scheme": "HTTP"}
        if cluster.serves_plain
        else {"port": "https", "scheme": "HTTPS"}
    )
    live = {"httpGet": {"path": LIVE, **where}}
    if cluster.spec.probes.readiness == "GRPC" and cluster.serves_plain:
        return live, {"grpc": {"port": listeners.grpc}}
    return live, {"httpGet": {"path": READY, **where}}


def volume_mounts(cluster: Cluster) -> list[Manifest]:
    """Return where the volumes are mounted."""
    paths = {"data": DATA, "tmp": TEMPORARY}
    secret = {"config": CONFIG, "default-user": DEFAULT_USER, JOIN_VOLUME: JOIN}
    if cluster.spec.tls.internal.mode != "Disabled":
        secret["node-tls"] = NODE_TLS
    if cluster.serves_tls:
        secret["client-tls"] = CLIENT_TLS
        if cluster.spec.tls.clients.ca_secret_name:
            secret["client-ca"] = CLIENT_CA
    return [
        *[{"name": name, "mountPath": path} for name, path in paths.items()],
        *[{"name": name, "mountPath": path, "readOnly": True} for name, path in secret.items()],
    ]


def volumes(cluster: Cluster) -> list[Manifest]:
    """Return the volumes, but for the claim of the data."""
    clients = cluster.spec.tls.clients
    found: list[Manifest] = [
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "config", "configMap": {"name": cluster.config_map}},
        _secret(
            "default-user", cluster.default_user_secret, [{"key": "password", "path": "password"}]
        ),
        _secret(JOIN_VOLUME, cluster.join_secret),
    ]
    if cluster.spec.storage.ephemeral:
        found.append({"name": "data", "emptyDir": {"sizeLimit": cluster.spec.storage.size}})
    if cluster.spec.tls.internal.mode != "Disabled":
        found.append(_secret("node-tls", cluster.node_tls_secret))
    if cluster.serves_tls:
        found.append(_secret("client-tls", cluster.client_tls_secret))
        if clients.ca_secret_name:
            authority = [{"key": "ca.crt", "path": "ca.crt"}]
            found.append(_secret("client-ca", clients.ca_secret_name, authority))
    return found


def _secret(name: str, secret: str, items: list[dict[str, Any]] | None = None) -> Manifest:
    source: Manifest = {"secretName": secret, "defaultMode": _SECRET_MODE}
    if items:
        source["items"] = items
    return {"name": name, "secret": source}
