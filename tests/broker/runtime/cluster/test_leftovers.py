"""Data of queues that were deleted while their node was away."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.raftlog.node.inside import snapshot_now

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import encode_request
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.result import Ok
from headrace_broker.config.configuration import Config
from headrace_broker.model.definition import Node, User
from headrace_broker.model.limits import LEFTOVERS_AT_ONCE
from headrace_broker.runtime.cluster.leftovers import is_deleted, remove_leftovers
from headrace_broker.runtime.node.node import BrokerNode
from headrace_raftlog.model.group import CATALOG_GROUP


class Logs:
    """Groups on a disk, of which some run."""

    def __init__(self, held: set[int]) -> None:
        self.held = held
        self.lots: list[int] = []

    def unclaimed_groups(self) -> list[int]:
        self.lots.append(0)
        return sorted(self.held)

    def remove_group(self, group: int) -> None:
        self.lots[-1] += 1
        self.held.remove(group)


def catalog_of(names: list[str]) -> Catalog:
    """Declare queues of these names, one after the other; one that comes again is deleted."""
    catalog = Catalog()
    node = Node(1, "n1", "h:1")
    todo: list[Any] = [commands.Bootstrap((node,), "/", User("guest", b"s", b"h"))]
    there: set[str] = set()
    for name in names:
        if name in there:
            todo.append(commands.DeleteQueue("/", name))
        else:
            todo.append(commands.DeclareQueue("/", name, "quorum"))
        there ^= {name}
    for index, command in enumerate(todo, 1):
        assert isinstance(
            catalog.apply(index, encode_request(Request(1, 1, index), command))[0], Ok
        )
    return catalog


def test_groups_of_queues_that_are_there_or_yet_to_come_stay() -> None:
    catalog = catalog_of(["a", "b", "b"])
    logs = Logs({0, 1, 2, 3, 9})
    assert asyncio.run(remove_leftovers(catalog, logs)) == [2]
    assert logs.held == {0, 1, 3, 9}


def test_catalog_that_is_behind_removes_nothing_that_it_is_yet_to_hear_of() -> None:
    logs = Logs({1, 2, 3})
    assert asyncio.run(remove_leftovers(Catalog(), logs)) == []


def test_many_are_removed_in_several_turns() -> None:
    catalog = catalog_of([])
    catalog.next_group = 3 * LEFTOVERS_AT_ONCE
    logs = Logs(set(range(1, 2 * LEFTOVERS_AT_ONCE + 2)))
    assert len(asyncio.run(remove_leftovers(catalog, logs))) == 2 * LEFTOVERS_AT_ONCE + 1
    assert logs.lots == [LEFTOVERS_AT_ONCE, LEFTOVERS_AT_ONCE, 1]


@given(st.lists(st.sampled_from("abcd"), max_size=20), st.integers(0, 20))
def test_what_an_earlier_state_calls_deleted_no_later_state_has(names: list[str], cut: int) -> None:
    before, after = catalog_of(names[:cut]), catalog_of(names)
    for group in range(25):
        if is_deleted(before, group):
            assert is_deleted(after, group)
            assert after.queue_by_group(group) is None


def test_node_that_was_killed_before_a_removal_was_durable_has_nothing_left(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    """The snapshot of the catalog that it starts with skips over a queue that came and went."""

    async def live(kill: bool) -> list[int]:
        node = BrokerNode(config, lambda error: None)
        await node.start()
        try:
            await node.join()
            if kill:
                for name in ("gone", "kept"):
                    command = commands.DeclareQueue("/", name, "quorum")
                    assert isinstance(await node.catalog.submit(command), Ok)
                node.raft.remove_group = lambda group: None  # type: ignore[method-assign]
                await node.catalog.submit(commands.DeleteQueue("/", "gone"))
                assert snapshot_now(node.raft, CATALOG_GROUP)
            return node.raft.unclaimed_groups() + sorted(node.hosting.hosts)
        finally:
            await node.stop()

    assert asyncio.run(live(kill=True)) == [2]
    with caplog.at_level(logging.INFO):
        assert asyncio.run(live(kill=False)) == [2]
    assert "removed the data of 1 queues" in caplog.text
    assert asyncio.run(live(kill=False)) == [2]


def test_node_leaves_queues_at_once_when_it_has_caught_up(config: Config) -> None:
    async def live() -> None:
        node = BrokerNode(config, lambda error: None)
        await node.start()
        try:
            await node.join()
            declared = await node.catalog.submit(commands.DeclareQueue("/", "moves", "quorum"))
            assert isinstance(declared, Ok)
            (queue,) = node.catalog.catalog.queues()
            assert queue.group in node.hosting.hosts
            node.hosting.move_queue(msgspec.structs.replace(queue, members=(2,), revision=1))
            assert queue.group not in node.hosting.hosts
        finally:
            await node.stop()

    asyncio.run(live())
