"""A small client of the Kubernetes API: what the operator reads, applies and deletes.

It logs in as kopf does. What it writes is applied by the server under one field manager, so that
fields of others stay as they are and what is not wanted any more goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import kopf
import msgspec

from headrace_operator.answer import read_answer
from headrace_operator.builders.cluster import Manifest
from headrace_operator.expected_error import HttpError
from headrace_operator.specs.kind import FIELD_MANAGER

REQUEST_SECONDS: Final = 30.0  # until the API server counts as not answering
PLURALS: Final = {
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "Job": "jobs",
    "NetworkPolicy": "networkpolicies",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "PodMonitor": "podmonitors",
    "Secret": "secrets",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "ServiceMonitor": "servicemonitors",
    "StatefulSet": "statefulsets",
}
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"

Login = Callable[[], kopf.ConnectionInfo | None]


class KubeError(HttpError):
    """The API server refused, or did not answer."""

    @property
    def temporary(self) -> bool:
        """True if it may change by itself in a moment."""
        return self.status in (0, 401, 408, 409, 429) or self.status >= 500


class KubeApi:
    """Talks to the API server; calls raise KubeError where it refuses or does not answer.

    Args:
        login: returns where it is and how to log in; asked again when it refuses that.
    """

    def __init__(self, login: Login) -> None:
        self._login = login
        self._session: aiohttp.ClientSession | None = None
        self._headers: dict[str, str] = {}
        self._server = ""

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return an object, None when it is not there."""
        try:
            return await self._request("GET", object_path(api_version, kind, namespace, name))
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def fetch(self, path: str) -> Manifest:
        """Return the content at a path, such as a part of an object.

        Raises:
            KubeError: it is refused or not there, or there is no answer.
        """
        return await self._request("GET", path) or {}

    async def select(
        self, api_version: str, kind: str, namespace: str, labels: Mapping[str, str] | None = None
    ) -> list[Manifest]:
        """Return the objects of a namespace that have labels."""
        path = object_path(api_version, kind, namespace)
        if labels:
            selector = ",".join(f"{key}={value}" for key, value in labels.items())
            path += f"?labelSelector={quote(selector, safe='')}"
        found = await self._request("GET", path)
        rows: list[Manifest] = (found or {}).get("items") or []
        return rows

    async def apply(self, manifest: Manifest) -> Manifest:
        """Apply a manifest, and return the resulting object."""
        meta = manifest["metadata"]
        path = object_path(
            manifest["apiVersion"], manifest["kind"], meta["namespace"], meta["name"]
        )
        path += f"?fieldManager={FIELD_MANAGER}&force=true"
        return await self._request("PATCH", path, manifest, _APPLY) or {}

    async def merge(self, path: str, patch: Manifest) -> Manifest:
        """Merge a patch into the object, or the part of it, that a path names."""
        path = f"{path}?fieldManager={FIELD_MANAGER}"
        return await self._request("PATCH", path, patch, _MERGE) or {}

    async def delete(
        self,
        api_version: str,
        kind: str,
        namespace: str,
        name: str,
        uid: str = "",
        propagation: str = "",
    ) -> bool:
        """Delete an object, and return whether it was there.

        Args:
            api_version: of the kind.
            kind: of the object.
            namespace: of the object.
            name: of the object.
            uid: of the object that is meant; another one of this name stays.
            propagation: what becomes of what it owns, "" for the default of its kind, which is to
                stay where it is a Job. Foreground: it goes first.
        """
        body: Manifest = {"preconditions": {"uid": uid}} if uid else {}
        if propagation:
            body["propagationPolicy"] = propagation
        path = object_path(api_version, kind, namespace, name)
        try:
            await self._request("DELETE", path, body or None, "application/json")
        except KubeError as error:
            if error.status == 404 or (uid and error.status == 409):
                return False
            raise
        return True

    async def _request(
        self, method: str, path: str, body: Any = None, content_type: str = ""
    ) -> Manifest | None:
        try:
            return await self._once(method, path, body, content_type)
        except KubeError as error:
            if error.status != 401:
                raise
        # A token lives for an hour, and its file has another one meanwhile.
        self._headers = self._logged_in().as_http_headers()
        return await self._once(method, path, body, content_type)

    async def _once(self, method: str, path: str, body: Any, content_type: str) -> Manifest | None:
        session = self._connected()
        headers = {**self._headers, **({"Content-Type": content_type} if content_type else {})}
        data = msgspec.json.encode(body) if body is not None else None
        try:
            async with (
                asyncio.timeout(REQUEST_SECONDS),
                session.request(
                    method, f"{self._server}{path}", data=data, headers=headers
                ) as answer,
            ):
                raw = await read_answer(answer)
                status = answer.status
            if status >= 400:
                raise KubeError(status, f"{method} {path}: {_refusal(status, raw)}")
            found = msgspec.json.decode(raw) if raw else None
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
            text = str(error) or type(error).__name__
            raise KubeError(0, f"{method} {path}: {text}") from error
        return found if isinstance(found, dict) else None

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            info = self._logged_in()
            self._headers = info.as_http_headers()
            self._server = info.server.rstrip("/")
            is_secure = self._server.startswith("https")
            connector = aiohttp.TCPConnector(ssl=info.as_ssl_context()) if is_secure else None
            self._session = aiohttp.ClientSession(connector=connector, trust_env=info.trust_env)
        return self._session

    def _logged_in(self) -> kopf.ConnectionInfo:
        info = self._login()
        if info is None:
            raise KubeError(0, "there is neither a service account nor a kubeconfig")
        return info


def _refusal(status: int, data: bytes) -> str:
    """Return what a refusal says: of a kind that the API server does not know it says no JSON."""
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:
        found = None
    message = found.get("message") if isinstance(found, dict) else None
    return str(message or f"status {status}")


def object_path(api_version: str, kind: str, namespace: str, name: str = "", part: str = "") -> str:
    """Return the path of an object, of all of its kind in a namespace, or of a part of it.

    Args:
        api_version: of the kind.
        kind: of the object, or its plural for custom resources.
        namespace: of the object.
        name: of the object; "" for all.
        part: such as status and scale.
    """
    root = "/api" if "/" not in api_version else "/apis"
    parts = [root, api_version, "namespaces", namespace, PLURALS.get(kind, kind)]
    return "/".join([*parts, *[each for each in (name, part) if each]])
