"""Runs jobs of the pipeline: their drivers' manifests, and their outcome.

All that is made belongs to the PipelineRun, and Kubernetes deletes it together with it. The groups
by which the job has read stay in the brokers: another run of the same options goes on there.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from typing import Any, Final

import msgspec

from headrace_operator.builders.cluster import OPERATOR, Cluster, Manifest
from headrace_operator.builders.secret import decoded
from headrace_operator.cluster_finder import ClusterFinder, failure_reason
from headrace_operator.handlers.run_status import Problem, Seen, driver_seen, run_status
from headrace_operator.operator_context import Operator
from headrace_operator.reconciler import NEVER, Key
from headrace_operator.specs.kind import PIPELINE_RUN, is_paused
from headrace_operator.specs.pipeline_run import PipelineRunSpec, PipelineRunStatus
from headrace_sparkdriver.driver import TEMPLATE_HASH, Driver, driver_manifests

BATCH: Final = "batch/v1"
CREDENTIALS_MISSING: Final = "CredentialsMissing"
CERTIFICATE_MISSING: Final = "CertificateMissing"


class PipelineRunHandler:
    """Reconciles runs."""

    def __init__(self, operator: Operator, ways: ClusterFinder) -> None:
        self._operator = operator
        self._ways = ways

    def forget(self, key: Key) -> None:
        """Do nothing: there is no state to forget."""

    async def reconcile(self, key: Key) -> float:
        """Reconcile a driver with its run; return the seconds until the next reconcile.

        Raises:
            KubeError: the API server refuses, or does not answer.
            BrokerError: the cluster's administrator is not known.
            ClusterUnreachableError: the cluster may not be named, or is not there.
        """
        body = await self._operator.resource(PIPELINE_RUN, *key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return NEVER
        spec = msgspec.convert(body["spec"], PipelineRunSpec)
        way = await self._ways.find(body["spec"]["clusterRef"], key.namespace)
        problem = await self._problem(spec, way.cluster, key.namespace)
        if problem is None and not is_paused(body):
            await self._apply(body, spec, way.cluster)
        seen = await self._seen(spec, key)
        await self._write(body, seen, problem)
        settings = self._operator.settings
        return settings.step_seconds if seen.phase == "Pending" else settings.resync_seconds

    async def fail(self, key: Key, error: Exception) -> None:
        """Report a failed reconcile in the status; the job continues."""
        body = await self._operator.resource(PIPELINE_RUN, *key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return
        problem = Problem(failure_reason(error), str(error) or type(error).__name__)
        await self._write(body, None, problem)

    async def _problem(
        self, spec: PipelineRunSpec, cluster: Cluster, namespace: str
    ) -> Problem | None:
        """Return which Secret lacks."""
        name = _credentials(spec, cluster, namespace)
        verify = cluster.spec.tls.clients.verify if cluster.serves_tls else "None"
        if spec.certificate is None and verify == "Required":
            text = "brokers ask for certificates: spec.certificate must name a Secret with one"
            return Problem(CERTIFICATE_MISSING, text)
        if not name and spec.certificate is None:
            text = "the cluster is in another namespace: spec.credentials must name a Secret here"
            return Problem(CREDENTIALS_MISSING, text)
        wanted = [(name, ("username", "password"), CREDENTIALS_MISSING)] if name else []
        if spec.certificate is not None:
            keys = ("tls.crt", "tls.key")
            wanted.append((spec.certificate.name, keys, CERTIFICATE_MISSING))
        for secret, keys, reason in wanted:
            found = decoded(await self._operator.kube.get("v1", "Secret", namespace, secret))
            missing = [key for key in keys if not found.get(key)]
            if missing:
                return Problem(reason, f"Secret {secret} has no {missing[0]}")
        return None

    async def _apply(self, body: Manifest, spec: PipelineRunSpec, cluster: Cluster) -> None:
        """Apply manifests; a finished Job stays as it is."""
        authority = await self._authority(body, cluster)
        driver = driver_of(body, spec, cluster, authority)
        for manifest in driver_manifests(driver):
            if manifest["kind"] != "Job" or await self._may_apply(manifest):
                await self._operator.kube.apply(manifest)

    async def _authority(self, body: Manifest, cluster: Cluster) -> str:
        """Apply a Secret with the authority of the brokers' certificates alone; return its name.

        Theirs holds a key besides, which is nobody else's business, and may be in another
        namespace.
        """
        if not cluster.serves_tls:
            return ""
        kube = self._operator.kube
        secret = cluster.client_tls_secret
        held = decoded(await kube.get("v1", "Secret", cluster.namespace, secret)).get("ca.crt")
        if not held:
            return ""  # an authority that everybody knows
        meta = body["metadata"]
        name = f"{meta['name']}-ca"
        await kube.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": name,
                    "namespace": meta["namespace"],
                    "labels": _LABELS,
                    "ownerReferences": [_owner(body)],
                },
                "type": "Opaque",
                "data": {"ca.crt": b64encode(held).decode()},
            }
        )
        return name

    async def _may_apply(self, manifest: Manifest) -> bool:
        """Return whether a Job can be applied; one of another template is deleted first.

        The template of a Job cannot be changed. What has ended stays, whatever is asked for now.
        """
        meta = manifest["metadata"]
        spec = {**manifest["spec"], "suspend": None}
        digest = hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).hexdigest()[:16]
        meta["annotations"] = {TEMPLATE_HASH: digest}
        kube, where = self._operator.kube, (BATCH, "Job", meta["namespace"], meta["name"])
        found = await kube.get(*where)
        if found is None:
            return True
        rows = (found.get("status") or {}).get("conditions") or []
        if any(row["type"] in ("Complete", "Failed") and row["status"] == "True" for row in rows):
            return False
        before = (found["metadata"].get("annotations") or {}).get(TEMPLATE_HASH)
        if before == digest:
            return True
        if not found["metadata"].get("deletionTimestamp"):
            # Its pod first: it would stay otherwise, and work beside that of the next Job.
            await kube.delete(*where, uid=found["metadata"]["uid"], propagation="Foreground")
        return False

    async def _seen(self, spec: PipelineRunSpec, key: Key) -> Seen:
        kube = self._operator.kube
        driver = Driver(key.name, key.namespace, spec.job, spec.image, "")
        pods = await kube.select("v1", "Pod", key.namespace, driver.selector)
        job = None
        if not driver.is_streaming:
            job = await kube.get(BATCH, "Job", key.namespace, driver.full_name)
        return driver_seen(spec, job, pods)

    async def _write(self, body: Manifest, seen: Seen | None, problem: Problem | None) -> None:
        """Write the status, and report its changes."""
        before = msgspec.convert(body.get("status") or {}, PipelineRunStatus)
        status = run_status(body, before, seen, problem, self._operator.now())
        reasons = {each.type: each.reason for each in before.conditions if each.status == "True"}
        if problem is not None and reasons.get("Degraded") != problem.reason:
            self._operator.post_event(body, problem.reason, problem.message, warning=True)
        elif problem is None and status.phase != before.phase:
            is_bad = status.phase == "Failed"
            text = status.message or f"{status.phase}"
            self._operator.post_event(body, str(status.phase), text, warning=is_bad)
        await self._operator.write_status(PIPELINE_RUN, body, msgspec.to_builtins(status))


_LABELS: Final = {"app.kubernetes.io/managed-by": OPERATOR}


def _owner(body: Manifest) -> Manifest:
    return PIPELINE_RUN.owner(body["metadata"]["name"], body["metadata"]["uid"])


def _credentials(spec: PipelineRunSpec, cluster: Cluster, namespace: str) -> str:
    """Return the Secret with which a job logs in, "" where it needs none or none is known."""
    if spec.credentials is not None:
        return spec.credentials.name
    if spec.certificate is not None or cluster.namespace != namespace:
        return ""
    return cluster.default_user_secret


def driver_of(body: Manifest, spec: PipelineRunSpec, cluster: Cluster, authority: str) -> Driver:
    """Return the driver of a run.

    Args:
        body: of the resource.
        spec: the same, read.
        cluster: that it reads.
        authority: Secret with the authority of the brokers' certificates, "" for none.
    """
    meta, storage = body["metadata"], spec.storage
    port = cluster.ports["grpcs" if cluster.serves_tls else "grpc"]
    resources: dict[str, Any] = msgspec.to_builtins(spec.resources)
    return Driver(
        name=meta["name"],
        namespace=meta["namespace"],
        job=spec.job,
        image=spec.image,
        endpoints=f"{cluster.client_host}:{port}",
        tls=cluster.serves_tls,
        master=spec.master,
        options=spec.options or {},
        conf=spec.conf or {},
        credentials=_credentials(spec, cluster, meta["namespace"]),
        authority=authority,
        certificate=spec.certificate.name if spec.certificate else "",
        service_account=spec.service_account_name or "",
        pull_policy=spec.image_pull_policy,
        pull_secrets=tuple(each.name for each in spec.image_pull_secrets or []),
        resources=resources,
        claim=storage.claim_name or "",
        claim_size="" if storage.ephemeral else storage.size,
        storage_class=storage.storage_class_name or "",
        suspend=spec.suspend,
        labels=_LABELS,
        owner=_owner(body),
    )
