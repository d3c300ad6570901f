"""Apply the objects of a cluster: Secrets that are kept, manifests, volumes that grow."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headrace_operator.builders.cluster import Cluster, Manifest
from headrace_operator.builders.manifests import cluster_manifests, unwanted
from headrace_operator.builders.quantity import quantity_bytes
from headrace_operator.builders.secret import (
    JOIN_KEY,
    Data,
    Renewed,
    client_certificate,
    decoded,
    default_user_secret,
    join_secret,
    new_join_secret,
    new_password,
    node_certificates,
    node_secret_problem,
)
from headrace_operator.kube_api import KubeError
from headrace_operator.operator_context import Operator
from headrace_operator.reconciler import Key
from headrace_operator.shard_count import ports_fit
from headrace_operator.specs.cluster import CertificateStatus

MONITORING: Final = "monitoring.coreos.com/"
MISSING: Final = "SecretMissing"  # reason: a Secret is not as it should be


class Applied(NamedTuple):
    """Result of applying the objects of a cluster.

    Attributes:
        certificates: of the operator's authority.
        news: what was done to certificates, for events.
        problem: what is missing, "" for nothing.
        reason: the same in one word.
    """

    certificates: list[CertificateStatus]
    news: list[str]
    problem: str
    reason: str = MISSING

    @property
    def lacks_secret(self) -> bool:
        """True if no manifest was applied, because of a Secret that is not as it should be."""
        return self.problem != "" and self.reason == MISSING


class Applier:
    """Applies the objects of clusters; unchanged objects are not applied again at once.

    Calls raise KubeError where the API server refuses or does not answer.
    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._applied: dict[Key, tuple[str, float]] = {}  # hash and time
        self._refused: dict[Key, str] = {}  # monitors that the API server knows nothing of

    def forget(self, key: Key) -> None:
        """Forget the applied objects of a cluster."""
        self._applied.pop(key, None)
        self._refused.pop(key, None)

    def refused(self, key: Key) -> str:
        """Return what the API server knows nothing of, "" when it knows all."""
        return self._refused.get(key, "")

    async def secrets(self, cluster: Cluster) -> Applied:
        """Apply the Secrets that a cluster needs."""
        problem = await self._default_user(cluster)
        await self._join_secret(cluster)
        certificates: list[CertificateStatus] = []
        news: list[str] = []
        internal, clients = cluster.spec.tls.internal.mode, cluster.spec.tls.clients.mode
        for mode, renew, names in (
            (internal, node_certificates, (cluster.node_authority_secret, cluster.node_tls_secret)),
            (
                clients,
                client_certificate,
                (cluster.client_authority_secret, cluster.client_tls_secret),
            ),
        ):
            if mode != "Operator":
                continue
            held = [await self._secret(cluster, name) for name in names]
            renewed: Renewed = renew(cluster, self._operator.now(), held[0], held[1])
            for manifest in renewed.manifests:
                await self._operator.kube.apply(manifest)
            certificates.append(renewed.status)
            if renewed.reason:
                news.append(f"Secret {names[1]}: {renewed.reason}")
        if not problem and internal == "Secret":
            found = await self._secret(cluster, cluster.node_tls_secret)
            problem = node_secret_problem(cluster, found)
        if not problem and clients == "Secret":
            problem = await self._client_problem(cluster)
        return Applied(certificates, news, problem)

    async def _secret(self, cluster: Cluster, name: str) -> Data:
        return decoded(await self._operator.kube.get("v1", "Secret", cluster.namespace, name))

    async def _default_user(self, cluster: Cluster) -> str:
        """Create the administrator's Secret, once; return the error in a foreign one."""
        name = cluster.default_user_secret
        found = await self._secret(cluster, name)
        if cluster.spec.default_user.secret_name:
            missing = [key for key in ("username", "password") if not found.get(key)]
            return f"Secret {name} has no {missing[0]}" if missing else ""
        if not found.get("password"):
            await self._operator.kube.apply(default_user_secret(cluster, new_password()))
        return ""

    async def _join_secret(self, cluster: Cluster) -> None:
        """Make the Secret by which nodes know each other, once."""
        found = await self._secret(cluster, cluster.join_secret)
        if not found.get(JOIN_KEY):
            await self._operator.kube.apply(join_secret(cluster, new_join_secret()))

    async def _client_problem(self, cluster: Cluster) -> str:
        name = cluster.client_tls_secret
        found = await self._secret(cluster, name)
        missing = [key for key in ("tls.crt", "tls.key") if not found.get(key)]
        return f"Secret {name} has no {missing[0]}" if missing else ""

    async def manifests(self, cluster: Cluster) -> bool:
        """Reconcile everything else with the spec; return whether anything was applied.

        Drift is corrected when it is looked again. Ports with which no node could start are left.
        """
        if not ports_fit(cluster.spec, cluster.shards):
            return False
        wanted = cluster_manifests(cluster)
        digest = hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()
        now = self._operator.now().timestamp()
        key = Key(cluster.namespace, cluster.name)
        before, at = self._applied.get(key, ("", 0.0))
        if before == digest and now - at < self._operator.settings.resync_seconds:
            return False
        self._refused.pop(key, None)
        for manifest in wanted:
            await self._apply(key, manifest)
        for api_version, kind, name in unwanted(cluster):
            await self._remove(cluster, api_version, kind, name)
        self._applied[key] = (digest, now)
        return True

    async def _apply(self, key: Key, manifest: Manifest) -> None:
        """Apply a manifest; a monitor without its resource type is left out."""
        try:
            await self._operator.kube.apply(manifest)
        except KubeError as error:
            if error.status != 404 or not manifest["apiVersion"].startswith(MONITORING):
                raise
            text = f"there is no {manifest['kind']}: the Prometheus operator is not installed"
            self._refused[key] = text

    async def _remove(self, cluster: Cluster, api_version: str, kind: str, name: str) -> None:
        """Delete what an earlier spec asked for, if it is this cluster's."""
        kube = self._operator.kube
        found = await kube.get(api_version, kind, cluster.namespace, name)
        if found is None:
            return
        owners = found["metadata"].get("ownerReferences") or []
        if any(each.get("uid") == cluster.uid for each in owners):
            uid = found["metadata"].get("uid", "")
            await kube.delete(api_version, kind, cluster.namespace, name, uid)

    async def volumes(self, cluster: Cluster, claims: Sequence[Manifest]) -> list[str]:
        """Expand volumes to the size of the spec, and return the names of those that grow.

        A missing one cannot grow, and is checked again.

        Raises:
            KubeError: the API server refuses, as where the storage class does not allow it.
        """
        size = cluster.spec.storage.size
        grown = []
        for claim in claims:
            meta = claim["metadata"]
            asked = claim["spec"]["resources"]["requests"]["storage"]
            if (claim.get("status") or {}).get("phase") == "Pending":
                continue
            if quantity_bytes(asked) < quantity_bytes(size):
                await self._operator.kube.merge(
                    f"/api/v1/namespaces/{meta['namespace']}/persistentvolumeclaims/{meta['name']}",
                    {"spec": {"resources": {"requests": {"storage": size}}}},
                )
                grown.append(str(meta["name"]))
        return grown


def claim_size(stateful_set: dict[str, Any] | None) -> str:
    """Return the size of the volumes that a StatefulSet asks for, "" where it asks for none."""
    templates = ((stateful_set or {}).get("spec") or {}).get("volumeClaimTemplates") or []
    return str(templates[0]["spec"]["resources"]["requests"]["storage"]) if templates else ""
