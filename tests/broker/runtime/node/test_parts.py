"""A node's part in a second cluster, and in a catalog without a leader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import encode_request
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request
from headrace_broker.model.definition import (
    Binding,
    Exchange,
    Node,
    Permission,
    TopicPermission,
    User,
)
from headrace_broker.runtime.node.parts import is_untouched, meet_rival

ONE, TWO = (Node(number, f"n{number}", f"h:{number}") for number in (1, 2))


class World:
    """Node 1, which has founded a cluster alone."""

    def __init__(self, *nodes: Node) -> None:
        self.catalog = Catalog()
        self.caught_up = True
        self.asides: list[str] = []
        self.contests: list[str] = []
        guest = User("guest", b"s", b"h")
        self.do(commands.Bootstrap(nodes or (ONE,), "/", guest, grant=True))

    def do(self, command: Any) -> None:
        index = self.catalog.applied_index + 1
        self.catalog.apply(index, encode_request(Request(1, 1, index), command))

    def meet_rival(self) -> None:
        node: Any = SimpleNamespace(
            caught_up=lambda: self.caught_up,
            catalog=SimpleNamespace(catalog=self.catalog),
            raft=SimpleNamespace(set_aside=self.asides.append),
            maintenance=SimpleNamespace(contest=self.contests.append),
        )
        meet_rival(node, "founded twice")


def test_second_cluster_that_holds_nothing_is_set_aside() -> None:
    world = World()
    world.meet_rival()
    assert world.contests == []
    assert len(world.asides) == 1
    assert world.asides[0].startswith("founded twice. Nothing was stored here since")


@pytest.mark.parametrize(
    "command",
    [
        commands.DeclareQueue("/", "q", "quorum", replicas=1),
        commands.PutUser(User("ann", b"s", b"h")),
        commands.DeclareVhost("other"),
        commands.DeclareExchange(Exchange("/", "x", "direct")),
        commands.Bind(Binding("/", "amq.direct", "exchange", "amq.fanout", "k")),
        commands.PutPermission(Permission("guest", "/", "", "", ".*")),
        commands.PutTopicPermission(TopicPermission("guest", "/", "amq.topic", "", ".*")),
        commands.SetVhostLimits("/", {"max-queues": 5}),
        commands.SetUserLimits("guest", {"max-connections": 5}),
    ],
)
def test_second_cluster_that_holds_anything_waits_for_a_hand(command: Any) -> None:
    world = World()
    world.do(command)
    assert not is_untouched(world.catalog)
    world.meet_rival()
    assert (world.asides, world.contests) == ([], ["founded twice"])


def test_second_cluster_of_several_nodes_or_not_known_yet_waits_for_a_hand() -> None:
    several = World(ONE, TWO)
    several.meet_rival()
    assert (several.asides, several.contests) == ([], ["founded twice"])
    early = World()
    early.caught_up = False
    early.meet_rival()
    assert (early.asides, early.contests) == ([], ["founded twice"])
