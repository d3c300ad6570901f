"""A cluster of real processes on this machine, below one data directory.

DATA/join-secret        by which the nodes know each other; generated once
DATA/n1/headrace.toml   generated at each start
DATA/n1/process.json    which process is the node
DATA/n1/log/node.log    what it says
DATA/n1/store/          its replicated log
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
import msgspec
from msgspec.structs import replace

from headrace_broker.cli.process import (
    ProcessRecord,
    RunningProcess,
    identify,
    read_record,
    write_record,
)
from headrace_broker.cli.session.api_client import ApiClient
from headrace_broker.config.configuration import ConfigError, load_config
from headrace_broker.config.shards import leftover_problem, members_problem, moved

NODES_MAX: Final = 9  # processes on one machine; more show nothing that nine do not
BASE_PORT: Final = 5672
HTTP_OFFSET: Final = 10_000  # AMQP 5672 -> HTTP 15672, as people know it
PEER_OFFSET: Final = 1429  # AMQP 5672 -> between nodes 7101
GRPC_OFFSET: Final = 2_000  # AMQP 5672 -> gRPC 7672
LOCAL_DISK_FREE_BYTES_MIN: Final = 256 << 20  # bytes; a laptop is fuller than a server may be
LOG_FILE_BYTES_MAX: Final = 16 << 20  # bytes of node.log at which a start sets it aside as .1
STOP_S_MAX: Final = 20.0  # seconds for a clean stop, before SIGKILL
PORT_S_MAX: Final = 5.0  # seconds; a killed process may hold its ports until its last thread ends
POLL_S: Final = 0.1  # seconds between looks at something that will happen soon
HOST: Final = "127.0.0.1"
JOIN_FILE: Final = "join-secret"  # below the data directory
JOIN_BYTES: Final = 32  # of chance
# A variable like HEADRACE_NODE_ID would make all nodes one; those for tuning pass through.
PLACE_VARIABLES: Final = ("HEADRACE_NODE_", "HEADRACE_CLUSTER_", "HEADRACE_LISTENERS_")
# these say nothing of a place
PASSED_VARIABLES: Final = (
    "HEADRACE_CLUSTER_BALANCE_LEADERS",
    "HEADRACE_CLUSTER_TRANSPORT",
    "HEADRACE_NODE_SHARDS",
)


class ClusterError(click.ClickException):
    """The local cluster cannot do what was asked; the text says why and what would help."""


class LocalNode(msgspec.Struct, frozen=True):
    """Ports and directory of one node of the cluster."""

    id: int
    name: str
    directory: Path  # DATA/NAME
    amqp: str  # HOST:PORT for AMQP clients
    http: str  # HOST:PORT of the HTTP API
    peer: str  # HOST:PORT between nodes
    grpc: str = ""  # HOST:PORT for gRPC clients, empty for none
    amqps: str = ""  # HOST:PORT for AMQP over TLS, likewise
    tls: dict[str, str] = {}  # keys and values of the section `tls`
    zone: str = ""  # of the node, empty for none
    shards: int = 0  # its processes, 0 for as many as the environment says

    @property
    def config_file(self) -> Path:
        """The node's generated configuration."""
        return self.directory / "headrace.toml"

    @property
    def record_file(self) -> Path:
        """Which process is the node."""
        return self.directory / "process.json"

    @property
    def log_file(self) -> Path:
        """File for the process's stdout and stderr."""
        return self.directory / "log" / "node.log"

    @property
    def api(self) -> ApiClient:
        """A client of the node's HTTP API."""
        return ApiClient(self.http)

    def process(self) -> ProcessRecord | None:
        """The node's process, None when it does not run."""
        return read_record(self.record_file)


class LocalCluster:
    """Starts, watches and stops 1 to NODES_MAX nodes below a data directory, made at start."""

    def __init__(self, data: Path, count: int, base_port: int = BASE_PORT, shards: int = 0) -> None:
        self.data = data.absolute()
        self.base_port = base_port  # AMQP port of the first node; see HTTP_OFFSET for others
        self.shards = shards  # of each node, 0 for as many as at the start before
        self.nodes = tuple([self._place(number) for number in range(1, count + 1)])
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._secret_file: Path | None = None

    def _place(self, number: int) -> LocalNode:
        if problem := members_problem(self.shards, number):
            raise ClusterError(problem)
        port = self.base_port + number - 1
        return LocalNode(
            id=number,
            name=f"n{number}",
            directory=self.data / f"n{number}",
            amqp=f"{HOST}:{port}",
            http=f"{HOST}:{port + HTTP_OFFSET}",
            peer=f"{HOST}:{port + PEER_OFFSET}",
            grpc=f"{HOST}:{port + GRPC_OFFSET}",
            shards=self.shards,
        )

    @classmethod
    def existing(cls, data: Path) -> LocalCluster:
        """Return the cluster whose configuration lies below `data`; ClusterError without one."""
        file = data.absolute() / "n1" / "headrace.toml"
        try:
            config = load_config(file, {})
        except ConfigError as error:
            raise ClusterError(f"no local cluster below {data}: {error}") from error
        port = int(config.listeners.amqp.rpartition(":")[2])
        shards = tomllib.loads(file.read_text())["node"].get("shards", 0)  # as it was given
        return cls(data, len(config.cluster.nodes), port, shards)

    @staticmethod
    def port_of(data: Path) -> int:
        """Return the base port of the cluster below `data`, BASE_PORT where there is none."""
        there = (data / "n1" / "headrace.toml").exists()
        return LocalCluster.existing(data).base_port if there else BASE_PORT

    def start(self) -> None:
        """Start the nodes that do not run; returns as soon as their processes exist.

        Raises ClusterError: the data is another cluster's, or a port is taken; nothing was started.
        """
        self._check_data()
        stopped = [node for node in self.nodes if node.process() is None]
        for node in stopped:
            wait_ports_free(node)
        self._give_secret([node for node in self.nodes if node not in stopped])
        for node in stopped:
            self._start_node(node)

    def add(self, zone: str = "") -> LocalNode:
        """Start one more node, which joins those that run; returns once its process exists.

        Args:
            zone: of the node, empty for none.

        Raises ClusterError: there are as many as may be, or a port is taken; nothing was started.
        """
        number = len(self.nodes) + 1
        if number > NODES_MAX:
            raise ClusterError(f"there are {NODES_MAX} nodes, which is the most on one machine")
        node = replace(self._place(number), zone=zone)
        wait_ports_free(node)
        self._give_secret(list(self.nodes))
        self.nodes = (*self.nodes, node)
        self._start_node(node)
        first = self.nodes[0]  # whose configuration says how many there are
        self._write_config(first)
        return node

    def wait_ready(self, seconds: float, cancelled: threading.Event | None = None) -> None:
        """Wait, until `cancelled` is set, for all nodes to be ready, which takes a quorum.

        Raises ClusterError: a process ended, or they were not ready in time.
        """
        deadline = time.monotonic() + seconds
        waiting = list(self.nodes)
        reason = ""
        while waiting and not (cancelled is not None and cancelled.is_set()):
            for node in list(waiting):
                if node.process() is None:
                    raise ClusterError(f"node {node.name} ended: {last_words(node.log_file)}")
                reason = node.api.not_ready_reason()
                if not reason:
                    waiting.remove(node)
            if waiting and time.monotonic() > deadline:
                names = ", ".join(node.name for node in waiting)
                raise ClusterError(
                    f"not ready after {seconds:.0f} s: {names} ({reason}); see {self.data}/*/log"
                )
            if waiting:
                time.sleep(POLL_S)

    def stop(self) -> list[str]:
        """Stop all running nodes; return the names of those killed after STOP_S_MAX seconds."""
        killed: list[str] = []
        with contextlib.ExitStack() as stack:
            running: list[tuple[LocalNode, RunningProcess]] = []
            for node in self.nodes:
                record = node.process()
                if record is not None:
                    with contextlib.suppress(ProcessLookupError):
                        running.append((node, stack.enter_context(RunningProcess(record))))
            for _, process in running:
                process.send(signal.SIGTERM)
            deadline = time.monotonic() + STOP_S_MAX
            for node, process in running:
                if not process.wait(deadline - time.monotonic()):
                    process.send(signal.SIGKILL)
                    process.wait(STOP_S_MAX)
                    killed.append(node.name)
                node.record_file.unlink(missing_ok=True)
        for child in self._children.values():
            child.wait()
        self._children.clear()
        return killed

    def _check_data(self) -> None:
        """Refuse data that was written by a cluster of another size."""
        first = self.nodes[0].config_file
        if not first.exists():
            return
        existing = LocalCluster.existing(self.data)
        before = len(existing.nodes)
        if before != len(self.nodes):
            raise ClusterError(
                f"{self.data} belongs to a cluster of {before} nodes: start it with "
                f"--nodes {before}, or use another --data"
            )
        self.shards = self.shards or existing.shards
        running = [node.name for node in existing.nodes if node.process() is not None]
        if running and self.shards != existing.shards:
            raise ClusterError(
                f"{', '.join(running)}: started with another number of shards, and running. Stop "
                "the cluster first, or leave --shards out"
            )
        self.nodes = tuple([replace(node, shards=self.shards) for node in self.nodes])
        for node in self.nodes if self.shards else ():
            self._check_leftover(node)

    def _check_leftover(self, node: LocalNode) -> None:
        """Refuse fewer processes than a node has data of, before its number is written down."""
        if node.config_file.exists():
            try:
                problem = leftover_problem(load_config(node.config_file, {}), node.shards)
            except ConfigError as error:
                raise ClusterError(f"{node.config_file}: {error}") from error
            if problem:
                raise ClusterError(problem)

    def _give_secret(self, running: list[LocalNode]) -> None:
        """Give the nodes to be started a common secret, which is made once.

        Nodes that run without one, of an earlier release, would not be let in.
        """
        self._secret_file = None
        if any(not _has_secret(node) for node in running):
            return
        self._secret_file = self.data / JOIN_FILE
        self.data.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            found = os.open(self._secret_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(found, "w", encoding="ascii") as file:
                file.write(f"{secrets.token_urlsafe(JOIN_BYTES)}\n")

    def _write_config(self, node: LocalNode) -> None:
        text = render_config(node, self.nodes, self._secret_file)
        node.config_file.write_text(text, encoding="utf-8")

    def _start_node(self, node: LocalNode) -> None:
        node.log_file.parent.mkdir(parents=True, exist_ok=True)
        self._write_config(node)
        if node.log_file.exists() and node.log_file.stat().st_size > LOG_FILE_BYTES_MAX:
            node.log_file.replace(node.log_file.with_suffix(".log.1"))
        ended = self._children.pop(node.name, None)
        if ended is not None:
            ended.wait()  # killed from outside; it is not running any more
        command = [sys.executable, "-P", "-m", "headrace_broker.cli", "serve"]
        environment = node_environment(os.environ)
        if node.shards:  # whatever this command was told of nodes
            environment["HEADRACE_NODE_SHARDS"] = str(node.shards)
        with node.log_file.open("ab") as output:
            child = subprocess.Popen(
                [*command, "--config", str(node.config_file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the command, which then stops the nodes
            )
        self._children[node.name] = child
        record = identify(child.pid)
        if record is not None:  # otherwise it ended already, which wait_ready tells
            write_record(node.record_file, record)


def _has_secret(node: LocalNode) -> bool:
    """Return whether a node that runs was given a join secret at its start."""
    try:
        return bool(load_config(node.config_file, {}).cluster.join_secret_file)
    except ConfigError:
        return False


def node_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of nodes: what this command has, but for a node's place."""
    return {
        name: value
        for name, value in environment.items()
        if name in PASSED_VARIABLES or not name.startswith(PLACE_VARIABLES)
    }


def render_config(
    node: LocalNode, nodes: tuple[LocalNode, ...], join_secret: Path | None = None
) -> str:
    """Return the TOML configuration of one node of a local cluster; without a secret for None."""

    def quote(text: str) -> str:
        return json.dumps(text, ensure_ascii=False)  # a JSON string is a TOML basic string

    members = "\n".join(
        f"\n[[cluster.nodes]]\nid = {each.id}\nname = {quote(each.name)}\n"
        f"address = {quote(each.peer)}"
        for each in nodes
    )
    tls = "\n".join(f"{key} = {quote(value)}" for key, value in node.tls.items())
    zone = f"zone = {quote(node.zone)}" if node.zone else ""
    shards = f"shards = {node.shards}" if node.shards else ""
    return f"""\
# Written by `headrace cluster start`, anew at each start.
[node]
id = {node.id}
name = {quote(node.name)}
data_dir = {quote(str(node.directory / "store"))}
{zone}
{shards}

[listeners]
amqp = {quote(node.amqp)}
amqps = {quote(node.amqps)}
http = {quote(node.http)}
grpc = {quote(node.grpc)}

[tls]
{tls}

[limits]
disk_free_bytes_min = {LOCAL_DISK_FREE_BYTES_MIN}

[cluster]
name = "local"
admit_nodes = true
join_secret_file = {quote(str(join_secret or ""))}
{members}
"""


def wait_ports_free(node: LocalNode) -> None:
    """Wait for the ports of a node that was killed; ClusterError after PORT_S_MAX."""
    deadline = time.monotonic() + PORT_S_MAX
    while True:
        try:
            check_ports_free(node)
        except ClusterError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)
        else:
            return


def check_ports_free(node: LocalNode) -> None:
    """Refuse to start a node one of whose ports is in use; ClusterError names the purpose."""
    ports = [("AMQP", node.amqp), ("HTTP", node.http), ("gRPC", node.grpc)]
    ports += [("nodes", moved(node.peer, shard)) for shard in range(max(node.shards, 1))]
    for purpose, address in ports:
        host, _, port = address.rpartition(":")
        if not port:
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, int(port)))
                probe.listen(1)
            except OSError as error:
                raise ClusterError(
                    f"port {port} ({purpose} of {node.name}) is taken: {error.strerror}; stop what "
                    "uses it, or choose others with --base-port"
                ) from error


def last_words(path: Path, lines: int = 5) -> str:
    """Return the end of a log file, for an error text."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "it wrote nothing"
    return "\n".join(text.splitlines()[-lines:]) or "it wrote nothing"
