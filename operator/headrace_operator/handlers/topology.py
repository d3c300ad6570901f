"""Declarations in brokers: applied, reconciled, and deleted with their resource."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from headrace_operator.broker_api import BrokerError
from headrace_operator.cluster_finder import (
    CLUSTER_MISSING,
    NOT_ALLOWED,
    ClusterFinder,
    ClusterUnreachableError,
    failure_reason,
)
from headrace_operator.declaring.subject import ConflictError, Declaration, Subject
from headrace_operator.kube_api import KubeError
from headrace_operator.operator_context import Operator, resource_path
from headrace_operator.reconciler import NEVER, Key
from headrace_operator.specs.kind import FINALIZER, GROUP, is_paused
from headrace_operator.specs.status import Status
from headrace_operator.status_patch import conditions_of

RETAIN: Final = "Retain"
APPLIED_ANNOTATION: Final = f"{GROUP}/applied"  # it is there, and goes with its resource
LEAVING_SECONDS: Final = 5.0  # between two tries to delete what is kept


class DeclarationHandler:
    """Reconciles the resources of one kind.

    Args:
        operator: what handlers need.
        ways: to clusters.
        declaration: how the kind is declared.
    """

    def __init__(self, operator: Operator, ways: ClusterFinder, declaration: Declaration) -> None:
        self._operator = operator
        self._ways = ways
        self._declaration = declaration

    async def reconcile(self, key: Key) -> float:
        """Reconcile a thing with its resource; return the seconds until the next reconcile.

        Raises:
            KubeError: the API server refuses, or does not answer.
            BrokerError: a node refuses, or none answers.
            ClusterUnreachableError: the cluster is not to be reached.
            ConflictError: there is another thing in the broker.
        """
        kind = self._declaration.kind
        body = await self._operator.resource(kind, *key)
        if body is None:
            return NEVER
        meta = body["metadata"]
        annotations = meta.get("annotations") or {}
        if meta.get("deletionTimestamp"):
            return await self._leave(body)
        if is_paused(body):
            return self._operator.settings.resync_seconds
        if FINALIZER not in (meta.get("finalizers") or []):
            await self._finalize(body, [*(meta.get("finalizers") or []), FINALIZER])
        way = await self._ways.find(body["spec"]["clusterRef"], key.namespace)
        more = await self._declaration.apply(Subject(self._operator, body, way))
        if APPLIED_ANNOTATION not in annotations:
            await self._operator.annotate(kind, body, APPLIED_ANNOTATION, "true")
            self._operator.post_event(body, "Applied", f"it is in cluster {way.cluster.name}")
        await self._write(body, more, (True, "Applied", ""), (False, "AsWanted", ""))
        return self._operator.settings.resync_seconds

    async def fail(self, key: Key, error: Exception) -> None:
        """Say in the status that a look has failed."""
        body = await self._operator.resource(self._declaration.kind, *key)
        if body is None:
            return
        message = str(error) or type(error).__name__
        reason = _reason(error)
        if _told(body) != (reason, message):
            self._operator.post_event(body, reason, message, warning=True)
        told = (True, reason, message)
        await self._write(body, {}, (False, reason, message), (True, "Retrying", message), told)

    def forget(self, key: Key) -> None:
        """Forget the state of a deleted resource."""
        self._declaration.forget(key)

    async def _write(
        self,
        body: dict[str, Any],
        more: dict[str, Any],
        ready: tuple[bool, str, str],
        progressing: tuple[bool, str, str],
        degraded: tuple[bool, str, str] = (False, "AsExpected", ""),
    ) -> None:
        before = body.get("status") or {}
        status = msgspec.convert(
            {name: before[name] for name in ("conditions",) if name in before}, Status
        )
        generation = body["metadata"].get("generation", 0)
        now = self._operator.now()
        conditions = conditions_of(
            list(status.conditions), now, generation, ready, progressing, degraded
        )
        found = {**before, **more, "conditions": msgspec.to_builtins(conditions)}
        found["observedGeneration"] = generation
        found = {key: value for key, value in found.items() if value is not None}
        await self._operator.write_status(self._declaration.kind, body, found)

    async def _finalize(self, body: dict[str, Any], finalizers: list[str]) -> None:
        """Set the finalizers of a resource, unless it is changed at the same time."""
        meta = body["metadata"]
        patch = {"finalizers": finalizers, "resourceVersion": meta["resourceVersion"]}
        path = resource_path(self._declaration.kind, body)
        found = await self._operator.kube.merge(path, {"metadata": patch})
        meta["resourceVersion"] = found.get("metadata", {}).get("resourceVersion")
        meta["finalizers"] = finalizers

    async def _leave(self, body: dict[str, Any]) -> float:
        """Delete the object, then release the resource; return when to check again."""
        meta, spec = body["metadata"], body["spec"]
        if FINALIZER not in (meta.get("finalizers") or []):
            return NEVER
        is_ours = APPLIED_ANNOTATION in (meta.get("annotations") or {})
        if is_ours and self._policy(spec) != RETAIN:
            kept = await self._deleted(body)
            if kept:
                if _told(body) != ("Kept", kept):
                    self._operator.post_event(body, "Kept", kept, warning=True)
                told = (True, "Kept", kept)
                await self._write(body, {}, (False, "Deleting", kept), told, told)
                return LEAVING_SECONDS
        await self._finalize(body, [each for each in meta["finalizers"] if each != FINALIZER])
        return NEVER

    def _policy(self, spec: dict[str, Any]) -> str:
        default = "RefuseUnlessEmpty" if self._declaration.careful else "Delete"
        return str(spec.get("deletionPolicy") or default)

    async def _deleted(self, body: dict[str, Any]) -> str:
        """Delete the thing; return why it is kept, "" once it is gone or is given up.

        Raises:
            BrokerError: no node answers, and there is time left.
        """
        meta = body["metadata"]
        try:
            way = await self._ways.find(body["spec"]["clusterRef"], meta["namespace"])
            return await self._declaration.delete(Subject(self._operator, body, way))
        except ClusterUnreachableError as error:
            if error.reason not in (CLUSTER_MISSING, NOT_ALLOWED) and not self._is_over(meta):
                raise
            self._operator.post_event(body, "GivenUp", str(error), warning=True)
        except BrokerError as error:
            if not self._is_over(meta):
                raise
            text = f"it stays in the broker: {error}"
            self._operator.post_event(body, "GivenUp", text, warning=True)
        return ""

    def _is_over(self, meta: dict[str, Any]) -> bool:
        """Return whether a deletion has been waited for long enough."""
        since = datetime.fromisoformat(meta["deletionTimestamp"])
        waited = (self._operator.now() - since).total_seconds()
        return waited > self._operator.settings.finalizer_seconds


def _told(body: dict[str, Any]) -> tuple[str, str]:
    """Return reason and message of what the status says is wrong."""
    rows = (body.get("status") or {}).get("conditions") or []
    row: dict[str, Any] = next((row for row in rows if row["type"] == "Degraded"), {})
    return str(row.get("reason", "")), str(row.get("message", ""))


def _reason(error: Exception) -> str:
    if isinstance(error, ConflictError):
        return "Conflict"
    return "Unavailable" if isinstance(error, KubeError) else failure_reason(error)
