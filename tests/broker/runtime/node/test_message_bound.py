"""Largest message that clients may publish: bounds of all nodes, and of memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.cluster_version import CLUSTER_VERSION
from headrace_broker.catalog.command import encode_request
from headrace_broker.catalog.event import ClusterVersionRaised, NodeAdded
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request
from headrace_broker.model.client_limits import ClientLimits
from headrace_broker.model.definition import Node, User
from headrace_broker.runtime.node.message_bound import Bounded, MessageBound

ONE, TWO = (Node(number, f"n{number}", f"h:{number}") for number in (1, 2))


class World:
    """Node 1 of several, as far as it bounds the messages of its clients."""

    def __init__(self, configured: int, memory: int, zone: str = "") -> None:
        self.catalog = Catalog()
        guest = User("guest", b"s", b"h")
        self.do(commands.Bootstrap((ONE, TWO), "/", guest, grant=True))
        self.limits = ClientLimits(message_bytes_max=configured)
        self.listeners: list[Any] = []
        self.watchers: list[Any] = []
        self.announced: list[int] = []
        self.zones: list[str] = []  # that were announced
        self.changes = 0
        self.memory = SimpleNamespace(limit=memory)
        config: Any = SimpleNamespace(
            node=SimpleNamespace(id=1, name="n1", zone=zone),
            address="h:1",
            limits=SimpleNamespace(message_bytes_max=configured),
        )
        service: Any = SimpleNamespace(
            catalog=self.catalog, subscribe=self.listeners.append, announce=self._announce
        )
        settings: Any = SimpleNamespace(watch=self.watchers.append)
        known: list[Any] = [config, 7, service, self.memory, settings, self.limits]
        bounded = Bounded._make([*known, lambda: True, self._changed])
        self.bound = MessageBound(bounded)
        self.bound.start()

    def do(self, command: Any) -> None:
        index = self.catalog.applied_index + 1
        self.catalog.apply(index, encode_request(Request(1, 1, index), command))

    def _announce(self, command: commands.AnnounceNode) -> None:
        self.announced.append(command.message_bytes_max)
        self.zones.append(command.zone)

    def _changed(self) -> None:
        self.changes += 1

    def other_says(self, byte_count: int) -> None:
        self.do(commands.AnnounceNode(2, 1, message_bytes_max=byte_count))
        two = self.catalog.node(2)
        assert two is not None
        [listener] = self.listeners
        listener([NodeAdded(two)])


def test_clients_may_send_what_all_nodes_take() -> None:
    here = World(512 << 20, 16 << 30)
    assert here.limits.message_bytes_max == 31 << 20, "node 2 has said nothing"
    here.other_says(128 << 20)
    assert here.limits.message_bytes_max == 128 << 20
    assert here.limits.too_large(1 << 28) == (
        "message size 268435456 is larger than configured max size 134217728: node 'n2' takes no "
        "more (limits.message_bytes_max and memory there)"
    )
    here.other_says(512 << 20)
    assert here.limits.too_large(1 << 30) == (
        "message size 1073741824 is larger than configured max size 536870912"
    )
    assert here.announced == [512 << 20]
    assert here.changes == 3


def test_a_zone_is_announced_once_the_cluster_uses_zones() -> None:
    here = World(31 << 20, 0, zone="east")
    assert here.bound.announcement().zone == ""
    here.do(commands.RaiseClusterVersion(CLUSTER_VERSION))
    [listener] = here.listeners
    listener([ClusterVersionRaised(CLUSTER_VERSION)])
    assert here.zones[-1] == "east"


def test_memory_that_does_not_hold_the_largest_message_bounds_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = World(512 << 20, 500 << 20)
    here.other_says(512 << 20)
    assert here.limits.message_bytes_max == 100 << 20
    assert "limits.memory_high_watermark" in here.limits.too_large(101 << 20)
    [warned] = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warned.startswith("limits.message_bytes_max is 536870912: such a message needs 5 times")
    assert "limits.memory_high_watermark, which is 524288000 bytes here" in warned
    here.memory.limit = 16 << 30
    [watcher] = here.watchers
    watcher()
    assert here.limits.message_bytes_max == 512 << 20
    assert here.announced == [100 << 20, 512 << 20]


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_what_every_node_takes_is_not_bounded_by_memory(memory: int) -> None:
    assert World(31 << 20, memory).limits.message_bytes_max == 31 << 20


def test_memory_that_is_not_known_bounds_nothing() -> None:
    here = World(512 << 20, 0)
    here.other_says(512 << 20)
    assert here.limits.message_bytes_max == 512 << 20
