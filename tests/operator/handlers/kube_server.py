"""An API server in memory: kmock's discovery and requests, with a store that can do what is needed.

kmock's own store knows no resource versions, subresources, label selectors, server-side apply or
owners; here they are, as far as the operator and kopf use them.
"""

from __future__ import annotations

import asyncio
import copy
import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs
import kmock
import yaml
from aiohttp import web

from headrace_operator.crd import resource_schema
from headrace_operator.specs.kind import GROUP, KINDS, VERSION

Object = dict[str, Any]
WAIT_SECONDS: Final = 30.0
PARTS: Final = ("status", "scale")

RESOURCES: Final = {
    "v1/pods": "Pod",
    "v1/services": "Service",
    "v1/secrets": "Secret",
    "v1/configmaps": "ConfigMap",
    "v1/serviceaccounts": "ServiceAccount",
    "v1/persistentvolumeclaims": "PersistentVolumeClaim",
    "v1/events": "Event",
    "v1/namespaces": "Namespace",
    "apps/v1/statefulsets": "StatefulSet",
    "apps/v1/deployments": "Deployment",
    "batch/v1/jobs": "Job",
    "autoscaling/v2/horizontalpodautoscalers": "HorizontalPodAutoscaler",
    "policy/v1/poddisruptionbudgets": "PodDisruptionBudget",
    "networking.k8s.io/v1/networkpolicies": "NetworkPolicy",
    "apiextensions.k8s.io/v1/customresourcedefinitions": "CustomResourceDefinition",
    **{f"{GROUP}/{VERSION}/{kind.plural}": kind.name for kind in KINDS},
}
SCHEMAS: Final = {f"{GROUP}/{VERSION}/{kind.plural}": resource_schema(kind) for kind in KINDS}


class Name(NamedTuple):
    """Which object: `resource` as in RESOURCES."""

    resource: str
    namespace: str
    name: str


class RefusalError(Exception):
    """The server refuses."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Store:
    """Objects and what became of them."""

    def __init__(self) -> None:
        self.objects: dict[Name, Object] = {}
        self.changes: list[tuple[str, Name, Object]] = []  # resource version: number of the row
        self.applied: dict[Name, Object] = {}
        self.changed = asyncio.Event()
        self.forbidden: set[str] = set()  # resources that nobody may change by name
        self.refusals = 0
        self.reads: Counter[Name] = Counter()
        self.patches: list[tuple[Name, str]] = []

    def note(self, what: str, name: Name, found: Object) -> Object:
        """Give an object its version, and tell those who watch."""
        found["metadata"]["resourceVersion"] = str(len(self.changes) + 1)
        self.changes.append((what, name, copy.deepcopy(found)))
        self._tell()
        return found

    def _tell(self) -> None:
        """Wake those who wait for something."""
        self.changed.set()
        self.changed = asyncio.Event()

    def refuse(self, resource: str) -> None:
        """Refuse to change read-only fields."""
        self.refusals += 1
        self._tell()
        raise RefusalError(403, f"{resource} are forbidden")

    def create(self, name: Name, body: Object) -> Object:
        if name in self.objects:
            raise RefusalError(409, f"{name.name} exists already")
        found = copy.deepcopy(body)
        group, _, _ = name.resource.rpartition("/")
        found.setdefault("apiVersion", group)
        found.setdefault("kind", RESOURCES[name.resource])
        meta = found.setdefault("metadata", {})
        meta |= {"name": name.name, "namespace": name.namespace, "generation": 1}
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = datetime.now(UTC).isoformat()
        _complete(name, found)
        self.objects[name] = found
        return self.note("ADDED", name, found)

    def replace(self, name: Name, found: Object) -> Object:
        """Put a changed object in the place of the one that is there."""
        before = self.objects[name]
        _complete(name, found)
        if found == before:
            return before
        if found.get("spec") != before.get("spec"):
            found["metadata"]["generation"] = before["metadata"]["generation"] + 1
        self.objects[name] = found
        if found["metadata"].get("deletionTimestamp") and not found["metadata"].get("finalizers"):
            return self.remove(name)
        return self.note("MODIFIED", name, found)

    def delete(self, name: Name, uid: str = "") -> Object:
        found = self.get(name)
        if uid and found["metadata"]["uid"] != uid:
            raise RefusalError(409, "the precondition does not hold")
        if not found["metadata"].get("finalizers"):
            return self.remove(name)
        if not found["metadata"].get("deletionTimestamp"):
            found["metadata"]["deletionTimestamp"] = datetime.now(UTC).isoformat()
            self.note("MODIFIED", name, found)
        return found

    def orphan(self, name: Name) -> None:
        """Keep what an object owns when it is deleted."""
        uid = self.get(name)["metadata"]["uid"]
        for other in self.objects.values():
            owners = other["metadata"].get("ownerReferences") or []
            kept = [row for row in owners if row["uid"] != uid]
            if kept != owners:
                other["metadata"]["ownerReferences"] = kept

    def remove(self, name: Name) -> Object:
        """Take an object away, with all that it owns."""
        found = self.objects.pop(name)
        self.applied.pop(name, None)
        self.note("DELETED", name, found)
        uid = found["metadata"]["uid"]
        for each, other in list(self.objects.items()):
            owners = other["metadata"].get("ownerReferences") or []
            if each in self.objects and any(row["uid"] == uid for row in owners):
                self.remove(each)
        return found

    def get(self, name: Name) -> Object:
        found = self.objects.get(name)
        if found is None:
            raise RefusalError(404, f"{name.resource} {name.namespace}/{name.name} is not there")
        return found

    def count_anew(self) -> None:
        """Reset the counts of reads and patches."""
        self.reads.clear()
        self.patches.clear()

    def read(self, name: Name) -> Object:
        """Return an object, and count the read."""
        self.reads[name] += 1
        self._tell()
        return self.get(name)

    def apply(self, name: Name, body: Object) -> Object:
        """Server-side apply of a single manager."""
        before = self.applied.get(name, {})
        self.applied[name] = copy.deepcopy(body)
        if name not in self.objects:
            return self.create(name, body)
        found = copy.deepcopy(self.objects[name])
        _dropped(found, before, body)
        _merged(found, body)
        return self.replace(name, found)

    def patch(self, name: Name, part: str, kind: str, body: Any) -> Object:
        """Merge or JSON patch of an object or a part of it."""
        before = self.get(name)
        found = copy.deepcopy(before)
        self.patches.append((name, part))
        if part == "scale":
            found["spec"]["replicas"] = body["spec"]["replicas"]
            return self.replace(name, found)
        if "json-patch" in kind:
            _patched(found, body)
        else:
            _merged(found, body)
        status = found.get("status")
        if part == "status":
            found = {**copy.deepcopy(before), "status": status}
        elif name.resource.startswith(GROUP):
            found.pop("status", None)
            if "status" in before:
                found["status"] = before["status"]
        return self.replace(name, found)


def _complete(name: Name, found: Object) -> None:
    """Fill in the defaults of a custom resource's schema."""
    schema = SCHEMAS.get(name.resource)
    if schema is not None:
        for part in ("spec", "status"):
            if part in found:
                _defaulted(found[part], schema["properties"][part])


def _defaulted(found: Any, schema: Object) -> None:
    if isinstance(found, list):
        for row in found:
            _defaulted(row, schema["items"])
    elif isinstance(found, dict):
        for key, inner in schema.get("properties", {}).items():
            if key not in found and "default" in inner:
                found[key] = copy.deepcopy(inner["default"])
            if key in found:
                _defaulted(found[key], inner)


def _merged(found: Object, patch: Object) -> None:
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            inner = found.setdefault(key, {})
            if not isinstance(inner, dict):
                inner = found[key] = {}
            _merged(inner, value)
        else:
            found[key] = copy.deepcopy(value)


def _dropped(found: Object, before: Object, wanted: Object) -> None:
    """Remove fields that were applied before and are not now."""
    for key, value in before.items():
        if key not in wanted:
            found.pop(key, None)
        elif isinstance(value, dict) and isinstance(wanted[key], dict) and key in found:
            _dropped(found[key], value, wanted[key])


def _patched(found: Object, patch: list[Object]) -> None:
    for row in patch:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in row["path"].split("/")[1:]
        ]
        place: Any = found
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        at: Any = (len(place) if last == "-" else int(last)) if isinstance(place, list) else last
        if row["op"] == "test":
            if place[at] != row["value"]:
                raise RefusalError(422, "a test of the patch has failed")
        elif row["op"] == "remove":
            del place[at]
        elif isinstance(place, list) and row["op"] == "add":
            place.insert(at, row["value"])
        else:
            place[at] = row["value"]


def _chosen(found: Object, selector: str) -> bool:
    labels = found["metadata"].get("labels") or {}
    for term in filter(None, selector.split(",")):
        key, is_equal, value = term.partition("=")
        if (labels.get(key) != value) if is_equal else key not in labels:
            return False
    return True


@attrs.define(kw_only=True)
class Emulator(kmock.KubernetesScaffold):
    """Answers requests out of a store."""

    store: Store = attrs.field(factory=Store)

    async def _handle(self, request: kmock.Request) -> web.StreamResponse:
        found, resource = None, request.resource
        if resource is not None:
            group = f"{resource.group}/" if resource.group else ""
            found = f"{group}{resource.version}/{resource.plural}"
        if resource is not None and resource.plural and found not in RESOURCES:
            return web.Response(status=404, text="404 page not found\n")
        if found not in RESOURCES:
            return await super()._handle(request)
        try:
            if request.params.get("watch") == "true":
                return await self._watch(request, found)
            return web.json_response(self._answer(request, found))
        except RefusalError as refusal:
            text = {"kind": "Status", "message": str(refusal), "code": refusal.status}
            return web.json_response(text, status=refusal.status)

    def _answer(self, request: kmock.Request, resource: str) -> Object:
        method, body = str(request.method.value), request.data
        if request.body and body is None:
            body = json.loads(request.body)
        if request.name is None:
            if method == "POST":
                meta = body["metadata"]
                name = meta.get("name") or f"{meta['generateName']}{uuid.uuid4().hex[:5]}"
                where = request.namespace or meta.get("namespace", "")
                return self.store.create(Name(resource, where, name), body)
            return self._list(request, resource)
        if method != "GET" and resource in self.store.forbidden:
            self.store.refuse(resource)
        name = Name(resource, request.namespace or "", request.name)
        part = request.subresource or ""
        if method == "GET":
            return self.store.read(name)
        if method == "DELETE":
            wanted = ((body or {}).get("preconditions") or {}).get("uid", "")
            if resource == "batch/v1/jobs" and "propagationPolicy" not in (body or {}):
                self.store.orphan(name)  # as Kubernetes does by default, of Jobs alone
            return self.store.delete(name, wanted)
        kind = request.headers.get("Content-Type", "")
        if "apply-patch" in kind:
            return self.store.apply(name, body)
        return self.store.patch(name, part, kind, body)

    def _list(self, request: kmock.Request, resource: str) -> Object:
        selector = request.params.get("labelSelector", "")
        items = [
            found
            for name, found in self.store.objects.items()
            if name.resource == resource
            and request.namespace in (None, name.namespace)
            and _chosen(found, selector)
        ]
        version = str(len(self.store.changes))
        return {"metadata": {"resourceVersion": version}, "items": items}

    async def _watch(self, request: kmock.Request, resource: str) -> web.StreamResponse:
        raw = request._raw_request
        assert raw is not None
        if not request.params.get("timeoutSeconds", "0").isdecimal():
            raise RefusalError(400, "timeoutSeconds is no whole number")
        answer = web.StreamResponse()
        await answer.prepare(raw)
        at = int(request.params.get("resourceVersion") or 0)
        while True:
            changed = self.store.changed
            for what, name, found in self.store.changes[at:]:
                if name.resource == resource and request.namespace in (None, name.namespace):
                    line = json.dumps({"type": what, "object": found})
                    await answer.write(line.encode() + b"\n")
            at = len(self.store.changes)
            await changed.wait()


class KubeServer:
    """An API server in a thread of its own, for tests that wait in theirs.

    Args:
        root: where the kubeconfig is written.
    """

    def __init__(self, root: Path) -> None:
        self.config = root / "kubeconfig"
        self._began = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> KubeServer:
        self._thread.start()
        assert self._began.wait(WAIT_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        self.loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self.emulator = Emulator()
        self.store = self.emulator.store
        for resource, kind in RESOURCES.items():
            verbs = {"list", "watch", "patch", "get", "create", "delete"}
            info: Any = {
                "kind": kind,
                "namespaced": True,
                "verbs": verbs,
                "subresources": {"status"},
            }
            self.emulator.resources[resource] = info
        async with self.emulator, kmock.Server(self.emulator) as server:
            self.config.write_text(yaml.safe_dump(_kubeconfig(str(server.url))))
            self._began.set()
            await self._end.wait()

    def do(self, act: Callable[[Store], Any]) -> Any:
        """Do something with the store in its own thread, and return a copy of what comes of it."""

        async def run() -> Any:
            return copy.deepcopy(act(self.store))

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(WAIT_SECONDS)

    def create(self, resource: str, name: str, body: Object, namespace: str = "shop") -> Object:
        found: Object = self.do(lambda store: store.create(Name(resource, namespace, name), body))
        return found

    def delete(self, resource: str, name: str, namespace: str = "shop") -> None:
        self.do(lambda store: store.delete(Name(resource, namespace, name)))

    def merge(self, resource: str, name: str, patch: Object, namespace: str = "shop") -> None:
        self.do(lambda store: store.patch(Name(resource, namespace, name), "", "merge", patch))

    def get(self, resource: str, name: str, namespace: str = "shop") -> Object | None:
        found: Object | None = self.do(
            lambda store: store.objects.get(Name(resource, namespace, name))
        )
        return found

    def names(self, resource: str) -> list[str]:
        """Return the names of all objects of a resource."""
        found: list[str] = self.do(
            lambda store: sorted(name.name for name in store.objects if name.resource == resource)
        )
        return found

    def events(self) -> list[tuple[str, str]]:
        """Return reasons and messages of the events, the oldest first."""
        rows = self.do(lambda store: [each for _, name, each in store.changes if _is_event(name)])
        return [(row["reason"], row["message"]) for row in rows]

    def wait(self, what: str, holds: Callable[[Store], Any]) -> Any:
        """Wait until something holds of the store, and return what that is."""

        async def until() -> Any:
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    changed = self.store.changed
                    found = holds(self.store)
                    if found:
                        return copy.deepcopy(found)
                    await changed.wait()

        try:
            return asyncio.run_coroutine_threadsafe(until(), self.loop).result()
        except TimeoutError:
            raise AssertionError(f"{what} did not come; events: {self.events()}") from None


def _is_event(name: Name) -> bool:
    return name.resource == "v1/events"


def _kubeconfig(url: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": url.rstrip("/")}}],
        "users": [{"name": "test", "user": {"token": "token"}}],
    }


def condition(found: Object | None, name: str) -> str:
    """Return the status of a condition of a resource, "" without one."""
    rows = ((found or {}).get("status") or {}).get("conditions") or []
    return next((str(row["status"]) for row in rows if row["type"] == name), "")
