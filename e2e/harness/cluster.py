"""A three-node cluster that a test may kill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec
import pika
from e2e.harness.ports import free_addresses, free_cluster_port

from headrace_broker.cli.local_cluster import LocalCluster, LocalNode, render_config
from headrace_broker.cli.session.api_client import ApiError
from headrace_broker.config.configuration import load_config

READY_SECONDS: Final = 60.0  # a loaded machine elects slowly; a healthy one needs about two
POLL_SECONDS: Final = 0.05


def wait_for(what: str, check: Callable[[], Any], seconds: float = READY_SECONDS) -> Any:
    """Poll `check` until it gives something true, and return that.

    Raises:
        AssertionError: it did not in `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(POLL_SECONDS)


class Cluster:
    """Nodes n1, n2 and n3 as processes of their own."""

    def __init__(self, data: Path, count: int = 3, base_port: int = 0) -> None:
        self.local = LocalCluster(data, count, base_port or free_cluster_port())
        self._connections: list[pika.BlockingConnection] = []

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.local.stop()  # nodes that do not become ready run all the same
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        killed = self.local.stop()
        assert not killed, f"nodes did not stop when told to: {killed}"

    def start(self) -> None:
        """Start the nodes that do not run and wait until all take clients."""
        self.local.start()
        self.local.wait_ready(READY_SECONDS)

    def start_clone(self, name: str, store: Path, log: Path) -> subprocess.Popen[bytes]:
        """Start a second process of a node that runs, with a copy of its data and own ports.

        Args:
            name: of the node.
            store: the copy of its data directory.
            log: where it writes.
        """
        node = self.node(name)
        amqp, http, peer = free_addresses(3).values()
        other = msgspec.structs.replace(
            node, directory=store.parent / "clone-node", amqp=amqp, http=http, peer=peer, grpc=""
        )
        nodes = tuple(other if each.name == name else each for each in self.local.nodes)
        other.directory.mkdir()
        store.rename(other.directory / "store")
        secret = Path(load_config(node.config_file, {}).cluster.join_secret_file)
        other.config_file.write_text(render_config(other, nodes, secret), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "headrace_broker.cli", "serve"]
        with log.open("ab") as output:
            return subprocess.Popen(
                [*command, "--config", str(other.config_file)], stdout=output, stderr=output
            )

    def node(self, name: str) -> LocalNode:
        """Return a node by name."""
        return next(node for node in self.local.nodes if node.name == name)

    @property
    def ports(self) -> list[int]:
        """AMQP ports of all nodes."""
        return [int(node.amqp.rpartition(":")[2]) for node in self.local.nodes]

    def port(self, name: str) -> int:
        """AMQP port of one node."""
        return int(self.node(name).amqp.rpartition(":")[2])

    def kill(self, *names: str) -> None:
        """SIGKILL nodes, all at once, and wait until they are gone."""
        records = [(self.node(name), self.node(name).process()) for name in names]
        for node, record in records:
            assert record is not None, f"{node.name} does not run"
            os.kill(record.pid, signal.SIGKILL)
        wait_for(f"{names} to die", lambda: all(node.process() is None for node, _ in records))

    @contextlib.contextmanager
    def stopped(self, *names: str) -> Iterator[None]:
        """Stop nodes in their tracks (SIGSTOP), and let them go on at the end."""
        pids = [self.pid(name) for name in names]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def pid(self, name: str) -> int:
        """Return the process of a node that runs."""
        record = self.node(name).process()
        assert record is not None, f"{name} does not run"
        return record.pid

    def resident_bytes(self, name: str) -> int:
        """Return the resident memory of a node."""
        pages = int(Path(f"/proc/{self.pid(name)}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def connect(self, name: str = "n1", **parameters: Any) -> pika.BlockingConnection:
        """Open a pika connection to a node."""
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self.port(name), **parameters)
        )
        self._connections.append(connection)
        return connection

    def close_connections(self) -> None:
        """Close what `connect` opened and a test left open."""
        for connection in self._connections:
            if connection.is_open:
                with contextlib.suppress(pika.exceptions.AMQPError):
                    connection.close()
        self._connections.clear()

    def queue(self, name: str, ask: str | None = None) -> dict[str, Any] | None:
        """Return a queue's entry in the HTTP listing of a running node."""
        for node in self.local.nodes:
            if node.process() is not None and ask in (None, node.name):
                status, entries = node.api.get("/api/queues")
                assert status == 200, entries
                for entry in entries:
                    if entry["name"] == name:
                        return dict(entry)
        return None

    def log(self, name: str) -> str:
        """Return what a node has written so far."""
        return self.node(name).log_file.read_text(encoding="utf-8", errors="replace")

    def leader(self, queue: str) -> str:
        """Return the name of the running node that leads a queue, waiting for one."""

        def led() -> str:
            for node in self.local.nodes:
                if node.process() is None:
                    continue
                entry = None
                with contextlib.suppress(ApiError):  # one that has just started, or is in need
                    entry = self.queue(queue, node.name)
                if entry is not None and entry["leader"] == node.name:
                    return node.name
            return ""

        return str(wait_for(f"a leader of {queue}", led))
