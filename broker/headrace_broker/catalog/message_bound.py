"""Bound of the messages that clients publish: the least that any node takes.

An entry that a replica does not take stops its queue there. So each node says in the catalog how
large a message it takes, and the least of that holds for the clients of all. It is a matter of what
clients send: of each other, nodes take everything that any configuration of their release allows,
for what is stored already has to go on, whatever is configured meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.definition import Node, Queue
from headrace_broker.model.limits import MESSAGE_BYTES_PLAIN


def taken_bytes(node: Node) -> int:
    """Return the bytes of the largest message that a node takes, as far as it said."""
    return max(node.message_bytes_max, MESSAGE_BYTES_PLAIN)


def cluster_bytes(view: CatalogView) -> int:
    """Return the bytes of the largest message that all nodes take; the same on each of them."""
    return min([taken_bytes(node) for node in view.nodes()], default=MESSAGE_BYTES_PLAIN)


def bound_of(view: CatalogView, own: int, own_bytes: int, own_rule: str) -> tuple[int, str]:
    """Return the bytes of the largest message that clients may send, and why not more.

    `own_rule` says why this node takes less than configured, "" where it does not.
    """
    others = [node for node in view.nodes() if node.id != own]
    least = min(others, key=taken_bytes, default=None)
    if least is None or taken_bytes(least) >= own_bytes:
        return own_bytes, own_rule
    if not least.message_bytes_max:
        rule = f"node '{least.name}' has not said that it takes more: earlier releases do not"
        return taken_bytes(least), rule
    rule = f"node '{least.name}' takes no more (limits.message_bytes_max and memory there)"
    return taken_bytes(least), rule


def place_problem(view: CatalogView, queue: Queue, add: Iterable[int]) -> str:
    """Return why replicas of a queue must not move onto nodes, "" when they may.

    The queue may hold messages that nodes of an earlier release do not take.
    """
    holders = [node for each in queue.members if (node := view.node(each)) is not None]
    if all(taken_bytes(node) <= MESSAGE_BYTES_PLAIN for node in holders):
        return ""
    for each in add:
        node = view.node(each)
        if node is not None and not node.message_bytes_max:
            return (
                f"queue '{queue.name}' in vhost '{queue.vhost}' cannot move to node "
                f"'{node.name}', which runs an older version and takes messages of up to "
                f"{MESSAGE_BYTES_PLAIN} bytes only: upgrade it first"
            )
    return ""
