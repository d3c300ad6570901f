"""The clients of a run."""

from __future__ import annotations

from collections import Counter
from typing import Final

from e2e.chaos.catalog_client import CatalogClient, Names
from e2e.chaos.client import ChaosWorker
from e2e.chaos.cluster import ChaosNode
from e2e.chaos.consumer import ChaosConsumer
from e2e.chaos.history import History
from e2e.chaos.publisher import DELAYED_QUEUE, LETTERS_QUEUE, ChaosPublisher

PUBLISHERS: Final = 3
LATE_QUEUES: Final = [DELAYED_QUEUE, LETTERS_QUEUE]
LATE_INTERVAL: Final = 0.05  # seconds
CONSUMERS_PER_QUEUE: Final = 2
CATALOG_CLIENTS_PER_NODE: Final = 2
NAME_SECONDS: Final = 3.0
SEEDS_PER_RUN: Final = 1000  # more than there are clients


class Crew:
    """Publishers, consumers and catalog clients, not started yet.

    Attributes:
        producers: publishers and catalog clients.
        consumers: of every queue some.

    Args:
        interval: seconds between two messages of a publisher.
    """

    def __init__(
        self,
        nodes: list[ChaosNode],
        queues: list[str],
        history: History,
        seed: int,
        interval: float,
    ) -> None:
        seeds = iter(range(seed * SEEDS_PER_RUN, (seed + 1) * SEEDS_PER_RUN))
        self.consumers = [
            ChaosConsumer(f"consumer-{queue}-{n}", nodes, queue, history, next(seeds))
            for queue in queues
            for n in range(CONSUMERS_PER_QUEUE)
        ]
        names = Names(NAME_SECONDS)
        self.producers: list[ChaosWorker] = [
            *(
                ChaosPublisher(f"publisher-{n}", nodes, queues, history, next(seeds), interval)
                for n in range(PUBLISHERS)
            ),
            ChaosPublisher("late", nodes, LATE_QUEUES, history, next(seeds), LATE_INTERVAL),
            *(
                CatalogClient(f"catalog-{node.name}-{n}", node, names, history, next(seeds))
                for node in nodes
                for n in range(CATALOG_CLIENTS_PER_NODE)
            ),
        ]

    def raise_failures(self) -> None:
        """Raise what ended a client that should still work: a mistake in it, or a wild answer."""
        for worker in [*self.producers, *self.consumers]:
            if worker.failure is not None:
                text = f"{worker.name} failed: {worker.failure!r}"
                raise AssertionError(text) from worker.failure

    def errors(self) -> list[str]:
        """Return how often connections broke in which way."""
        counts: Counter[str] = Counter()
        for worker in [*self.producers, *self.consumers]:
            for text, count in worker.errors.items():
                counts[f"{worker.name.partition('-')[0]}: {text}"] += count
        return [f"{count} x {text}" for text, count in sorted(counts.items())]
