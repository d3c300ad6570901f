"""A replica whose state was changed behind its back is named, serves no more and is rebuilt.

The nodes load a `sitecustomize` that does nothing until a signal comes: then it changes the state
that the file beside it names, as a bug in a state machine would.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.harness.cluster import Cluster, wait_for

MESSAGES = 40
WAIT_SECONDS = 90.0

INJECTION = '''
import gc, os, pathlib, signal


def purge(name):
    """Apply a purge to one replica that stands in no log."""
    from headrace_broker.core.queue.command.command import encode_purge, stamp_command
    from headrace_broker.runtime.replica.queue_host import QueueHost
    for host in [each for each in gc.get_objects() if isinstance(each, QueueHost)]:
        if host.queue.name == name and host.machine.ready_count:
            machine = host.machine
            session = next(iter(machine._state.sessions.values()))
            command = encode_purge(session.number, session.control_seq + 1)
            machine.apply(1, stamp_command(machine.now_ms, command))
            assert not machine.ready_count


def forge():
    """Change the catalog of this node."""
    from headrace_broker.runtime.cluster.catalog_service import CatalogService
    for service in [each for each in gc.get_objects() if isinstance(each, CatalogService)]:
        service.catalog._session_epochs["nobody"] = 7


def inject(number, frame):
    order = pathlib.Path(__file__).parent / str(os.getpid())
    name = order.read_text()
    forge() if name == "*" else purge(name)
    order.unlink()


signal.signal(signal.SIGUSR2, inject)
'''


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    place = tmp_path / "injection"
    place.mkdir()
    (place / "sitecustomize.py").write_text(INJECTION)
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(place), *given]))
    with Cluster(tmp_path / "data") as made:
        yield made
        made.close_connections()


def change(cluster: Cluster, name: str, what: str, place: Path) -> None:
    """Change a queue's state on a node, or the catalog's ("*")."""
    pid = cluster.pid(name)
    order = place / "injection" / str(pid)
    order.write_text(what)
    os.kill(pid, signal.SIGUSR2)
    wait_for(f"the state of {what} on {name} to be changed", lambda: not order.exists())


def body(number: int) -> bytes:
    return b"message %04d" % number


def named(cluster: Cluster, name: str, text: str) -> bool:
    """Return whether a node has logged that a replica of its own differs."""
    lines = cluster.log(name).splitlines()
    return any(text in line and "differs from that of a majority" in line for line in lines)


def damages(cluster: Cluster, name: str) -> object:
    """Return what a node says of its damaged replicas."""
    status, rows = cluster.node(name).api.get("/api/nodes")
    assert status == 200, rows
    return next(row["quarantined"] for row in rows if row["name"] == name)


@pytest.mark.parametrize("leads", [True, False])
def test_replica_that_lost_messages_is_rebuilt_with_all_of_them(
    cluster: Cluster, tmp_path: Path, leads: bool
) -> None:
    channel = cluster.connect("n1").channel()
    channel.confirm_delivery()
    channel.queue_declare("tasks", durable=True)
    for number in range(MESSAGES):
        channel.basic_publish("", "tasks", body(number))
    leader = cluster.leader("tasks")
    names = [node.name for node in cluster.local.nodes]
    wrong = leader if leads else next(name for name in names if name != leader)
    change(cluster, wrong, "tasks", tmp_path)
    # so that it is compared soon, whatever was compared before
    channel.basic_publish("", "tasks", body(MESSAGES))
    wait_for(f"{wrong} to be named", lambda: named(cluster, wrong, "group"), WAIT_SECONDS)
    assert not any(named(cluster, name, "group") for name in names if name != wrong)
    wait_for("the replica to vote again", lambda: damages(cluster, wrong) == [], WAIT_SECONDS)
    cluster.close_connections()
    cluster.kill(next(name for name in names if name != wrong))
    survivor = cluster.connect(wrong).channel()
    found: list[bytes] = []
    for _ in range(MESSAGES + 1):
        method, _, received = survivor.basic_get("tasks", auto_ack=True)
        assert method is not None, f"only {len(found)} of {MESSAGES + 1} messages are left"
        found.append(received)
    assert found == [body(number) for number in range(MESSAGES + 1)]
    assert survivor.basic_get("tasks")[0] is None


def test_node_with_another_catalog_restarts_and_takes_that_of_the_others(
    cluster: Cluster, tmp_path: Path
) -> None:
    change(cluster, "n2", "*", tmp_path)
    channel = cluster.connect("n1").channel()
    channel.queue_declare("tasks", durable=True)
    wait_for("n2 to be named", lambda: named(cluster, "n2", "group 0"), WAIT_SECONDS)
    wait_for("n2 to restart", lambda: "restarts to repair" in cluster.log("n2"))
    cluster.local.wait_ready(WAIT_SECONDS)
    assert cluster.queue("tasks", "n2") is not None
    assert cluster.node("n2").process() is not None
