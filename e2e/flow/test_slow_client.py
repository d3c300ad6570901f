"""Clients that stop reading cost a bounded amount of memory, not all of their deliveries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.harness.cluster import Cluster
from e2e.harness.publisher import Publisher
from e2e.harness.raw_client import RawClient
from pamqp import commands

MIB = 1 << 20
BODY_BYTES = 64 << 10
MESSAGES = 4000  # 250 MiB in all
CLIENTS = 4
GROWTH_BYTES_MAX = 125 * MIB  # half of what is published; the bounds add up to far less


@pytest.fixture
def small_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster whose entry caches hold next to nothing, so that they do not hide the rest."""
    monkeypatch.setenv("HEADRACE_LOG_CACHE_BYTES", str(4 * MIB))
    with Cluster(tmp_path / "data") as cluster:
        yield cluster
        cluster.close_connections()


@pytest.mark.parametrize("no_ack", [True, False], ids=["no_ack", "ack"])
def test_clients_that_do_not_read_are_bounded(small_caches: Cluster, no_ack: bool) -> None:
    cluster = small_caches
    unmarked = {"x-high-watermark-bytes": 0}  # confirms go on whatever the queue holds
    cluster.connect("n1").channel().queue_declare("work", durable=True, arguments=unmarked)
    clients = [RawClient(cluster.port("n2")).log_in().open_channel() for _ in range(CLIENTS)]
    for client in clients:
        client.send(commands.Basic.Consume(0, "work", "", False, no_ack), 1)
        client.expect(commands.Basic.ConsumeOk)
    before = {name: cluster.resident_bytes(name) for name in ("n1", "n2")}
    with Publisher([cluster.port("n1")], "work", MESSAGES, BODY_BYTES) as publisher:
        assert publisher.wait_confirmed(MESSAGES, 300), publisher.failure
    grown = {name: cluster.resident_bytes(name) - size for name, size in before.items()}
    for client in clients:
        client.close()
    assert all(growth < GROWTH_BYTES_MAX for growth in grown.values()), grown
