"""Three-node clusters of the brokers that are compared, each on loopback with data of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from replication.figures import replace_section

from headrace_broker.cli.local_cluster import LocalCluster

NODE_COUNT: Final = 3
START_SECONDS_MAX: Final = 120  # a broker that needs longer is reported as not starting
STOP_SECONDS_MAX: Final = 60  # a process that needs longer to stop is killed
HEADRACE_PORT: Final = 20672  # AMQP port of the first node


class PeerError(Exception):
    """A broker could not be started or stopped; the text has its output."""


def run(args: list[str], env: dict[str, str], seconds: int = START_SECONDS_MAX) -> str:
    """Run a command to its end and return its output.

    Raises:
        PeerError: it failed or took too long.
    """
    try:
        done = subprocess.run(args, env=env, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as late:
        raise PeerError(f"{args[0]} took more than {seconds} s") from late
    except OSError as error:
        raise PeerError(f"{args[0]} cannot be run: {error}") from error
    if done.returncode != 0:
        raise PeerError(f"{' '.join(args)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def end_all(servers: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for the end of processes that were told to stop; kill the others.

    Raises:
        PeerError: some had to be killed.
    """
    killed = 0
    for server in servers:
        try:
            server.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            for pid in reversed(descendants(server.pid)):
                os.kill(pid, signal.SIGKILL)
            server.wait()
            killed += 1
    if killed:
        raise PeerError(f"{killed} processes had to be killed")


def wait_until(what: str, check: Callable[[], bool]) -> None:
    """Poll `check` until it is true.

    Raises:
        PeerError: it did not become true in START_SECONDS_MAX.
    """
    end = time.monotonic() + START_SECONDS_MAX
    while not check():
        if time.monotonic() > end:
            raise PeerError(f"{what} did not come up in {START_SECONDS_MAX} s")
        time.sleep(0.3)


def descendants(pid: int) -> list[int]:
    """Return a process and all that came from it."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def node_processes(pid: int) -> list[int]:
    """Return the processes that serve for a node: its shards where it has several."""
    found = [each for each in descendants(pid)[1:] if b"--shard" in _words(each)]
    return found or [pid]


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


class Headrace:
    """Three Headrace nodes, driven by the project's own `headrace cluster`.

    Args:
        directory: for their data.
        base_port: AMQP port of the first node.
        command: `headrace` of another build; of this environment by default.
        shards: processes of each node.
    """

    name = "headrace"
    load = "amqpload"

    def __init__(
        self,
        directory: Path,
        base_port: int = HEADRACE_PORT,
        command: Path | None = None,
        shards: int = 1,
    ) -> None:
        self.directory = directory
        self.ports = [base_port + number for number in range(NODE_COUNT)]
        command = command or Path(sys.executable).with_name("headrace")
        self._command = [str(command), "cluster"]
        self._env = dict(os.environ)
        self._shards = shards
        if shards > 1:  # by the variable, which other builds know too
            self._env["HEADRACE_NODE_SHARDS"] = str(shards)

    def start(self) -> None:
        """Start on an empty data directory and wait for a quorum, and for all shards."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        place = ["--data", str(self.directory), "--base-port", str(self.ports[0])]
        run([*self._command, "start", *place], self._env)
        if self._shards > 1:
            wait_until(f"{self._shards} shards a node", self._all_serve)

    def _all_serve(self) -> bool:
        """Return whether all nodes have their shards, and each of these answers."""
        first = LocalCluster.existing(self.directory).nodes[0]
        rows = first.api.request("GET", "/api/cluster/nodes").body
        told = [each["leaders"] for row in rows for each in row["shards"]]
        return len(told) == len(self.ports) * self._shards and None not in told

    def stop(self) -> None:
        """Stop all nodes and remove their data."""
        run([*self._command, "stop", "--data", str(self.directory)], self._env)
        shutil.rmtree(self.directory, ignore_errors=True)

    def pids(self) -> list[int]:
        """Return the nodes' processes; see `node_processes` for those of several shards."""
        records = [node.process() for node in LocalCluster.existing(self.directory).nodes]
        return [record.pid for record in records if record is not None]

    def limit_memory(self, byte_count: int) -> None:
        """Set the memory watermark of all nodes."""
        api = LocalCluster.existing(self.directory).nodes[0].http
        command = [self._command[0].replace("headrace", "rabbitmqctl"), "--node", api]
        run([*command, "set_vm_memory_high_watermark", "absolute", str(byte_count)], self._env)

    def version(self) -> str:
        """Return name and version for the report."""
        return run([self._command[0], "version"], self._env).splitlines()[0].strip()


def report(section: str, write: bool, measure: Callable[[Headrace], list[str]]) -> int:
    """Measure a cluster of three nodes that is made for it, and print the lines of the report.

    Args:
        section: of bench/RESULTS.md.
        write: whether to replace that section.
        measure: returns the lines.

    Returns:
        The exit code: 1 when the cluster could not be driven.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as work:
        cluster = Headrace(Path(work) / "data")
        try:
            cluster.start()
            try:
                text = "\n".join(measure(cluster))
            finally:
                cluster.stop()
        except PeerError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    print(text)
    if write:
        replace_section(section, text)
    return 0
