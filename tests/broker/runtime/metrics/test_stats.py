"""Counters of a real node over time agree with the content of its queues."""

from __future__ import annotations

import asyncio
from typing import Any

from pamqp.commands import Basic as frame_properties  # noqa: N813 - a namespace of classes

from headrace_broker.catalog.command import DeclareQueue, DeleteQueue
from headrace_broker.catalog.machine import Catalog
from headrace_broker.config.configuration import Config
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import DAMAGES_MAX
from headrace_broker.model.stats import (
    LATER,
    NODE_FIGURES,
    QUEUE_FIGURES,
    VHOST_FIGURES,
    NodeStats,
    QueueStats,
    Samples,
    VhostStats,
)
from headrace_broker.model.status import DamageStatus, ReplicaStatus
from headrace_broker.runtime.inspect.publish_service import PublishService
from headrace_broker.runtime.metrics.source import NodeMetrics
from headrace_broker.runtime.metrics.stats import StatsBook, damage_rows
from headrace_broker.runtime.node.node import BrokerNode
from headrace_broker.runtime.rpc.question import Stats

PLAIN = b"\x00\x00"
DELAYED: bytes = frame_properties.Properties(headers={"x-delay": 3_600_000}).marshal()
LENGTHS = ("messages_ready", "messages_unacknowledged", LATER)


def held(figures: tuple[str, ...], last: Samples) -> tuple[int, ...]:
    return tuple(last[-1][figures.index(name) + 1] for name in LENGTHS)


async def publish(node: BrokerNode, queue: str, properties: bytes) -> None:
    route = b"\x00" + bytes([len(queue)]) + queue.encode()
    assert await PublishService(node.broker).publish("/", route, properties, b"x", "guest")


def test_delayed_messages_count_in_queues_vhosts_nodes_and_metrics(config: Config) -> None:
    async def work() -> None:
        node = BrokerNode(config, lambda error: None)
        await node.start()
        try:
            await node.join()
            for queue in ("a", "b"):
                await node.catalog.submit(DeclareQueue("/", queue, "quorum", durable=True))
                await publish(node, queue, DELAYED)
            await publish(node, "a", DELAYED)
            await publish(node, "b", PLAIN)
            book = StatsBook(node)
            await book.sample()
            rows = list(book.rows(Stats(node=True, groups=None, vhosts=True)))
            queues = [held(QUEUE_FIGURES, row.last) for row in rows if isinstance(row, QueueStats)]
            assert sorted(queues) == [(0, 0, 2), (1, 0, 1)]
            [vhost] = [row for row in rows if isinstance(row, VhostStats)]
            assert held(VHOST_FIGURES, vhost.last) == (1, 0, 3)
            [own] = [row for row in rows if isinstance(row, NodeStats)]
            assert held(NODE_FIGURES, own.last) == (1, 0, 3)
            assert (own.messages_ready, own.messages_later) == (1, 3)
            counts = {each.name: each.value for each in NodeMetrics(node, book).samples()}
            assert (counts["queue_messages_ready"], counts["queue_messages_delayed"]) == (1, 3)
        finally:
            await node.stop()

    asyncio.run(work())


def test_later_samples_of_a_node_know_what_moved_since_and_what_is_gone(config: Config) -> None:
    async def work() -> None:
        node = BrokerNode(config, lambda error: None)
        await node.start()
        try:
            await node.join()
            book = StatsBook(node)
            await book.sample()
            for queue in ("a", "b"):
                await node.catalog.submit(DeclareQueue("/", queue, "quorum", durable=True))
                await publish(node, queue, PLAIN)
            await book.sample()
            assert lengths_of(book) == (2, 0, 0)
            await book.sample()
            assert lengths_of(book) == (2, 0, 0), "messages that stand in queues go on to count"
            await publish(node, "b", PLAIN)
            await book.sample()
            assert lengths_of(book) == (3, 0, 0)
            node.rates.sample()
            groups = {each.name: each.group for each in node.catalog.catalog.queues()}
            assert {name: node.rates.moves(group) for name, group in groups.items()} == {
                "a": True,
                "b": True,
            }
            await node.catalog.submit(DeleteQueue("/", "b"))
            await book.sample()
            assert lengths_of(book) == (1, 0, 0)
            node.rates.sample()
            assert not node.rates.moves(groups["b"])
        finally:
            await node.stop()

    def lengths_of(book: StatsBook) -> tuple[int, ...]:
        rows = list(book.rows(Stats(node=True, groups=None, vhosts=True)))
        [vhost] = [held(VHOST_FIGURES, row.last) for row in rows if isinstance(row, VhostStats)]
        [own] = [held(NODE_FIGURES, row.last) for row in rows if isinstance(row, NodeStats)]
        assert own == vhost
        return own

    asyncio.run(work())


def test_queues_are_told_as_they_are_now_where_that_is_wanted_moved_or_not(config: Config) -> None:
    async def work() -> None:
        node = BrokerNode(config, lambda error: None)
        await node.start()
        try:
            await node.join()
            groups = {}
            for name, kind in (("a", "quorum"), ("b", "quorum"), ("c", "quorum"), ("d", "classic")):
                command = DeclareQueue("/", name, kind, durable=kind == "quorum")
                declared: Any = await node.catalog.submit(command)
                groups[name] = declared.value.group
            for name in ("b", "b", "c"):
                await publish(node, name, PLAIN)
            book = StatsBook(node)
            await book.sample()
            node.hosting.hosts[groups["c"]].serving = False
            wanted = tuple(groups[name] for name in ("a", "b", "c", "d"))
            found: list[Any] = list(book.rows(Stats(current=wanted)))
            rows = {each.group: each for each in found}
            assert list(rows) == [groups[name] for name in ("a", "b", "d")]
            for name, ready, members in (("a", 0, 1), ("b", 2, 1), ("d", 0, 0)):
                row = rows[groups[name]]
                assert (row.leader, row.counts.ready, len(row.replicas)) == ("n1", ready, members)
            assert rows[groups["b"]].replicas == (ReplicaStatus("n1", "1", "voter"),)
            assert [bool(row.last) for row in rows.values()] == [False, True, False]
            [moved] = [
                each for each in book.rows(Stats(groups=None)) if isinstance(each, QueueStats)
            ]
            assert (moved.group, moved.counts, moved.leader) == (groups["b"], None, "")
        finally:
            await node.stop()

    asyncio.run(work())


def test_queues_that_were_there_at_the_start_of_a_node_are_not_counted_as_created(
    config: Config,
) -> None:
    async def run(*commands: DeclareQueue | DeleteQueue) -> tuple[int, int]:
        node = BrokerNode(config, lambda error: None)
        await node.start()
        try:
            StatsBook(node)
            await node.join()
            for command in commands:
                await node.catalog.submit(command)
            return node.broker.churn.queue_created, node.broker.churn.queue_deleted
        finally:
            await node.stop()

    async def work() -> None:
        declares = [DeclareQueue("/", name, "quorum", durable=True) for name in ("a", "b")]
        assert await run(*declares, DeleteQueue("/", "b")) == (2, 1)
        assert await run() == (0, 0)
        assert await run(DeclareQueue("/", "c", "quorum", durable=True)) == (1, 0)

    asyncio.run(work())


def test_damaged_replicas_are_named_and_beyond_a_number_counted() -> None:
    catalog = Catalog()
    catalog.put_queue(Queue("/", "q", "quorum", 7, (1,)))
    assert damage_rows({99: "lost", 7: "byte 7", 0: "byte 3"}, catalog) == (
        DamageStatus("the catalog", "byte 3"),
        DamageStatus("queue 'q' in vhost '/'", "byte 7"),
        DamageStatus("group 99", "lost"),
    )
    many = damage_rows(dict.fromkeys(range(1000, 1000 + DAMAGES_MAX + 7), "lost"), catalog)
    assert len(many) == DAMAGES_MAX + 1
    assert many[-1] == DamageStatus("7 more", "")
