"""Nodes die; nothing confirmed is lost, nothing arrives twice unflagged, order is kept."""

from __future__ import annotations

import pytest
from e2e.harness.cluster import Cluster
from e2e.harness.consumer import Consumer
from e2e.harness.publisher import Publisher
from e2e.harness.raw_client import RawClient
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

BODY_BYTES = 1024
LARGE_BYTES = 8 << 20
WAIT_SECONDS = 300.0


def declare(cluster: Cluster, name: str, queue: str) -> None:
    """Declare a replicated queue through one node, which thereby leads it at first."""
    connection = cluster.connect(name)
    connection.channel().queue_declare(queue, durable=True)
    connection.close()


def check_no_unflagged_duplicate(seen: list[tuple[int, bool]]) -> None:
    """Each number arrives once without the redelivered flag, at most."""
    first_times = [number for number, redelivered in seen if not redelivered]
    assert len(first_times) == len(set(first_times))


def check_order(seen: list[tuple[int, bool]]) -> None:
    """Deliveries without the flag come in the order in which they were published."""
    first_times = [number for number, redelivered in seen if not redelivered]
    assert first_times == sorted(first_times)


@pytest.mark.parametrize(
    "count", [10_000, pytest.param(100_000, marks=pytest.mark.full)], ids=["10k", "100k"]
)
def test_leader_killed_twice_loses_nothing_confirmed(cluster: Cluster, count: int) -> None:
    declare(cluster, "n1", "work")
    assert cluster.leader("work") == "n1"
    publisher = Publisher([cluster.port("n2"), cluster.port("n3")], "work", count, BODY_BYTES)
    consumer = Consumer([cluster.port("n3"), cluster.port("n2")], "work")
    with publisher, consumer:
        for kill in (1, 2):
            assert publisher.wait_confirmed(count * kill // 4, WAIT_SECONDS), publisher.failure
            cluster.kill(cluster.leader("work"))
            assert publisher.wait_confirmed(count * kill // 4 + count // 8, WAIT_SECONDS)
            cluster.start()
        assert publisher.wait_confirmed(count, WAIT_SECONDS), publisher.failure
        publisher.join(WAIT_SECONDS)
        missing = consumer.wait_all(publisher.confirmed, WAIT_SECONDS)
    assert consumer.failure is None
    assert not publisher.rejected
    assert not missing, f"{len(missing)} confirmed messages did not arrive"
    check_no_unflagged_duplicate(consumer.seen)
    check_order(consumer.seen)


def test_power_cut_in_mid_publish_loses_nothing_confirmed(cluster: Cluster) -> None:
    declare(cluster, "n2", "work")
    with Publisher(cluster.ports, "work", 1_000_000, BODY_BYTES) as publisher:
        assert publisher.wait_confirmed(5_000, WAIT_SECONDS), publisher.failure
        cluster.kill("n1", "n2", "n3")
    assert publisher.failure is None
    cluster.start()
    with Consumer(cluster.ports, "work") as consumer:
        missing = consumer.wait_all(publisher.confirmed, WAIT_SECONDS)
    assert consumer.failure is None
    assert not missing, f"{len(missing)} confirmed messages did not survive"
    check_no_unflagged_duplicate(consumer.seen)
    check_order(consumer.seen)


def test_power_cut_between_slices_of_large_messages_loses_nothing_confirmed(
    cluster: Cluster,
) -> None:
    """Records of 8 MiB are written in slices, between which those of the small ones are."""
    for queue in ("large", "small"):
        declare(cluster, "n1", queue)
    large = Publisher(cluster.ports, "large", 1_000, LARGE_BYTES, window=3)
    small = Publisher(cluster.ports, "small", 1_000_000, BODY_BYTES)
    with large, small:
        assert large.wait_confirmed(6, WAIT_SECONDS), large.failure
        assert small.wait_confirmed(500, WAIT_SECONDS), small.failure
        cluster.kill("n1", "n2", "n3")
    assert (large.failure, small.failure) == (None, None)
    cluster.start()
    for queue, publisher in (("large", large), ("small", small)):
        with Consumer(cluster.ports, queue) as consumer:
            missing = consumer.wait_all(publisher.confirmed, WAIT_SECONDS)
        assert consumer.failure is None
        assert not missing, f"{len(missing)} confirmed messages of {queue} did not survive"
        check_no_unflagged_duplicate(consumer.seen)
        check_order(consumer.seen)


def test_unacknowledged_messages_of_a_dead_gateway_come_back_in_place(cluster: Cluster) -> None:
    declare(cluster, "n1", "work")
    taking = RawClient(cluster.port("n2")).log_in().open_channel()
    publishing = cluster.connect("n1").channel()
    publishing.confirm_delivery()
    for number in range(6):
        publishing.basic_publish("", "work", str(number).encode())
    taking.send(commands.Basic.Qos(0, 3, False), 1)
    taking.expect(commands.Basic.QosOk)
    taking.send(commands.Basic.Consume(0, "work"), 1)
    taking.expect(commands.Basic.ConsumeOk)
    for number in range(3):
        assert taking.expect(commands.Basic.Deliver).redelivered is False
        taking.expect(ContentHeader)
        assert taking.expect(ContentBody).value == str(number).encode()
    cluster.kill("n2")
    taking.close()
    again = cluster.connect("n3").channel()
    got: list[tuple[int, bool]] = []
    for method, _, body in again.consume("work", inactivity_timeout=30):
        assert method is not None, f"nothing came after {got}"
        got.append((int(body), method.redelivered))
        again.basic_ack(method.delivery_tag)
        if len(got) == 6:
            break
    assert sorted(got) == [(0, True), (1, True), (2, True), (3, False), (4, False), (5, False)]
    returned = [number for number, redelivered in got if redelivered]
    assert returned == [0, 1, 2]
    cluster.start()
