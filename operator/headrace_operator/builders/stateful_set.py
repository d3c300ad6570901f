"""The StatefulSet of a cluster, and the template of its pods."""

from __future__ import annotations

from typing import Any, Final

from headrace_operator.builders.cluster import CONFIG_HASH_ANNOTATION, Cluster, Manifest
from headrace_operator.builders.config_file import config_hash
from headrace_operator.builders.container import ZONE, container, volumes
from headrace_operator.builders.override import merged

USER: Final = 10001  # of the images
_HOST: Final = "kubernetes.io/hostname"


def stateful_set(cluster: Cluster) -> Manifest:
    """Return the StatefulSet.

    Its pods start side by side, for a new cluster begins when all run. A pod of an old template is
    replaced only by who deletes it: which one may go, and when, is for the operator to decide.
    """
    spec = cluster.spec
    found = cluster.manifest("apps/v1", "StatefulSet", cluster.name)
    found["spec"] = {
        "replicas": cluster.replicas,
        "serviceName": cluster.node_service,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": cluster.selector},
        "template": pod_template(cluster),
    }
    if not spec.storage.ephemeral:
        found["spec"]["volumeClaimTemplates"] = [volume_claim(cluster)]
        found["spec"]["persistentVolumeClaimRetentionPolicy"] = {
            "whenDeleted": spec.storage.when_deleted,
            "whenScaled": "Delete",  # what a node held that has left is worth nothing any more
        }
    return found


def volume_claim(cluster: Cluster) -> Manifest:
    """Return the template of the claims."""
    storage = cluster.spec.storage
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": cluster.claim_size or storage.size}},
        "volumeMode": "Filesystem",
    }
    if storage.storage_class_name:
        spec["storageClassName"] = storage.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "labels": cluster.selector},
        "spec": spec,
    }


def pod_template(cluster: Cluster) -> Manifest:
    """Return the template of the pods."""
    pod = cluster.spec.pod
    template: Manifest = {
        "metadata": {
            "labels": {**(pod.labels or {}), **cluster.labels},
            "annotations": {
                **(pod.annotations or {}),
                CONFIG_HASH_ANNOTATION: config_hash(cluster),
            },
        },
        "spec": _pod_spec(cluster),
    }
    found: Manifest = merged(template, pod.override or {})
    # Whatever is overridden: by these the pods are found.
    found["metadata"]["labels"].update(cluster.selector)
    return found


def _pod_spec(cluster: Cluster) -> Manifest:
    pod = cluster.spec.pod
    spec: Manifest = {
        "serviceAccountName": cluster.service_account,
        "automountServiceAccountToken": False,
        # A Service called headrace-node would set HEADRACE_NODE_PORT, which looks like a setting.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": pod.termination_grace_period_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container(cluster)],
        "volumes": volumes(cluster),
        "topologySpreadConstraints": _spread(cluster),
    }
    affinity = _affinity(cluster)
    optional = {
        "affinity": affinity,
        "imagePullSecrets": [{"name": each.name} for each in pod.image_pull_secrets or []],
        "nodeSelector": pod.node_selector,
        "tolerations": pod.tolerations,
        "priorityClassName": pod.priority_class_name,
    }
    return {**spec, **{name: value for name, value in optional.items() if value}}


def _affinity(cluster: Cluster) -> Manifest:
    pod = cluster.spec.pod
    if pod.affinity is not None:
        return pod.affinity
    term: Manifest = {"topologyKey": _HOST, "labelSelector": {"matchLabels": cluster.selector}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    kinds: dict[str, dict[str, Any]] = {
        "Required": {required: [term]},
        "Preferred": {preferred: [{"weight": 100, "podAffinityTerm": term}]},
        "None": {},
    }
    found = kinds[pod.anti_affinity]
    return {"podAntiAffinity": found} if found else {}


def _spread(cluster: Cluster) -> list[Manifest]:
    given = cluster.spec.pod.topology_spread_constraints
    if given is not None:
        return given
    return [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": cluster.selector},
        }
    ]
