"""What may be done to the cluster, as one of its nodes sees the others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace_broker.catalog.command import ForgetNode
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.result import Ok
from headrace_broker.model.definition import Node
from headrace_broker.model.reply_code import PRECONDITION_FAILED, AmqpError
from headrace_broker.runtime.operations import Operations, Surroundings


class Around:
    """Nodes 1 to 3, of which node 1 is asked; all vote on the catalog.

    Attributes:
        up: the nodes that run.
        drained: those that lead nothing.
        done: commands of the catalog.
    """

    def __init__(self) -> None:
        self.up = frozenset({1, 2, 3})
        self.drained: set[int] = set()
        self.voters = (1, 2, 3)
        self.done: list[Any] = []
        self.nodes = {n: Node(n, f"n{n}", f"h:{n}") for n in (1, 2, 3)}
        surroundings = Surroundings(
            1,
            Catalog(),
            lambda: self.up,
            lambda: self.drained,
            {2: "n2", 3: "n3"},
            self._submit,
            lambda: self.voters,
        )
        ends: Any = SimpleNamespace(rows=None, transfer=None)
        self.operations = Operations(surroundings, ends, ends)

    async def _submit(self, command: Any) -> Ok:
        self.done.append(command)
        return Ok(self.nodes[command.node])

    def forget(self, node: int) -> str:
        """Return why a node is not forgotten, "" when it is."""
        try:
            asyncio.run(self.operations.forget(self.nodes[node]))
        except AmqpError as error:
            return f"{error.code} {error.text}"
        return ""


@pytest.fixture
def around() -> Around:
    return Around()


def test_a_node_without_which_the_catalog_has_no_majority_is_not_forgotten(around):
    around.up = frozenset({1, 2})
    around.drained = {2}
    refusal = around.forget(2)
    assert refusal.startswith(str(PRECONDITION_FAILED))
    assert "no majority" in refusal
    assert around.done == []
    assert around.forget(3) == ""
    around.voters = (1, 2)
    assert around.forget(2) == ""
    assert around.done == [ForgetNode(3), ForgetNode(2)]


def test_a_node_that_does_not_vote_on_the_catalog_is_forgotten_where_it_had_a_majority(around):
    around.up = frozenset({1, 2})
    around.voters = (1, 2)
    assert around.forget(3) == ""
