"""Context of all handlers: the API server, connections to brokers, settings, the time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import aiohttp
import kopf
import msgspec

from headrace_operator.kube_api import KubeApi, object_path
from headrace_operator.metrics import Metrics
from headrace_operator.settings import Settings
from headrace_operator.specs.kind import API_VERSION, Kind
from headrace_operator.status_patch import merge_patch


class Operator:
    """Context of all handlers.

    Args:
        kube: the API server.
        session: whose connections to brokers are used.
        settings: of the operator.
        metrics: where it is counted what is done.
    """

    def __init__(
        self, kube: KubeApi, session: aiohttp.ClientSession, settings: Settings, metrics: Metrics
    ) -> None:
        self.kube = kube
        self.session = session
        self.settings = settings
        self.metrics = metrics

    def now(self) -> datetime:
        """Return the time."""
        return datetime.now(UTC)

    async def resource(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a custom resource, None when it is not there."""
        return await self.kube.get(API_VERSION, kind.plural, namespace, name)

    async def write_status(self, kind: Kind, body: dict[str, Any], status: dict[str, Any]) -> None:
        """Set a resource's status, in the body that it is compared with, too.

        The API server fills in defaults: what only says these is no difference.
        """
        if _as_written(kind, body.get("status") or {}) != _as_written(kind, status):
            patch = merge_patch(body.get("status") or {}, status)
            await self.kube.merge(resource_path(kind, body, "status"), {"status": patch})
            body["status"] = status

    async def annotate(self, kind: Kind, body: dict[str, Any], name: str, value: str) -> None:
        """Set an annotation of a resource, or take it away with an empty value."""
        meta = body["metadata"]
        patch = {"metadata": {"annotations": {name: value or None}}}
        found = await self.kube.merge(resource_path(kind, body), patch)
        meta["annotations"] = found["metadata"].get("annotations")

    def post_event(
        self, body: dict[str, Any], reason: str, message: str, warning: bool = False
    ) -> None:
        """Post an event about a resource."""
        about: Any = body  # kopf asks for its own type, and reads it as a mapping
        kopf.event(about, type="Warning" if warning else "Normal", reason=reason, message=message)


def _as_written(kind: Kind, status: dict[str, Any]) -> Any:
    return msgspec.to_builtins(msgspec.convert(status, kind.status))


def resource_path(kind: Kind, body: dict[str, Any], part: str = "") -> str:
    """Return the path of a custom resource, or of a part of it."""
    meta = body["metadata"]
    return object_path(API_VERSION, kind.plural, meta["namespace"], meta["name"], part)
