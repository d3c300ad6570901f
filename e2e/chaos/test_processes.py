"""Processes of a node: which there are, which serves a connection, and which ended by itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.chaos.data import wipe_shard
from e2e.chaos.processes import (
    children_of,
    listener_count,
    owner_of,
    runs,
    shard_pids,
    wrong_endings,
)
from e2e.harness.cluster import wait_for

# A shard accepts one connection after the other at a shared port, and says the port.
SHARD = """
import socket, sys
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind(("127.0.0.1", int(sys.argv[-1])))
server.listen()
print(server.getsockname()[1], flush=True)
accepted = []
while True:
    accepted.append(server.accept())
    accepted[-1][0].send(sys.argv[2].encode())
"""
NODE = """
import subprocess, sys
port = "0"
for shard in "012":
    command = [sys.executable, "-c", sys.argv[1], "--shard", shard, port]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    port = child.stdout.readline().decode().strip()
print(port, flush=True)
child.wait()
"""


@pytest.fixture
def node() -> Iterator[tuple[int, int]]:
    """A node of three shards: the pid of their parent, and their port."""
    command = [sys.executable, "-c", NODE, SHARD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        os.killpg(process.pid, signal.SIGKILL)


def test_shards_are_found_by_their_number(node: tuple[int, int]) -> None:
    parent, port = node
    pids = shard_pids(parent)
    assert sorted(pids) == [0, 1, 2]
    assert sorted(pids.values()) == sorted(children_of(parent))
    assert all(map(runs, pids.values()))
    assert listener_count(parent, port) == 3
    os.kill(pids[1], signal.SIGKILL)
    wait_for("its end", lambda: not runs(pids[1]))  # though its parent does not reap it
    assert sorted(shard_pids(parent)) == [0, 2]
    wait_for("the end of its listener", lambda: listener_count(parent, port) == 2)


def test_connections_are_told_from_each_other(node: tuple[int, int]) -> None:
    parent, port = node
    pids = shard_pids(parent)
    found: set[int] = set()
    clients: list[socket.socket] = []
    while found != {0, 1, 2}:  # the kernel gives each its share
        clients.append(socket.create_connection(("127.0.0.1", port), timeout=30))
        said = int(clients[-1].recv(1))
        assert owner_of(pids, port, clients[-1].getsockname()[1]) == said
        found.add(said)
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        assert owner_of(pids, port, stranger.getsockname()[1]) is None
    for client in clients:
        client.close()


LOG = """\
n1 ERROR headrace.node: process n1:1 ended by itself with status -9; it is started again in 1 s
n1 INFO headrace.node: node n1 serves
n1 ERROR headrace.node: process n1:1 ended by itself with status -9; it is started again in 2 s
n1 ERROR headrace.node: process n1 ended by itself with status 1; it is started again in 1 s
"""


def test_processes_that_nobody_killed_must_not_end() -> None:
    ended = "n1 ended by itself with status 1"
    assert wrong_endings(LOG, {"n1:1": 2, "n1": 1}) == [ended]
    assert wrong_endings(LOG, {"n1:1": 1}) == ["n1:1 was killed, and not by the test", ended]
    assert wrong_endings("", {"n1": 1}) == []


@pytest.mark.parametrize(("shard", "left"), [(0, {"shard-1", "shard-2"}), (1, {"log", "shard-2"})])
def test_one_process_loses_its_data_alone(tmp_path: Path, shard: int, left: set[str]) -> None:
    stores = [tmp_path, tmp_path / "shard-1", tmp_path / "shard-2"]
    for store in stores:
        (store / "log").mkdir(parents=True)
        (store / "log" / "1.log").touch()
    wipe_shard(stores, shard)
    files = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("1.log")}
    assert files == left
