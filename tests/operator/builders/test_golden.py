"""Whole clusters as manifests, compared with files.

`HEADRACE_WRITE_GOLDEN=1` writes the files anew: look at the difference before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from headrace_operator.builders.cluster import Cluster
from headrace_operator.builders.manifests import cluster_manifests, unwanted
from headrace_operator.crd import yaml_text

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(GOLDEN.glob("*.spec.yaml"))
WRITE = bool(os.environ.get("HEADRACE_WRITE_GOLDEN"))
KUBERNETES = "1.32"  # whose schemas are asked
# What the Prometheus operator defines, Kubernetes has no schema of.
FOREIGN = {"ServiceMonitor", "PodMonitor"}


def cluster_of(path: Path, make_cluster: Any) -> Cluster:
    cluster: Cluster = make_cluster(yaml.safe_load(path.read_text(encoding="utf-8")))
    return cluster


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name.partition(".")[0])
def test_manifests_are_those_of_the_file(path: Path, make_cluster: Any) -> None:
    manifests = cluster_manifests(cluster_of(path, make_cluster))
    text = "---\n".join(yaml_text(manifest) for manifest in manifests)
    golden = path.with_name(path.name.replace(".spec.", ".manifests."))
    if WRITE:
        golden.write_text(text, encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name.partition(".")[0])
def test_manifests_are_what_kubernetes_takes(path: Path, make_cluster: Any) -> None:
    cluster = cluster_of(path, make_cluster)
    for manifest in cluster_manifests(cluster):
        assert manifest["metadata"]["ownerReferences"][0]["uid"] == cluster.uid
        if manifest["kind"] not in FOREIGN:
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name.partition(".")[0])
def test_pods_meet_the_restricted_standard(path: Path, make_cluster: Any) -> None:
    """Kubernetes' Pod Security Standard `restricted`, and no path of the machine's."""
    manifest = cluster_manifests(cluster_of(path, make_cluster))[-1]
    assert manifest["kind"] == "StatefulSet"
    spec = manifest["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not spec["automountServiceAccountToken"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert not [each for each in spec["volumes"] if "hostPath" in each]
    for container in spec["containers"]:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}


def test_what_an_earlier_spec_asked_for_is_named(make_cluster: Any) -> None:
    off = {
        "disruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "pod": {"serviceAccountName": "other"},
    }
    kinds = [kind for _, kind, _ in unwanted(make_cluster(off))]
    assert kinds == [
        "ServiceAccount",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "ServiceMonitor",
        "PodMonitor",
    ]
    assert unwanted(make_cluster({"monitoring": {"monitor": "PodMonitor"}})) == [
        ("monitoring.coreos.com/v1", "ServiceMonitor", "mill")
    ]
