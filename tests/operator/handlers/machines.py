"""StatefulSet controller of Kubernetes, and a broker that only answers: both in memory."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
from typing import Any, Final

from aiohttp import web
from tests.operator.handlers.kube_server import KubeServer, Name, Object, Store

from headrace_operator.builders.cluster import CLUSTER_LABEL

SETS: Final = "apps/v1/statefulsets"
PODS: Final = "v1/pods"
CLAIMS: Final = "v1/persistentvolumeclaims"
PODS_MAX: Final = 5
KEPT: Final = ("vhosts", "users", "exchanges", "policies", "permissions")
READY: Final = {"conditions": [{"type": "Ready", "status": "True"}]}


class Broker:
    """The HTTP API of a cluster's nodes, as far as the operator asks; one port for all of them.

    Attributes:
        nodes: rows of /api/cluster/nodes, by name.
        queues: rows of /api/queues.
        calls: what changed something: method and path.
        things: what was declared, by its path.
        stage: of the memory alarm of the first node.
        backlog: messages that wait in any queue that is asked for.
        version: of the cluster.
        problem: why it cannot be raised.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.queues: list[dict[str, Any]] = []
        self.calls: list[tuple[str, str]] = []
        self.founders = 3
        self.formed = False
        self.stage = 0
        self.things: dict[str, dict[str, Any]] = {}
        self.backlog = 0
        self.port = 0
        self.silent = False
        self.version = 1
        self.problem = ""

    def join(self, name: str) -> None:
        """A node runs."""
        row = self.nodes.setdefault(
            name,
            {
                "name": name,
                "being_drained": False,
                "drained": False,
                "replicas": 0,
                "leaders": 0,
                "connections": 0,
            },
        )
        row["running"] = True

    def leave(self, name: str) -> None:
        """A node does not run."""
        if name in self.nodes:
            self.nodes[name]["running"] = False

    async def answer(self, request: web.Request) -> web.Response:
        parts = request.rel_url.raw_path.removeprefix("/api/").split("/")
        if request.headers.get("Authorization") is None:
            return web.json_response({"reason": "no log-in"}, status=401)
        self.formed = self.formed or len(self.nodes) >= self.founders
        if self.silent or not self.formed:
            return web.json_response({"reason": "no quorum"}, status=503)
        if request.method != "GET":
            self.calls.append((request.method, "/".join(parts)))
        if parts == ["cluster", "version", "raise"]:
            self.version = 2
        if parts[:2] == ["cluster", "nodes"] and len(parts) > 2:
            return self._change(request.method, parts)
        if parts[0] in KEPT and len(parts) > 1:
            return await self._keep(request, "/".join(parts))
        return web.json_response(self._read(parts))

    async def _keep(self, request: web.Request, path: str) -> web.Response:
        """Store the object as it is; a password is shown as something like a hash."""
        if request.method == "PUT":
            self.things[path] = body = await request.json()
            if "password" in body:
                body["password_hash"] = f"hash of {body['password']}"
            return web.Response(status=204)
        found = self.things.get(path)
        if found is None:
            return web.json_response({"reason": "not there"}, status=404)
        if request.method == "DELETE":
            del self.things[path]
            return web.Response(status=204)
        return web.json_response(found)

    def _read(self, parts: list[str]) -> Any:
        if parts == ["cluster", "nodes"]:
            return list(self.nodes.values())
        if parts == ["cluster", "version"]:
            return {"version": self.version, "newest": 2, "nodes": [], "problem": self.problem}
        if parts == ["nodes"]:
            rows = [{"name": name, "version": "0.1.0", "mem_stage": 0} for name in self.nodes]
            rows[0]["mem_stage"] = self.stage
            return rows
        if parts[0] == "queues" and len(parts) == 3:
            return {"name": parts[2], "messages_ready": self.backlog}
        return self.queues if parts == ["queues"] else []

    def _change(self, method: str, parts: list[str]) -> web.Response:
        node = self.nodes.get(parts[2])
        if node is None:
            return web.json_response({"reason": "no such node"}, status=404)
        if method == "DELETE":
            del self.nodes[parts[2]]
            return web.json_response({"forgotten": True, "replicas": 0, "problems": []})
        node["being_drained"] = node["drained"] = parts[3] == "drain"
        return web.json_response(node)


class Machines:
    """Makes pods of clusters' StatefulSets, at once, and has them run."""

    def __init__(self, server: KubeServer, broker: Broker) -> None:
        self._server = server
        self._broker = broker
        self.store: Store = server.store
        self.restarts = 0
        self._started: dict[Name, str] = {}  # uids

    def __enter__(self) -> Machines:
        asyncio.run_coroutine_threadsafe(self._begin(), self._server.loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._server.loop).result()

    async def _begin(self) -> None:
        await self.begin()
        self._task = asyncio.create_task(self._work())

    async def begin(self) -> None:
        """Make a broker answer."""
        app = web.Application()
        app.router.add_route("*", "/api/{rest:.*}", self._broker.answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        for ordinal in range(PODS_MAX):
            await web.TCPSite(self._runner, address(ordinal), self._broker.port).start()
            self._broker.port = self._runner.addresses[0][1]

    async def end(self) -> None:
        """Make no broker answer from now on."""
        await self._runner.cleanup()

    def start(self, name: Name) -> None:
        """A pod was made: its node runs."""
        self._broker.join(name.name)
        self.store.patch(name, "status", "merge", {"status": copy.deepcopy(READY)})

    async def stop(self, name: Name) -> None:
        """A pod is gone."""
        self._broker.leave(name.name)

    async def _end(self) -> None:
        self._task.cancel()
        await self.end()

    async def _work(self) -> None:
        while True:
            changed = self.store.changed
            for pod in [each for each in self._started if self._is_gone(each)]:
                del self._started[pod]
                await self.stop(pod)
            for name, found in list(self.store.objects.items()):
                if name.resource == SETS and CLUSTER_LABEL in found["metadata"]["labels"]:
                    self._tend(name, found)
            if changed is self.store.changed:
                await changed.wait()

    def _is_gone(self, pod: Name) -> bool:
        found = self.store.objects.get(pod)
        return found is None or found["metadata"]["uid"] != self._started[pod]

    def _tend(self, name: Name, found: Object) -> None:
        spec = found["spec"]
        template = json.dumps(spec["template"], sort_keys=True).encode()
        revision = hashlib.sha256(template).hexdigest()[:10]
        generation = found["metadata"]["generation"]
        status = {"observedGeneration": generation, "updateRevision": revision}
        if found.get("status") != status:
            self.store.replace(name, {**found, "status": status})
        uid = found["metadata"]["uid"]
        for ordinal in range(spec["replicas"]):
            pod = Name(PODS, name.namespace, f"{name.name}-{ordinal}")
            if pod not in self.store.objects:
                self.store.create(pod, _pod(spec["template"], revision, uid, ordinal))
                self.restarts += 1
                self._started[pod] = self.store.objects[pod]["metadata"]["uid"]
                self.start(pod)
            claim = Name(CLAIMS, name.namespace, f"data-{pod.name}")
            if claim not in self.store.objects:
                labels = spec["template"]["metadata"]["labels"]
                template_claim = spec["volumeClaimTemplates"][0]
                body = {"metadata": {"labels": labels}, "spec": template_claim["spec"]}
                self.store.create(claim, body)
        for each in list(self.store.objects):
            number = each.name.rpartition("-")[2]
            if each.resource == PODS and int(number) >= spec["replicas"]:
                self.store.remove(each)


def address(ordinal: int) -> str:
    """Each pod has an address of its own, all of them on loopback."""
    return f"127.0.72.{ordinal + 1}"


def _pod(template: Object, revision: str, owner: str, ordinal: int) -> Object:
    labels = {**template["metadata"]["labels"], "controller-revision-hash": revision}
    annotations = template["metadata"].get("annotations") or {}
    return {
        "metadata": {
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [{"uid": owner}],
        },
        "spec": template["spec"],
        "status": {"phase": "Running", "podIP": address(ordinal)},
    }
