"""Lines about changes of the catalog, of which a node that starts reads the old ones again."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headrace_broker.catalog.event import (
    ClusterVersionRaised,
    ExchangeAdded,
    ExchangeRemoved,
    NodeAdded,
    NodeRemoved,
    QueueAdded,
    QueueChanged,
    QueueRemoved,
    VhostAdded,
    VhostRemoved,
)
from headrace_broker.model.definition import Exchange, Node, Queue, Vhost
from headrace_broker.runtime.cluster.catalog_log import CatalogLog

N1 = Node(1, "n1", "h:1")
N2 = Node(2, "n2", "h:2")
QUEUE = Queue("/", "q", "quorum", 9, (1, 2))
MOVED = Queue("/", "q", "quorum", 9, (2, 3), leaving=(1,), revision=1)


class World:
    """A node that has caught up or not, with one queue in its catalog."""

    def __init__(self) -> None:
        self.caught_up = True
        view: Any = self
        self.log = CatalogLog(view, lambda: self.caught_up)

    def queue_by_group(self, group: int) -> Queue | None:
        return QUEUE if group == QUEUE.group else None


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    caplog.set_level(logging.DEBUG)
    return World()


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.__dict__["event"] for each in caplog.records]


def test_every_change_has_its_event(world: World, caplog: pytest.LogCaptureFixture) -> None:
    exchange = Exchange("/", "x", "topic")
    world.log.on_events(
        [
            NodeAdded(N2),
            QueueAdded(QUEUE),
            QueueChanged(MOVED),
            QueueRemoved(MOVED),
            ExchangeAdded(exchange),
            ExchangeRemoved(exchange),
            VhostAdded(Vhost("v")),
            VhostRemoved(Vhost("v")),
            NodeRemoved(N2),
            ClusterVersionRaised(2),
        ]
    )
    assert events(caplog) == [
        "node_joined",
        "queue_declared",
        "replicas_placed",
        "queue_deleted",
        "exchange_declared",
        "exchange_deleted",
        "vhost_declared",
        "vhost_deleted",
        "node_forgotten",
        "cluster_version_raised",
    ]
    moved = caplog.records[2].__dict__["fields"]
    assert (moved["queue"], moved["members"], moved["leaving"]) == ("q", [2, 3], [1])


def test_what_is_read_again_at_a_start_is_no_news(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.caught_up = False
    world.log.on_events([NodeAdded(N1), QueueAdded(QUEUE), ClusterVersionRaised(2)])
    world.caught_up = True
    world.log.on_events([NodeAdded(Node(1, "n1", "h:1", maintenance=True))])  # it is drained
    assert not caplog.records
    world.log.on_events([NodeRemoved(N1), NodeAdded(N1)])
    assert events(caplog) == ["node_forgotten", "node_joined"]


def test_groups_are_called_by_their_queue(world: World) -> None:
    assert world.log.labels(9) == {"queue": "q", "vhost": "/"}
    assert world.log.labels(0) == {}


def test_replicas_that_move_are_told_without_debug(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.log.on_events([QueueAdded(QUEUE), QueueChanged(MOVED), QueueRemoved(MOVED)])
    assert events(caplog) == ["replicas_placed"]
