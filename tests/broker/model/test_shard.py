"""Ids and names of the processes of a node."""

from __future__ import annotations

import pytest

from headrace_broker.model.definition import Node
from headrace_broker.model.session import NODE_ID_MAX
from headrace_broker.model.shard import (
    SHARD_IDS,
    SHARDS_MAX,
    belongs_to,
    node_name,
    processes_of,
    shard_id,
    shard_name,
    shards_problem,
)

FIRST = Node(1, "n1", "h:7101")
SECOND = Node(65, "n1:1", "h:7201")
OTHER = Node(2, "n2", "i:7101")


def test_ids_and_names_are_unique() -> None:
    made = [(n, k) for n in range(1, SHARD_IDS) for k in range(SHARDS_MAX)]
    assert len({shard_id(*each) for each in made}) == len(made)
    assert max(shard_id(*each) for each in made) <= NODE_ID_MAX
    assert [shard_name("n1", k) for k in range(3)] == ["n1", "n1:1", "n1:2"]
    assert {node_name(shard_name("n1", k)) for k in range(SHARDS_MAX)} == {"n1"}


def test_a_node_stands_for_its_processes_and_one_of_these_for_itself() -> None:
    nodes = [FIRST, OTHER, SECOND, Node(66, "n2:1", "i:7201")]
    assert processes_of(FIRST, nodes) == [SECOND, FIRST]
    assert processes_of(SECOND, nodes) == [SECOND]


@pytest.mark.parametrize(
    ("node", "belongs"),
    [
        (SECOND, True),
        (Node(129, "n1:2", "h:7301"), True),
        (Node(129, "n1:1", "h:7201"), False),
        (Node(65, "n1", "h:7201"), False),
        (Node(65, "n2:1", "h:7201"), False),
        (Node(65, "n1:1", "elsewhere:7201"), False),
        (OTHER, False),
    ],
)
def test_only_what_is_made_of_a_node_belongs_to_it(node: Node, belongs: bool) -> None:
    assert belongs_to(node, FIRST) is belongs
    assert not belongs_to(node, None)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((1, 1023, ["h:0"]), ""),
        ((8, 63, ["h:1", ""]), ""),
        (("auto", 1, []), ""),
        ((0, 1, []), "node.shards: 0 must be 'auto' or an integer from 1 to 8"),
        ((9, 1, []), "node.shards: 9 must be 'auto' or an integer from 1 to 8"),
        ((2, 64, []), "node.id: 64 must be less than 64 with node.shards"),
        (("auto", 1, ["h:0"]), "listeners: no port may be 0"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple, problem: str) -> None:
    found = shards_problem(*arguments)
    assert found.startswith(problem)
    assert bool(found) is bool(problem)
