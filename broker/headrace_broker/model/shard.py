"""Shards: processes that are one node to users, each a member of the cluster for itself.

The first one has the id and the name of the node; the others' are made of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from headrace_broker.model.definition import Node

AUTO: Final = "auto"
Shards = int | Literal["auto"]
SHARDS_MAX: Final = 8  # processes of a node
SHARD_IDS: Final = 64  # between the ids of two of them; a node with shards has a lower one
SHARD_PORTS: Final = 100  # between the ports of two of them that only nodes and Prometheus use
_MARK: Final = ":"  # in no name that a node may be given


def shards_problem(shards: Shards, node: int, addresses: Iterable[str]) -> str:
    """Return why a node cannot have so many processes, "" when it can.

    Args:
        shards: as configured.
        node: id of the node.
        addresses: of all its listeners but HTTP.
    """
    if isinstance(shards, int) and not 1 <= shards <= SHARDS_MAX:
        return f"node.shards: {shards} must be '{AUTO}' or an integer from 1 to {SHARDS_MAX}"
    if shards == 1:
        return ""
    if node >= SHARD_IDS:
        return f"node.id: {node} must be less than {SHARD_IDS} with node.shards"
    if any(address.endswith(":0") for address in addresses):
        return "listeners: no port may be 0 with node.shards, for all processes share them"
    return ""


def shard_id(node: int, shard: int) -> int:
    """Return the id of a node's process by its number, 0 to SHARDS_MAX - 1."""
    return node + SHARD_IDS * shard


def shard_name(node: str, shard: int) -> str:
    """Return the name of a node's process: `n1`, `n1:1`, `n1:2`."""
    return f"{node}{_MARK}{shard}" if shard else node


def node_name(name: str) -> str:
    """Return the name of the node that a process belongs to."""
    return name.partition(_MARK)[0]


def shard_number(name: str) -> int:
    """Return the number of a process in its node by its name, 0 for the first one."""
    return int(name.partition(_MARK)[2] or 0)


def is_further(node: Node) -> bool:
    """Return whether a member of the cluster is another process than the first of its node."""
    return _MARK in node.name


def processes_of(node: Node, nodes: Iterable[Node]) -> list[Node]:
    """Return a node with its further processes, which come first; one of these alone."""
    further = [each for each in nodes if is_further(each) and node_name(each.name) == node.name]
    return [*further, node]


def belongs_to(node: Node, first: Node | None) -> bool:
    """Return whether a member says that it is a further process of the node that is known."""
    return (
        first is not None
        and node.id % SHARD_IDS == first.id
        and node.name == shard_name(first.name, node.id // SHARD_IDS)
        and node.address.rpartition(":")[0] == first.address.rpartition(":")[0]
    )
