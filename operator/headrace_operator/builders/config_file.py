"""The broker's configuration: one file for all nodes, and variables for what differs.

The file holds what is the same everywhere and names no path. Paths, listeners and the node's name
are variables of the container, so that the file works wherever its volumes are mounted.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from headrace_operator.builders.cluster import Cluster, Manifest, node_id
from headrace_operator.builders.quantity import quantity_bytes
from headrace_operator.specs.field import Spec

FILE: Final = "node.toml"
CACHE_BYTES: Final = 64 << 20  # the broker's own default
DISK_FREE_BYTES: Final = 2 << 30  # likewise
_MIB: Final = 1 << 20
_HASH_LETTERS: Final = 16

Section = dict[str, Any]


def config_map(cluster: Cluster) -> Manifest:
    """Return the ConfigMap with the configuration file."""
    found = cluster.manifest("v1", "ConfigMap", cluster.config_map)
    return {**found, "data": {FILE: config_file(cluster)}}


def config_file(cluster: Cluster) -> str:
    """Return the configuration file."""
    settings = _settings(cluster)
    settings["cluster"] |= _cluster_section(cluster)
    return _toml(settings)


def config_hash(cluster: Cluster) -> str:
    """Return a hash of what needs a restart when it changes.

    The nodes are not among it: who runs knows them from the catalog.
    """
    text = _toml(_settings(cluster))
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LETTERS]


def _cluster_section(cluster: Cluster) -> Section:
    ports = cluster.node_ports
    nodes = [
        {
            "id": node_id(ordinal),
            "name": cluster.pod(ordinal),
            "address": f"{cluster.node_host(ordinal)}:{ports['cluster']}",
        }
        for ordinal in range(cluster.nodes)
    ]
    return {
        "name": cluster.name,
        # A node that comes when the cluster grows proves by the join secret that it belongs to it.
        "admit_nodes": True,
        **({"frames_port": ports["frames"]} if "frames" in ports else {}),
        "nodes": nodes,
    }


def _settings(cluster: Cluster) -> dict[str, Section]:
    config = cluster.spec.config
    log = _section(config.log)
    log.setdefault("cache_bytes", _cache_bytes(cluster))
    return {
        "raft": _section(config.raft),
        "limits": {**_section(config.limits), "disk_free_bytes_min": disk_free_bytes(cluster)},
        "log": log,
        "logging": {"format": config.logging.format},
        "tls": _tls_section(cluster),
        "telemetry": _section(config.telemetry),
        "cluster": _section(config.cluster),
    }


def _section(spec: Spec) -> Section:
    """Return what a spec says, by the file's names, which are those of its attributes."""
    found = {field: getattr(spec, field) for field in spec.__struct_fields__}
    return {name: value for name, value in found.items() if value is not None}


def _cache_bytes(cluster: Cluster) -> int:
    """Return how much of a small pod's memory the cache of entries may take."""
    limits = cluster.spec.resources.limits or {}
    if "memory" not in limits:
        return CACHE_BYTES
    return max(_MIB, min(CACHE_BYTES, quantity_bytes(limits["memory"]) // 8))


def disk_free_bytes(cluster: Cluster) -> int:
    """Return how much of a volume stays free: of a small one the broker's default would be all."""
    return min(DISK_FREE_BYTES, quantity_bytes(cluster.spec.storage.size) // 10)


def _tls_section(cluster: Cluster) -> Section:
    clients = cluster.spec.tls.clients
    if not cluster.serves_tls or clients.verify == "None":
        return {}
    names = {"None": "none", "CommonName": "common_name", "DistinguishedName": "distinguished_name"}
    return {
        "verify": "peer",
        "fail_if_no_peer_cert": clients.verify == "Required",
        "login_from": names[clients.login_from],
    }


def flow_limits(cluster: Cluster) -> dict[str, int | str]:
    """Return the limits of flow control that the spec names, as `/api/flow/limits` calls them."""
    limits = cluster.spec.flow_limits
    found = {field: getattr(limits, field) for field in limits.__struct_fields__}
    return {name.replace("_", "-"): value for name, value in found.items() if value is not None}


def _toml(sections: dict[str, Section]) -> str:
    lines: list[str] = []
    for name, section in sections.items():
        if not section:
            continue
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {_value(value)}" for key, value in section.items()]
    return "\n".join(lines[1:]) + "\n"


def _value(value: Any) -> str:
    """Return a value as TOML has it; it knows all escapes that strings have in JSON."""
    if isinstance(value, list):
        rows = [", ".join(f"{key} = {_value(each)}" for key, each in row.items()) for row in value]
        return "[\n" + "".join(f"    {{ {row} }},\n" for row in rows) + "]"
    return json.dumps(value)
