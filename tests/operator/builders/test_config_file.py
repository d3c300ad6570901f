"""The configuration: the broker takes it, and what differs from pod to pod comes by variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace_broker.config.configuration import Config, load_config
from headrace_operator.builders.config_file import (
    config_file,
    config_hash,
    disk_free_bytes,
    flow_limits,
)
from headrace_operator.builders.container import environment, is_proof_required
from headrace_operator.builders.manifests import cluster_manifests
from headrace_operator.builders.stateful_set import stateful_set

POD = {
    "metadata.name": "mill-1",
    "status.podIP": "10.1.2.3",
    "metadata.labels['topology.kubernetes.io/zone']": "eu-1b",
}


def container_environment(cluster: Any) -> dict[str, str]:
    """The variables as a kubelet gives them to a container, `$(NAME)` replaced."""
    found: dict[str, str] = {}
    for row in environment(cluster):
        source = row.get("valueFrom", {})
        if "fieldRef" in source:
            value = POD[source["fieldRef"]["fieldPath"]]
        elif "secretKeyRef" in source:
            value = "admin"
        else:
            value = row["value"]
            for name, earlier in found.items():
                value = value.replace(f"$({name})", earlier)
        found[row["name"]] = value
    return found


def loaded(cluster: Any, directory: Path) -> Config:
    path = directory / "node.toml"
    path.write_text(config_file(cluster))
    return load_config(path, container_environment(cluster))


def test_a_node_knows_itself_by_the_name_of_its_pod(make_cluster: Any, tmp_path: Path) -> None:
    config = loaded(make_cluster(), tmp_path)
    assert (config.node.id, config.node.name, config.node.zone) == (2, "mill-1", "eu-1b")
    assert config.address == "mill-1.mill-nodes.shop.svc:7100"
    assert config.cluster.name == "mill"
    assert config.cluster.listen == "0.0.0.0:7100"
    assert [node.id for node in config.cluster.nodes] == [1, 2, 3]
    assert config.default_user.name == "admin"
    assert config.listeners.amqp == "0.0.0.0:5672"
    assert config.listeners.secure() == ()
    assert (config.listeners.metrics, config.metrics.anonymous) == ("0.0.0.0:15692", True)
    assert config.cluster_tls.key_file == "/etc/headrace/node-tls/mill-1.key"


def test_with_transport_grpc_only_the_network_policy_knows_of_a_port_for_frames(
    make_cluster: Any, tmp_path: Path
) -> None:
    spec = {"config": {"cluster": {"transport": "grpc"}}, "listeners": {"frames": 7345}}
    cluster = make_cluster(spec)
    config = loaded(cluster, tmp_path)
    assert (config.cluster.transport, config.cluster.frames_port) == ("grpc", 0)
    knowing = [each["kind"] for each in cluster_manifests(cluster) if "7345" in str(each)]
    assert knowing == ["NetworkPolicy"], "pods that still use the other transport are cut off"
    del spec["config"]
    before = make_cluster(spec)
    assert str(cluster_manifests(before)).count("7345") > 3
    assert loaded(before, tmp_path).cluster.frames_port == 7345
    assert config_hash(before) != config_hash(cluster), "pods are not replaced"


def test_tls_only_with_certificates_of_clients(make_cluster: Any, tmp_path: Path) -> None:
    clients = {"mode": "Operator", "plain": False, "verify": "Required", "loginFrom": "CommonName"}
    config = loaded(make_cluster({"tls": {"clients": clients}}), tmp_path)
    assert (config.listeners.amqp, config.listeners.amqps) == ("", "0.0.0.0:5671")
    assert config.tls.fail_if_no_peer_cert
    assert config.tls.login_from == "common_name"
    assert config.tls.ca_file == "/etc/headrace/client-tls/ca.crt"


def test_a_secret_of_others_has_one_certificate_for_all_nodes(
    make_cluster: Any, tmp_path: Path
) -> None:
    internal = {"mode": "Secret", "secretName": "nodes"}
    config = loaded(make_cluster({"tls": {"internal": internal}}), tmp_path)
    assert config.cluster_tls.certificate_file == "/etc/headrace/node-tls/tls.crt"


def test_a_pod_may_listen_on_its_own_address_only(make_cluster: Any, tmp_path: Path) -> None:
    listeners = {"bindAddress": "$(HEADRACE_POD_IP)", "amqp": 2345}
    config = loaded(make_cluster({"listeners": listeners}), tmp_path)
    assert config.listeners.amqp == "10.1.2.3:2345"
    assert config.cluster.listen == "10.1.2.3:7100"


def test_everything_that_can_be_configured_reaches_the_broker(
    make_cluster: Any, tmp_path: Path
) -> None:
    spec = {
        "config": {
            "raft": {
                "tickMs": 50,
                "electionTicks": 20,
                "heartbeatTicks": 2,
                "quiesceTicks": 0,
                "diskStallMs": 9000,
            },
            "limits": {
                "frameBytesMax": 8192,
                "connectionsMax": 7,
                "channelsMax": 5,
                "messageBytesMax": 4096,
            },
            "cluster": {"balanceLeaders": False},
            "telemetry": {
                "enabled": False,
                "bytesMax": 8 << 20,
                "ageHoursMax": 5,
                "entitiesMax": 20,
            },
            "log": {"segmentBytes": 16 << 20, "cacheBytes": 2 << 20, "snapshotEveryBytes": 1 << 20},
            "logging": {"format": "human"},
        }
    }
    config = loaded(make_cluster(spec), tmp_path)
    assert (config.raft.tick_ms, config.raft.quiesce_ticks) == (50, 0)
    assert (config.limits.frame_bytes_max, config.limits.message_bytes_max) == (8192, 4096)
    assert (config.log.segment_bytes, config.log.cache_bytes) == (16 << 20, 2 << 20)
    assert config.logging.format == "human"
    assert (config.raft.disk_stall_ms, config.limits.connections_max) == (9000, 7)
    assert (config.cluster.balance_leaders, len(config.cluster.nodes)) == (False, 3)
    telemetry = config.telemetry
    assert (telemetry.enabled, telemetry.bytes_max) == (False, 8 << 20)
    assert (telemetry.age_hours_max, telemetry.entities_max) == (5, 20)


def test_nodes_restart_for_what_they_read_at_their_start(make_cluster: Any) -> None:
    changed = {"cluster": {"balanceLeaders": False}, "telemetry": {"enabled": False}}
    hashes = {config_hash(make_cluster())}
    hashes |= {config_hash(make_cluster({"config": {key: changed[key]}})) for key in changed}
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("spec", "cache", "free"),
    [
        ({}, 64 << 20, 1 << 30),
        ({"resources": {"limits": {"memory": "256Mi"}}}, 32 << 20, 1 << 30),
        ({"resources": {"limits": {"memory": "1Mi"}}}, 1 << 20, 1 << 30),
        ({"resources": {}, "storage": {"size": "1000Gi"}}, 64 << 20, 2 << 30),
        ({"storage": {"size": "500Mi"}}, 64 << 20, 50 << 20),
    ],
)
def test_small_pods_and_volumes_have_small_caches_and_reserves(
    make_cluster: Any, tmp_path: Path, spec: Any, cache: int, free: int
) -> None:
    """A reserve of the broker's default would raise an alarm on a small volume for ever."""
    cluster = make_cluster(spec)
    config = loaded(cluster, tmp_path)
    assert config.log.cache_bytes == cache
    assert config.limits.disk_free_bytes_min == disk_free_bytes(cluster) == free


def test_the_hash_changes_with_what_needs_a_restart_and_with_nothing_else(
    make_cluster: Any,
) -> None:
    plain = config_hash(make_cluster())
    assert config_hash(make_cluster({"replicas": 5})) == plain
    assert config_hash(make_cluster({"flowLimits": {"credit": 7}})) == plain
    assert config_hash(make_cluster({"tls": {"certificates": {"days": 60}}})) == plain
    assert config_hash(make_cluster({"config": {"raft": {"tickMs": 50}}})) != plain


def test_limits_of_flow_control_are_named_as_the_api_names_them(make_cluster: Any) -> None:
    spec = {"flowLimits": {"memoryHighWatermark": "0.4", "blockedAfterMs": 0}}
    assert flow_limits(make_cluster(spec)) == {
        "blocked-after-ms": 0,
        "memory-high-watermark": "0.4",
    }


def test_spans_go_to_a_collector(make_cluster: Any, tmp_path: Path) -> None:
    assert loaded(make_cluster(), tmp_path).tracing.endpoint == ""
    tracing = {"endpoint": "http://collector:4317", "percent": 5}
    config = loaded(make_cluster({"monitoring": {"tracing": tracing}}), tmp_path)
    assert (config.tracing.endpoint, config.tracing.ratio) == ("http://collector:4317", 0.05)


def test_nodes_know_each_other_by_a_secret_and_let_in_who_has_it(
    make_cluster: Any, tmp_path: Path
) -> None:
    config = loaded(make_cluster({"tls": {"internal": {"mode": "Disabled"}}}), tmp_path)
    assert config.cluster.join_secret_file == "/etc/headrace/join/secret"
    assert config.cluster.join_secret_required
    assert config.cluster.admit_nodes


def test_a_secret_is_required_once_all_pods_have_it(make_cluster: Any, tmp_path: Path) -> None:
    def pods(cluster: Any) -> tuple[Any, Any]:
        found = stateful_set(cluster)
        return found, {"spec": found["spec"]["template"]["spec"]}

    cluster = make_cluster()
    final, new = pods(cluster)
    between, given = pods(cluster._replace(proof_required=False))
    before, old = pods(cluster)
    for each in (before["spec"]["template"]["spec"], old["spec"]):
        each["volumes"] = [row for row in each["volumes"] if row["name"] != "join"]
    assert not loaded(cluster._replace(proof_required=False), tmp_path).cluster.join_secret_required
    assert is_proof_required(None, [])  # a new cluster
    assert not is_proof_required(before, [old, old, old])
    assert not is_proof_required(between, [given, given, old])
    assert not is_proof_required(between, [given, given])  # one is being replaced
    assert is_proof_required(between, [given, given, given])
    assert is_proof_required(final, [new, given, given])


def test_nodes_may_be_asked_over_http_by_the_names_of_their_services(
    make_cluster: Any, tmp_path: Path
) -> None:
    clients = {"mode": "Operator", "extraNames": ["broker.example", "fd00::1"]}
    config = loaded(make_cluster({"tls": {"clients": clients}}), tmp_path)
    names = set(config.http.hosts)
    assert {"mill", "mill.shop", "mill.shop.svc", "*.mill-nodes.shop.svc"} <= names
    assert "broker.example" in names
    assert not [name for name in names if ":" in name]
