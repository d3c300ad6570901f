"""Pods of an API server in memory, each a process with an address of its own.

What a kubelet does is done here: volumes become directories, variables get their values, and names
of pods, which DNS would find, become addresses.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import aiohttp
from tests.operator.handlers.kube_server import KubeServer, Name
from tests.operator.handlers.machines import READY, Broker, Machines, address

from headrace_operator.builders.container import ZONE

LOOK_SECONDS: Final = 0.2
STOP_SECONDS: Final = 30.0


class Kubelet(Machines):
    """Runs pods as processes.

    Args:
        server: whose pods they are.
        root: for what stands in place of volumes.
    """

    def __init__(self, server: KubeServer, root: Path) -> None:
        super().__init__(server, Broker())
        self._root = root
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._looks: dict[Name, asyncio.Task[None]] = {}

    async def begin(self) -> None:
        """Begin to look at pods."""
        self._session = aiohttp.ClientSession()

    async def end(self) -> None:
        """Stop all pods at once."""
        for look in self._looks.values():
            look.cancel()
        await asyncio.gather(*self._looks.values(), return_exceptions=True)
        await self._session.close()
        for process in self.processes.values():
            process.kill()
            process.wait()

    def start(self, name: Name) -> None:
        """Start a pod."""
        pod = self.store.objects[name]
        root = self._root / name.name
        self._mount(pod["spec"], root, name.namespace)
        own = pod["spec"]["containers"][0]
        environment = self._environment(own, name, root)
        command = [sys.executable, "-m", "headrace_broker.cli", *own["args"]]
        with (root / "log").open("ab") as log:
            self.processes[name.name] = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        self._looks[name] = asyncio.create_task(self._look(name, own))

    async def stop(self, name: Name) -> None:
        """Stop a pod, and wait until it has."""
        self._looks.pop(name).cancel()
        process = self.processes.pop(name.name)
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, STOP_SECONDS)

    async def _look(self, name: Name, own: dict[str, Any]) -> None:
        """Note whether a pod is ready."""
        ports = {row["name"]: row["containerPort"] for row in own["ports"]}
        host = address(int(name.name.rpartition("-")[2]))
        url = f"http://{host}:{ports['http']}{own['readinessProbe']['httpGet']['path']}"
        while True:
            try:
                async with self._session.get(url) as answer:
                    is_ready = answer.status == 200
            except aiohttp.ClientError:
                is_ready = False
            row = {**READY["conditions"][0], "status": "True" if is_ready else "False"}
            self.store.patch(name, "status", "merge", {"status": {"conditions": [row]}})
            await asyncio.sleep(LOOK_SECONDS)

    def _held(self, resource: str, namespace: str, name: str) -> dict[str, bytes]:
        data = self.store.get(Name(resource, namespace, name))["data"]
        if resource == "v1/secrets":
            return {key: base64.b64decode(value) for key, value in data.items()}
        return {key: value.encode() for key, value in data.items()}

    def _mount(self, spec: dict[str, Any], root: Path, namespace: str) -> None:
        volumes = {each["name"]: each for each in spec["volumes"]}
        for mount in spec["containers"][0]["volumeMounts"]:
            directory = root / mount["mountPath"].removeprefix("/")
            directory.mkdir(parents=True, exist_ok=True)
            volume = volumes.get(mount["name"], {})
            files: dict[str, bytes] = {}
            if "configMap" in volume:
                files = self._held("v1/configmaps", namespace, volume["configMap"]["name"])
            if "secret" in volume:
                files = self._held("v1/secrets", namespace, volume["secret"]["secretName"])
            for key, data in files.items():
                (directory / key).write_bytes(self._addressed(data))

    def _addressed(self, data: bytes) -> bytes:
        """Put the addresses of pods in the place of their names."""
        for name in list(self.store.objects):
            if name.resource == "apps/v1/statefulsets":
                for ordinal in range(16):
                    host = f"{name.name}-{ordinal}.{name.name}-nodes.{name.namespace}.svc:"
                    data = data.replace(host.encode(), f"{address(ordinal)}:".encode())
        return data

    def _environment(self, own: dict[str, Any], name: Name, root: Path) -> dict[str, str]:
        ordinal = int(name.name.rpartition("-")[2])
        fields = {
            "metadata.name": name.name,
            "status.podIP": address(ordinal),
            f"metadata.labels['{ZONE}']": f"zone-{ordinal % 3}",
        }
        mounts = [each["mountPath"] for each in own["volumeMounts"]]
        found: dict[str, str] = {}
        for row in own["env"]:
            source = row.get("valueFrom", {})
            if "fieldRef" in source:
                value = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                secret = source["secretKeyRef"]
                value = self._held("v1/secrets", name.namespace, secret["name"])[
                    secret["key"]
                ].decode()
            else:
                value = row["value"]
                for key, earlier in found.items():
                    value = value.replace(f"$({key})", earlier)
            if any(value.startswith(f"{mount}/") for mount in mounts):
                value = f"{root}{value}"
            found[row["name"]] = value
        kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
        return {**kept, **found}
