"""Parts of a node that are made of others, and what the node says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace_broker.catalog.command import AnnounceNode
from headrace_broker.catalog.version import CATALOG_VERSION
from headrace_broker.core.queue.queue_machine import MACHINE_VERSION
from headrace_broker.runtime.leader_balance import BalanceAround, LeaderBalance

if TYPE_CHECKING:
    from headrace_broker.runtime.node import BrokerNode


def announcement(node: BrokerNode) -> AnnounceNode:
    """Return what a node tells the catalog of itself: disk, address, the versions it knows."""
    own = node.config.node
    address = node.config.address
    return AnnounceNode(own.id, MACHINE_VERSION, node.raft.disk, own.name, address, CATALOG_VERSION)


def make_balance(node: BrokerNode) -> LeaderBalance:
    """Make what spreads leaders by itself; its state is shown with that of other operations."""
    around = BalanceAround(
        node.config.node.id,
        node.catalog.catalog,
        lambda: node.catalog.leader,
        node.nodes_up,
        node.maintenance.avoided,
        node.names,
    )
    balance = LeaderBalance(around, node.operations, node.config.cluster.balance_leaders)
    node.operations.show(balance.status)
    return balance
