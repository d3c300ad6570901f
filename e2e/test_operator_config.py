"""A cluster from what the operator's builders give, each pod a process with an address of its own.

What a kubelet does is done here: volumes become directories, variables get their values, and names
of pods, which DNS would find, become addresses.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pika
import pytest
from e2e.harness.cluster import wait_for
from e2e.harness.ports import free_block

from headrace_broker.cli.session.api_client import ApiClient, ApiError
from headrace_operator.builders.cluster import Cluster
from headrace_operator.builders.config_file import config_file
from headrace_operator.builders.container import DATA, ZONE, container
from headrace_operator.builders.secret import (
    decoded,
    default_user_secret,
    join_secret,
    node_certificates,
)
from headrace_operator.builders.stateful_set import pod_template
from headrace_operator.specs.cluster import BrokerClusterSpec

PASSWORD: Final = "s3cret of the cluster"
JOIN: Final = "a secret by which nodes know each other"
STOP_SECONDS: Final = 30.0
FIRST_PORT: Final = free_block(9)  # both clusters of the test


def make_cluster(nodes: int) -> Cluster:
    names = ("amqp", "amqps", "http", "https", "grpc", "grpcs", "metrics", "cluster", "frames")
    ports = {name: FIRST_PORT + number for number, name in enumerate(names)}
    spec = {
        "replicas": nodes,
        "listeners": {"bindAddress": "$(HEADRACE_POD_IP)", **ports},
        "storage": {"size": "1Gi"},
    }
    decoded_spec = msgspec.convert(spec, BrokerClusterSpec)
    return Cluster("mill", "shop", "uid", decoded_spec, "image", nodes, nodes)


class Pods:
    """Processes in place of pods, with directories in place of volumes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._secrets: dict[str, dict[str, bytes]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def apply(self, cluster: Cluster) -> None:
        """Write what the pods of a cluster have in common."""
        self.cluster = cluster
        user = default_user_secret(cluster, PASSWORD)
        self._secrets[cluster.default_user_secret] = decoded(user)
        secret = self._secrets.get(cluster.join_secret) or decoded(join_secret(cluster, JOIN))
        self._secrets[cluster.join_secret] = secret
        names = (cluster.node_authority_secret, cluster.node_tls_secret)
        held = [self._secrets.get(name, {}) for name in names]
        for manifest in node_certificates(cluster, datetime.now(UTC), *held).manifests:
            self._secrets[manifest["metadata"]["name"]] = decoded(manifest)
        text = config_file(cluster)
        for ordinal in range(cluster.nodes):
            text = text.replace(cluster.node_host(ordinal), address(ordinal))
        self._config = text

    def start(self, ordinal: int) -> None:
        """Start one as a kubelet would."""
        name = self.cluster.pod(ordinal)
        root = self._root / name
        self._mount(root)
        own = container(self.cluster)
        environment = self._environment(own, name, ordinal, root)
        command = [sys.executable, "-m", "headrace_broker.cli", *own["args"]]
        assert own["command"] == ["headrace"]
        with (root / "log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def _mount(self, root: Path) -> None:
        mounts = {
            each["name"]: each["mountPath"] for each in container(self.cluster)["volumeMounts"]
        }
        volumes = {each["name"]: each for each in pod_template(self.cluster)["spec"]["volumes"]}
        for name, path in mounts.items():
            directory = root / path.removeprefix("/")
            directory.mkdir(parents=True, exist_ok=True)
            volume = volumes.get(name, {})
            if "configMap" in volume:
                (directory / "node.toml").write_text(self._config)
            if "secret" in volume:
                for key, data in self._secrets[volume["secret"]["secretName"]].items():
                    (directory / key).write_bytes(data)

    def _environment(
        self, own: dict[str, Any], name: str, ordinal: int, root: Path
    ) -> dict[str, str]:
        fields = {
            "metadata.name": name,
            "status.podIP": address(ordinal),
            f"metadata.labels['{ZONE}']": "",
        }
        mounts = [each["mountPath"] for each in own["volumeMounts"]]
        found: dict[str, str] = {}
        for row in own["env"]:
            source = row.get("valueFrom", {})
            if "fieldRef" in source:
                value = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                secret = source["secretKeyRef"]
                value = self._secrets[secret["name"]][secret["key"]].decode()
            else:
                value = row["value"]
                for key, earlier in found.items():
                    value = value.replace(f"$({key})", earlier)
            if any(value.startswith(f"{mount}/") for mount in mounts):
                value = f"{root}{value}"
            found[row["name"]] = value
        kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
        return {**kept, **found}

    def api(self, ordinal: int) -> ApiClient:
        http = self.cluster.ports["http"]
        return ApiClient(f"{address(ordinal)}:{http}", "admin", PASSWORD)

    def ready(self, *ordinals: int) -> bool:
        """Return whether these nodes accept clients.

        Raises:
            AssertionError: one has ended.
        """
        ended = [name for name, process in self.processes.items() if process.poll() is not None]
        assert not ended, f"{ended[0]}: {(self._root / ended[0] / 'log').read_text()}"
        with contextlib.suppress(ApiError):
            return all(self.api(ordinal).get("/api/health/ready")[0] == 200 for ordinal in ordinals)
        return False

    def lose_volume(self, ordinal: int) -> None:
        """Kill one, and remove its data."""
        name = self.cluster.pod(ordinal)
        self.processes[name].kill()
        self.processes[name].wait()
        shutil.rmtree(self._root / name / DATA.removeprefix("/"))

    def stop(self) -> list[int]:
        """Stop all as a kubelet does; return their exit codes."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        return [process.wait(STOP_SECONDS) for process in self.processes.values()]


def address(ordinal: int) -> str:
    """Each pod has an address of its own, all of them on loopback, and all have the same ports."""
    return f"127.0.71.{ordinal + 1}"


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    found = Pods(tmp_path)
    try:
        yield found
    finally:
        for process in found.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def test_pods_found_a_cluster_another_one_joins_it_and_one_loses_its_volume(pods: Pods) -> None:
    pods.apply(make_cluster(3))
    for ordinal in range(3):
        pods.start(ordinal)
    wait_for("three nodes", lambda: pods.ready(0, 1, 2))
    # From elsewhere than the node's own machine guest may not log in, and is not there at all.
    status, who = pods.api(1).get("/api/whoami")
    assert (status, who["name"], who["tags"]) == (200, "admin", ["administrator"])
    port = pods.cluster.ports["amqp"]
    login = pika.PlainCredentials("admin", PASSWORD)
    parameters = pika.ConnectionParameters(address(2), port, credentials=login)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        channel.basic_publish("", "orders", b"first")
    pods.apply(make_cluster(4))
    pods.start(3)
    wait_for("the fourth node", lambda: pods.ready(3))
    _, nodes = pods.api(3).get("/api/nodes")
    assert sorted(node["name"] for node in nodes) == ["mill-0", "mill-1", "mill-2", "mill-3"]
    pods.lose_volume(1)
    pods.start(1)
    wait_for("the node without its data", lambda: pods.ready(1))
    with pika.BlockingConnection(parameters) as connection:
        method, _, body = connection.channel().basic_get("orders", auto_ack=True)
        assert method is not None
        assert body == b"first"
    assert pods.stop() == [0, 0, 0, 0]
