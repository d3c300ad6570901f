"""Groups that lease messages: drivers that fence each other, leases that expire, dying leaders."""

from __future__ import annotations

import contextlib

import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.lease_driver import LeaseDriver
from e2e.harness.node_driver import RefusedError

from headrace_broker.cli.session.api_client import ApiError

TTL_MS = 60_000
SHORTEST_MS = 1_000  # the shortest time that a lease may have


def fill(cluster: Cluster, queue: str, count: int) -> None:
    """Publish messages 0 to `count` - 1, confirmed, to a replicated queue that n1 leads."""
    connection = cluster.connect("n1")
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.tx_select()
    for number in range(count):
        channel.basic_publish("", queue, b"%d" % number)
        if number % 1000 == 999:
            channel.tx_commit()
    channel.tx_commit()
    connection.close()


def driver(cluster: Cluster, queue: str, *names: str) -> LeaseDriver:
    """A driver that talks to these nodes."""
    return LeaseDriver([cluster.node(name).grpc for name in names], queue)


def counts(cluster: Cluster, queue: str) -> tuple[int, int] | None:
    """Messages ready and unacknowledged, as the queue's leader says; None for no answer."""
    with contextlib.suppress(ApiError):
        entry = cluster.queue(queue, cluster.leader(queue))
        if entry is not None:
            return entry["messages_ready"], entry["messages_unacknowledged"]
    return None


def test_of_two_drivers_the_later_one_goes_on_where_the_first_was(
    shared_cluster: Cluster, queue_name
) -> None:
    queue = queue_name("work")
    fill(shared_cluster, queue, 300)
    with (
        driver(shared_cluster, queue, "n2") as first,
        driver(shared_cluster, queue, "n3") as second,
    ):
        assert first.open("first", TTL_MS).epoch == 1
        assert first.lease(1, 200, TTL_MS).messages == 200
        before = first.fetch(1)
        assert len(set(before)) == 200
        group = second.open("second", TTL_MS)
        assert (group.epoch, group.next_lease) == (2, 2)
        for attempt in (
            lambda: first.lease(2, 100, TTL_MS),
            lambda: first.fetch(1),
            lambda: first.settle(1),
        ):
            with pytest.raises(RefusedError, match="FENCED"):
                attempt()
        wait_for("both counts", lambda: counts(shared_cluster, queue) == (100, 200))
        assert second.fetch(1) == before
        assert second.lease(2, 200, TTL_MS).messages == 100
        rest = second.fetch(2)
        settled = second.settle(2)
        assert (settled.messages, settled.expired) == (300, False)
        assert sorted(before + rest, key=int) == [b"%d" % number for number in range(300)]
    wait_for("an empty queue", lambda: counts(shared_cluster, queue) == (0, 0))


def test_lease_that_expires_gives_its_messages_back_and_the_log_says_so(
    shared_cluster: Cluster, queue_name
) -> None:
    queue = queue_name("work")
    fill(shared_cluster, queue, 100)
    with driver(shared_cluster, queue, "n2") as reader:
        reader.open("reader", TTL_MS)
        assert reader.lease(1, 60, SHORTEST_MS).messages == 60
        wait_for("messages to come back", lambda: counts(shared_cluster, queue) == (100, 0))
        line = f"lease 1 of group 'job' on queue '{queue}' in vhost '/' has expired"
        assert line in shared_cluster.log(shared_cluster.leader(queue))
        with pytest.raises(RefusedError, match="EXPIRED"):
            reader.fetch(1)
        assert reader.lease(2, 100, TTL_MS).messages == 100
        assert sorted(reader.fetch(2), key=int) == [b"%d" % number for number in range(100)]
        settled = reader.settle(2)
        assert (settled.messages, settled.expired) == (100, True)
        [gone] = settled.gone
        assert (gone.lease, gone.messages) == (1, 60)
        assert [(ids.first, ids.last) for ids in gone.message_ids] == [(1, 60)]
    wait_for("an empty queue", lambda: counts(shared_cluster, queue) == (0, 0))


@pytest.mark.parametrize("count", [6_000, pytest.param(60_000, marks=pytest.mark.full)])
def test_leader_killed_between_lease_and_settle_loses_nothing_and_leaves_nothing_leased(
    cluster: Cluster, count: int
) -> None:
    fill(cluster, "work", count)
    read: list[bytes] = []
    with driver(cluster, "work", "n1", "n2", "n3") as reader:
        reader.open("reader", TTL_MS)
        number = 0
        while len(read) < count:
            number += 1
            leased = reader.lease(number, count // 4, TTL_MS)
            assert leased.messages > 0
            if number <= 3:
                cluster.kill(cluster.leader("work"))
            bodies = reader.fetch(number)
            assert len(bodies) == leased.messages
            if number <= 3:
                cluster.start()
            if number == 2:  # the job dies as well, and comes back under another epoch
                group = reader.open("reader, again", TTL_MS)
                assert [lease.lease for lease in group.leases] == [2]
                assert reader.fetch(2) == bodies
            settled = reader.settle(number)
            assert (settled.messages, settled.expired) == (leased.messages, False)
            read += bodies
        assert reader.lease(number + 1, 1, TTL_MS).messages == 0
    assert sorted(read, key=int) == [b"%d" % number for number in range(count)]
    wait_for("an empty queue", lambda: counts(cluster, "work") == (0, 0))
