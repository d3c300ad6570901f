"""A lease that is held while the nodes become those of another release."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.lease_driver import LeaseDriver
from e2e.harness.release import HistoryMissingError, install, releases

pytestmark = pytest.mark.full

QUEUE = "q"
MESSAGES = 300
PART = 100
TTL_MS = 3_600_000


@pytest.fixture
def old() -> str:
    """Return the interpreter of the newest release; skip in a clone without its commit."""
    try:
        return str(install(releases()[-1]))
    except HistoryMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def cluster(tmp_path: Path, old: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes of the release."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(sys, "executable", old)  # by which the cluster starts nodes
    with Cluster(tmp_path / "data") as made:
        yield made
        made.close_connections()


def bodies(first: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + PART)]


def replace(
    cluster: Cluster, python: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LeaseDriver]:
    """Kill node after node and start it as another build; give a driver of that node alone."""
    monkeypatch.setattr(sys, "executable", python)
    for node in cluster.local.nodes:
        cluster.kill(node.name)
        cluster.start()
        process = node.process()
        assert process is not None
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        assert arguments[0].decode() == python
        cluster.leader(QUEUE)
        yield LeaseDriver([node.grpc], QUEUE)


def test_lease_outlives_the_roll_to_the_head_and_back(
    cluster: Cluster, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = str(Path(sys.prefix) / "bin" / "python")
    channel = cluster.connect("n1").channel()
    channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
    channel.confirm_delivery()
    for number in range(MESSAGES):
        channel.basic_publish("", QUEUE, b"%d" % number)
    cluster.close_connections()
    epoch = 0
    for lease, python in ((1, new), (2, old)):
        first = (lease - 1) * PART
        with LeaseDriver([cluster.node("n1").grpc], QUEUE) as driver:
            if not epoch:
                epoch = driver.open("once", TTL_MS).epoch
            driver.epoch = epoch
            driver.lease(lease, PART, TTL_MS)
            assert driver.fetch(lease) == bodies(first)
        for other in replace(cluster, python, monkeypatch):
            with other:
                other.epoch = epoch
                assert other.fetch(lease) == bodies(first)
        with LeaseDriver([cluster.node("n3").grpc], QUEUE) as driver:
            driver.epoch = epoch
            driver.settle(lease)

    def left() -> bool:
        entry = cluster.queue(QUEUE)
        return entry is not None and entry["messages"] == MESSAGES - 2 * PART

    wait_for("the rest to be all that is left", left)
