"""Real nodes, each in a network namespace of its own and with a disk of its own to slow down.

All nodes have the same ports, for each has its own loopback: clients reach every node whatever is
cut between the nodes. A node may be several processes, see docs/clustering.md, "Shards"; they share
its namespace and its disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from e2e.chaos.data import expected_member
from e2e.chaos.disk import SlowDisk
from e2e.chaos.network import Namespace, Network
from e2e.chaos.processes import (
    children_of,
    listener_count,
    owner_of,
    runs,
    shard_pids,
    wrong_endings,
)
from e2e.harness.cluster import wait_for
from e2e.harness.release import own_environment
from e2e.harness.wall_clock import WallClock

from headrace_broker.cli.local_cluster import LocalNode, last_words, render_config
from headrace_broker.cli.session.api_client import ApiError, path_of
from headrace_broker.model.shard import node_name, shard_id, shard_name

AMQP_PORT: Final = 20000
HTTP_PORT: Final = 20500
GRPC_PORT: Final = 20600
JOIN_FILE: Final = "join-secret"  # below the data directory; nodes do not talk over loopback here
JOIN_BYTES: Final = 32
# Several segments in a run, so that a lost one is not everything.
SMALL_SEGMENTS: Final = {
    "HEADRACE_LOG_SEGMENT_BYTES": str(2 << 20),
    "HEADRACE_LIMITS_MESSAGE_BYTES_MAX": str(512 << 10),
}
OWN_PYTHON: Final = Path(sys.executable)
STOP_SECONDS: Final = 30.0
READY_SECONDS: Final = 60.0
REPLICAS: Final = 3  # of a queue whose declarer asks for nothing else
WHOLE_SECONDS: Final = 180.0  # until nodes that lost their data have it again
PLACE_VARIABLES: Final = ("HEADRACE_NODE_", "HEADRACE_CLUSTER_", "HEADRACE_LISTENERS_")
# What a healthy node never says, whatever happens around it.
BAD_LOG_LINE: Final = re.compile(r"Traceback|AssertionError|CRITICAL|never retrieved|Segmentation")


class NodeEndedError(Exception):
    """A node's process ended without being killed."""


class ChaosNode:
    """One node's process or processes, namespace and disk.

    Attributes:
        id: 1 to the number of nodes.
        local: its files and addresses.
        shards: how many processes serve; with more than one, a supervisor starts and watches them.
        python: the interpreter of its next start, in whose environment its build is.
    """

    def __init__(self, local: LocalNode, namespace: Namespace, shards: int = 1) -> None:
        self.id = local.id
        self.local = local
        self.shards = shards
        self.namespace = namespace
        self.disk = SlowDisk(local.directory / "disk")
        self.clock = WallClock(local.directory / "clock")
        self.python = OWN_PYTHON
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._stopped_shards: dict[int, int] = {}  # pids by number
        self._kills: dict[str, int] = {}  # of processes alone, by name

    @property
    def name(self) -> str:
        """n1, n2, ..."""
        return self.local.name

    @property
    def processes(self) -> list[str]:
        """Names of the processes that serve: n1, n1:1, ..."""
        return [shard_name(self.name, shard) for shard in range(self.shards)]

    @property
    def runs(self) -> bool:
        """True if the process was started and not killed since; it may be stopped."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Its process, which runs; the supervisor if there are several."""
        assert self._process is not None
        return self._process.pid

    def start(self, nodes: tuple[LocalNode, ...]) -> None:
        """Start the process if there is none; called on the main thread, whose end ends it."""
        if self._process is not None:
            return
        self.local.log_file.parent.mkdir(parents=True, exist_ok=True)
        join_secret = self.local.directory.parent / JOIN_FILE
        config = render_config(self.local, nodes, join_secret)
        self.local.config_file.write_text(config, encoding="utf-8")
        variables = dict(os.environ) if self.python == OWN_PYTHON else own_environment()
        inherited = {k: v for k, v in variables.items() if not k.startswith(PLACE_VARIABLES)}
        # A test that is killed leaves no node behind: the kernel kills it with its parent.
        command = ["setpriv", "--pdeathsig", "KILL", str(self.python), "-P"]
        with self.local.log_file.open("ab") as output, self.namespace.entered():
            self._process = subprocess.Popen(
                [
                    *(*command, "-m", "headrace_broker.cli", "serve"),
                    *("--config", str(self.local.config_file)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**inherited, **self._several(), **SMALL_SEGMENTS, **self._preloads()},
                start_new_session=True,
            )

    def _several(self) -> dict[str, str]:
        return {"HEADRACE_NODE_SHARDS": str(self.shards)} if self.shards > 1 else {}

    def _preloads(self) -> dict[str, str]:
        """Return the variables of the libraries that make disk and clock go wrong."""
        disk, clock = self.disk.environment, self.clock.environment
        return {**disk, **clock, "LD_PRELOAD": f"{disk['LD_PRELOAD']} {clock['LD_PRELOAD']}"}

    def kill(self) -> None:
        """SIGKILL, also while it is stopped; of several processes the supervisor alone.

        Raises:
            AssertionError: its other processes live on.
        """
        if self._process is not None:
            others = children_of(self.pid)
            self._signal(signal.SIGKILL)
            self._process.wait(STOP_SECONDS)
            self._forget(others)

    def _forget(self, others: list[int]) -> None:
        """Wait for the end of what a process that ended had started."""
        self._process = None
        self._stopped = False
        self._stopped_shards.clear()
        what = f"the processes {others} of {self.name} to end with their supervisor"
        wait_for(what, lambda: not any(map(runs, others)), STOP_SECONDS)

    def kill_shard(self, shard: int) -> bool:
        """SIGKILL one of several processes, also while it is stopped; return whether it ran."""
        pid = self._shard_pid(shard)
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        self._stopped_shards.pop(shard, None)
        name = shard_name(self.name, shard)
        self._kills[name] = self._kills.get(name, 0) + 1
        wait_for(f"{name} to end", lambda: not runs(pid), STOP_SECONDS)
        return True

    def _shard_pid(self, shard: int) -> int | None:
        """Return which process a shard is, None while it is none."""
        self.check_alive()
        return shard_pids(self.pid).get(shard) if self._process is not None else None

    def pause(self) -> None:
        """SIGSTOP; of several processes all, that which would restart others first."""
        if self._process is not None and not self._stopped:
            self._signal(signal.SIGSTOP)
            self._stopped = True
            for shard in range(self.shards) if self.shards > 1 else ():
                self.pause_shard(shard)

    def pause_shard(self, shard: int) -> bool:
        """SIGSTOP one of several processes; return whether it runs."""
        pid = self._shard_pid(shard)
        if pid is None:
            return False
        os.kill(pid, signal.SIGSTOP)
        self._stopped_shards[shard] = pid
        return True

    def resume(self) -> None:
        """SIGCONT to what is stopped."""
        for pid in self._stopped_shards.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped_shards.clear()
        if self._process is not None and self._stopped:
            self._signal(signal.SIGCONT)
            self._stopped = False

    def begin_stop(self) -> None:
        """SIGTERM."""
        self.resume()
        if self._process is not None:
            self._signal(signal.SIGTERM)

    def end_stop(self) -> bool:
        """Wait for the end after `begin_stop`; kill what does not end, and say whether it did."""
        if self._process is None:
            return True
        others = children_of(self.pid)
        try:
            ended = self._process.wait(STOP_SECONDS) == 0
        except subprocess.TimeoutExpired:
            ended = False
        if self._process.returncode is None:
            self.kill()
        else:
            self._forget(others)
        return ended

    def _signal(self, number: signal.Signals) -> None:
        self.check_alive()
        assert self._process is not None
        self._process.send_signal(number)

    def check_alive(self) -> None:
        """Raise when the process ended by itself.

        Raises:
            NodeEndedError: with the end of its log.
        """
        if self._process is not None and self._process.poll() is not None:
            code = self._process.returncode
            self._process = None
            raise NodeEndedError(
                f"{self.name} ended with {code}: {last_words(self.local.log_file)}"
            )

    def is_ready(self) -> bool:
        """Return whether the node takes clients, with all its processes.

        Raises:
            NodeEndedError: it never will.
        """
        self.check_alive()
        with self.namespace.entered():
            if self.local.api.not_ready_reason():
                return False
        return self.shards == 1 or self._all_serve()

    def _all_serve(self) -> bool:
        """Return whether all of several processes accept clients and answer the first one."""
        if self._process is None or listener_count(self.pid, AMQP_PORT) != self.shards:
            return False
        row = self.get(path_of("cluster", "nodes", self.name)) or {}
        answers = [each["leaders"] is not None for each in row.get("shards", [])]
        return answers == [True] * self.shards

    def process_of(self, client_port: int) -> str:
        """Return the name of the process that serves a connection over the node's loopback.

        Raises:
            EOFError: of several none does; the connection has ended.
        """
        if self.shards == 1:
            return self.name
        process = self._process
        pids = shard_pids(process.pid) if process is not None else {}
        shard = owner_of(pids, AMQP_PORT, client_port)
        if shard is None:
            raise EOFError(f"no process of {self.name} has the connection")
        return shard_name(self.name, shard)

    @property
    def store(self) -> Path:
        """Its data."""
        return self.local.directory / "store"

    @property
    def stores(self) -> list[Path]:
        """The data of its processes, those of the further ones below those of the first."""
        return [self.store, *(self.store / f"shard-{shard}" for shard in range(1, self.shards))]

    @property
    def members(self) -> dict[str, str]:
        """The member ids that its data stand for, by process; "" for none yet."""
        return {
            shard_name(self.name, shard): expected_member(store, shard_id(self.id, shard))
            for shard, store in enumerate(self.stores)
        }

    def get(self, path: str) -> Any:
        """Return the answer of the HTTP API, None when there is none to be had."""
        try:
            with self.namespace.entered():
                status, answer = self.local.api.get(path)
        except ApiError:
            return None
        return answer if status == 200 else None

    def post(self, path: str) -> None:
        """Ask for a change over HTTP until it is made: the catalog may have no leader now."""

        def made() -> bool:
            with contextlib.suppress(ApiError), self.namespace.entered():
                return self.local.api.request("POST", path).status == 200
            return False

        wait_for(f"{self.name} to do {path}", made)

    def queue_leader(self, queue: str) -> str:
        """Return the process that leads a queue as far as this node knows, "" when it does not."""
        return str(self._queue(queue).get("leader") or "")

    def queue_counts(self, queue: str) -> tuple[int, int] | None:
        """Return how many messages are ready and unacknowledged, None when not known."""
        entry = self._queue(queue)
        if "messages_ready" not in entry:
            return None
        return entry["messages_ready"], entry["messages_unacknowledged"]

    def queue_figure(self, queue: str, figure: str) -> int | None:
        """Return one count of the HTTP listing, None when not known."""
        return self._queue(queue).get(figure)

    def _queue(self, queue: str) -> dict[str, Any]:
        """Return a queue's entry in the HTTP listing, {} when there is none to be had."""
        if not self.runs or self._stopped or 0 in self._stopped_shards:
            return {}
        entries = self.get("/api/queues") or []
        return next((dict(each) for each in entries if each["name"] == queue), {})

    def bad_log_lines(self) -> list[str]:
        """Return lines of the log that no fault excuses."""
        if not self.local.log_file.exists():
            return []
        text = self.local.log_file.read_text(encoding="utf-8", errors="replace")
        bad = [line for line in text.splitlines() if BAD_LOG_LINE.search(line)]
        return [f"{self.name}: {line}" for line in (*bad, *wrong_endings(text, self._kills))]


class ChaosCluster:
    """Nodes 1 to `count` below a data directory; a `with` block starts and stops them.

    Args:
        grpc: HOST:PORT for gRPC clients, the same on each node's own loopback; empty for none.
        shards: processes of each node.

    Raises:
        NetworkUnavailableError: network namespaces are impossible here.
    """

    def __init__(self, data: Path, count: int, grpc: str = "", shards: int = 1) -> None:
        self._data = data.absolute()
        self.network = Network(count)
        self.locals = tuple(
            LocalNode(
                id=number,
                name=f"n{number}",
                directory=self._data / f"n{number}",
                amqp=f"127.0.0.1:{AMQP_PORT}",
                http=f"127.0.0.1:{HTTP_PORT}",
                peer=f"{self.network.address(number)}:{GRPC_PORT}",
                grpc=grpc,
            )
            for number in range(1, count + 1)
        )
        self.nodes = [ChaosNode(each, self.network.nodes[each.id], shards) for each in self.locals]

    def __enter__(self) -> ChaosCluster:
        try:
            self.start()
        except BaseException:
            self.abandon()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def start(self) -> None:
        """Start the nodes that do not run and wait until all take clients."""
        self._write_join_secret()
        for node in self.nodes:
            node.start(self.locals)
        self.wait_ready()

    def _write_join_secret(self) -> None:
        file = self._data / JOIN_FILE
        if file.exists():
            return  # another one would withdraw that of the nodes that run
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(secrets.token_urlsafe(JOIN_BYTES) + "\n", encoding="utf-8")

    def node(self, number: int) -> ChaosNode:
        """Return a node by its number."""
        return self.nodes[number - 1]

    def wait_ready(self) -> float:
        """Wait until all nodes take clients; return the seconds it took."""
        started = time.monotonic()
        for node in self.nodes:
            wait_for(f"{node.name} to be ready", node.is_ready)
        return time.monotonic() - started

    def wait_whole(self, queues: Sequence[str]) -> None:
        """Wait until all replicas of the catalog and the queues vote, with the disks they have now.

        A fault of another node's data before that could take the last copy.

        Raises:
            AssertionError: a node did not get its data back.
        """
        what = f"all replicas to vote on the catalog and {', '.join(queues)}"
        wait_for(what, lambda: self._is_whole(queues), WHOLE_SECONDS)

    def _is_whole(self, queues: Sequence[str]) -> bool:
        self.check_alive()
        rows = self.nodes[0].get("/api/nodes") or []
        catalog = [each for row in rows for each in row.get("catalog", [])]
        members = {name: member for node in self.nodes for name, member in node.members.items()}
        if any(row.get("quarantined") for row in rows) or len(catalog) != len(members):
            return False
        # The first process of each node votes, the others learn.
        voters = [each for each in catalog if each["node"] == node_name(each["node"])]
        learners = [each for each in catalog if each not in voters]
        # A node that hosts no replica of a queue names none.
        told = [each for node in self.nodes for each in node.get("/api/queues") or []]
        entries = {each["name"]: each for each in told if each.get("replicas")}
        groups = [
            entries.get(queue, {}).get("replicas") or self._members(queue) for queue in queues
        ]
        return _all_have(learners, "learner", members) and all(
            _is_whole_group(each, members) for each in [voters, *groups]
        )

    def _members(self, queue: str) -> list[dict[str, str]]:
        """Return a queue's replicas as its leader tells: none may be in a node's first process."""
        told = self.nodes[0].get(path_of("queues", "/", queue, "members")) or {}
        return list(told.get("members", []))

    def leader(self, queue: str) -> int:
        """Return the number of a node that says it leads a queue, 0 when none does."""
        return self.leading_shard(queue)[0]

    def leading_shard(self, queue: str) -> tuple[int, int]:
        """Return the same with the number of its process that leads, 0 for the first one."""
        for node in self.nodes:
            leader = node.queue_leader(queue)
            if leader in node.processes:
                return node.id, node.processes.index(leader)
        return 0, 0

    def queue_counts(self, queue: str) -> tuple[int, int] | None:
        """Return a queue's ready and unacknowledged messages, None when nobody leads it."""
        leader = self.leader(queue)
        return self.node(leader).queue_counts(queue) if leader else None

    def queue_figure(self, queue: str, figure: str) -> int | None:
        """Return a count that a queue's leader tells, None when nobody leads it."""
        leader = self.leader(queue)
        return self.node(leader).queue_figure(queue, figure) if leader else None

    def check_alive(self) -> None:
        """Raise NodeEndedError when a node ended by itself."""
        for node in self.nodes:
            node.check_alive()

    def stop(self) -> list[str]:
        """SIGTERM all; return the names of those that did not end in order."""
        for node in self.nodes:
            node.begin_stop()
        return [node.name for node in self.nodes if not node.end_stop()]

    def abandon(self) -> None:
        """End what still runs and take the network down."""
        for node in self.nodes:
            with contextlib.suppress(NodeEndedError):
                node.kill()
        self.network.close()


def _is_whole_group(replicas: Sequence[dict[str, str]], members: dict[str, str]) -> bool:
    """Return whether a group is complete, on as many nodes, and all its members vote."""
    nodes = {node_name(each["node"]) for each in replicas}
    return len(nodes) == len(replicas) >= REPLICAS and _all_have(replicas, "voter", members)


def _all_have(replicas: Sequence[dict[str, str]], role: str, members: dict[str, str]) -> bool:
    """Return whether all replicas have a role and the disks that are in use."""
    return all(
        each["role"] == role and each["member"] == members[each["node"]] for each in replicas
    )
