"""Arguments of queues, exchanges and consumers: wrong ones are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pika
import pytest
from e2e.harness.cluster import Cluster
from pika.adapters.blocking_connection import BlockingChannel

Name = Callable[[str], str]
Table = dict[str, Any]

WRONG_TYPES: tuple[Any, ...] = (
    None,
    [],
    {},
    b"\xff",
    Decimal("1.5"),
    datetime(2026, 1, 1, tzinfo=UTC),
)  # of arguments that have another one
NUMBERS = (
    *("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-delivery-limit"),
    *("x-consumer-timeout", "x-max-priority", "x-quorum-initial-group-size"),
    *("x-quorum-target-group-size", "x-delayed-retry-min", "x-delayed-retry-max"),
    *("x-deduplication-size", "x-deduplication-ttl", "x-queue-version"),
    *("x-max-in-memory-length", "x-max-in-memory-bytes"),
)
TEXTS = (
    *("x-queue-type", "x-overflow", "x-dead-letter-exchange", "x-dead-letter-routing-key"),
    *("x-dead-letter-strategy", "x-delayed-retry-type", "x-queue-leader-locator"),
    *("x-queue-master-locator", "x-queue-mode", "x-last-value-key", "x-group-key"),
    "x-fairness-key",
)
FLAGS = ("x-single-active-consumer", "x-message-deduplication")
CLASSIC_ONLY: Table = {
    "x-max-priority": 5,
    "x-queue-mode": "lazy",
    "x-queue-version": 2,
    "x-queue-master-locator": "random",
}
QUORUM_ONLY: Table = {
    "x-delivery-limit": 5,
    "x-dead-letter-strategy": "at-least-once",
    "x-delayed-retry-type": "all",
    "x-delayed-retry-min": 1,
    "x-delayed-retry-max": 2,
    "x-quorum-initial-group-size": 3,
    "x-quorum-target-group-size": 3,
    "x-max-in-memory-length": 1,
    "x-max-in-memory-bytes": 1,
}
UNKNOWN: Table = {"x-no-such-thing": 1, "message-ttl": "soon"}
QUEUES: tuple[tuple[str, Table], ...] = (
    *((name, {name: "7"}) for name in NUMBERS),
    *((name, {name: True}) for name in NUMBERS),
    *((name, {name: -(1 << 40)}) for name in NUMBERS),
    *((name, {name: 7}) for name in TEXTS),
    *((name, {name: "true"}) for name in FLAGS),
    *((name, {name: 1}) for name in FLAGS),
    *((name, {name: wrong}) for name in (*NUMBERS, *TEXTS, *FLAGS) for wrong in WRONG_TYPES),
    *((name, {name: value, "x-queue-type": "quorum"}) for name, value in CLASSIC_ONLY.items()),
    *((name, {name: value, "x-queue-type": "classic"}) for name, value in QUORUM_ONLY.items()),
    *(
        (name, {name: "nonsense"})
        for name in TEXTS
        if name
        not in (
            "x-dead-letter-exchange",
            "x-dead-letter-routing-key",
            "x-last-value-key",
            "x-group-key",
            "x-fairness-key",
        )
    ),
    ("x-dead-letter-routing-key", {"x-dead-letter-routing-key": "k"}),
    ("x-delayed-retry-type", {"x-delayed-retry-type": "all"}),
    ("x-last-value-key", {"x-last-value-key": "a", "x-group-key": "b"}),
    ("x-fairness-key", {"x-fairness-key": "a", "x-group-key": "b"}),
    ("x-fairness-key", {"x-fairness-key": "a", "x-last-value-key": "b"}),
)
EXCHANGES: tuple[tuple[str, str, Table], ...] = (
    *(
        ("alternate-exchange", "topic", {"alternate-exchange": wrong})
        for wrong in (1, *WRONG_TYPES)
    ),
    *(("hash-header", "x-consistent-hash", {"hash-header": wrong}) for wrong in (1, *WRONG_TYPES)),
    *(
        ("hash-property", "x-consistent-hash", {"hash-property": wrong})
        for wrong in (1, *WRONG_TYPES)
    ),
    ("hash-header", "direct", {"hash-header": "h"}),
    ("x-delayed-type", "direct", {"x-delayed-type": "direct"}),
    *(
        ("x-delayed-type", "x-delayed-message", {"x-delayed-type": wrong})
        for wrong in ("none", "x-delayed-message", 1, *WRONG_TYPES)
    ),
)
CONSUMERS: tuple[tuple[str, Table], ...] = (
    *(
        (name, {name: wrong})
        for name in ("x-priority", "x-consumer-timeout", "x-prefetch-bytes")
        for wrong in ("1", True, 1 << 60, *WRONG_TYPES)
    ),
    ("x-prefetch-bytes", {"x-prefetch-bytes": -1}),
    *(("x-filter", {"x-filter": wrong}) for wrong in (1, "a =", *WRONG_TYPES) if wrong != {}),
    *(("x-cancel-on-ha-failover", {"x-cancel-on-ha-failover": wrong}) for wrong in (1, "true")),
)


class Refusals:
    """Does one thing after the other, each on a channel of its own."""

    def __init__(self, connection: pika.BlockingConnection) -> None:
        self._connection = connection

    def of(self, action: Callable[[BlockingChannel], object]) -> tuple[int, str]:
        """Return how an action is refused, (0, "") when it is not."""
        channel = self._connection.channel()
        try:
            action(channel)
        except pika.exceptions.ChannelClosedByBroker as closed:
            return closed.reply_code, closed.reply_text
        channel.close()
        return 0, ""


@pytest.fixture
def refusals(shared_cluster: Cluster) -> Refusals:
    return Refusals(shared_cluster.connect("n1"))


def test_wrong_arguments_of_queues_are_refused_by_name(
    refusals: Refusals, queue_name: Name
) -> None:
    queue = queue_name("q")
    for name, arguments in QUEUES:
        code, text = refusals.of(
            partial(BlockingChannel.queue_declare, queue=queue, durable=True, arguments=arguments)
        )
        assert (code, f"'{name}'" in text) == (406, True), (arguments, code, text)
    assert refusals.of(lambda channel: channel.queue_declare(queue, passive=True))[0] == 404


def test_wrong_arguments_of_exchanges_are_refused_by_name(
    refusals: Refusals, queue_name: Name
) -> None:
    exchange = queue_name("x")
    for name, kind, arguments in EXCHANGES:
        code, text = refusals.of(
            partial(
                BlockingChannel.exchange_declare,
                exchange=exchange,
                exchange_type=kind,
                arguments=arguments,
            )
        )
        assert (code, f"'{name}'" in text) == (406, True), (kind, arguments, code, text)
    assert refusals.of(lambda channel: channel.exchange_declare(exchange, passive=True))[0] == 404


def test_wrong_arguments_of_consumers_are_refused_by_name(
    shared_cluster: Cluster, refusals: Refusals, queue_name: Name
) -> None:
    queue = queue_name("q")
    channel = shared_cluster.connect("n1").channel()
    channel.queue_declare(queue, durable=True)
    for name, arguments in CONSUMERS:
        code, text = refusals.of(
            partial(
                BlockingChannel.basic_consume,
                queue=queue,
                on_message_callback=lambda *_: None,
                arguments=arguments,
            )
        )
        assert (code, f"'{name}'" in text) == (406, True), (arguments, code, text)
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 0


def test_unknown_arguments_are_taken_and_named(
    shared_cluster: Cluster, refusals: Refusals, queue_name: Name
) -> None:
    name = queue_name("q")
    channel = shared_cluster.connect("n1").channel()
    channel.queue_declare(name, durable=True, arguments=UNKNOWN)
    channel.queue_declare(name, durable=True, arguments=UNKNOWN)
    row = shared_cluster.queue(name)
    assert row is not None
    assert sorted(row["unknown_arguments"]) == sorted(UNKNOWN)
    other = UNKNOWN | {"x-no-such-thing": 2}
    code, text = refusals.of(
        partial(BlockingChannel.queue_declare, queue=name, durable=True, arguments=other)
    )
    assert (code, "'x-no-such-thing'" in text) == (406, True)
    for kind in ("direct", "fanout", "topic", "headers", "x-consistent-hash"):
        channel.exchange_declare(queue_name(kind), kind, arguments=UNKNOWN)
        channel.exchange_declare(queue_name(kind), passive=True)
        channel.exchange_delete(queue_name(kind))
    channel.basic_consume(name, lambda *_: None, arguments=UNKNOWN)
    assert channel.queue_declare(name, passive=True).method.consumer_count == 1
