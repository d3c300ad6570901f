"""Parts of a node that are made of others, and what the node says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace_broker.model.definition import Permission
from headrace_broker.runtime.cluster.leader_balance import BalanceAround, LeaderBalance
from headrace_broker.runtime.contract.payload import Payload, encode
from headrace_broker.runtime.security.audit import ACTOR
from headrace_broker.runtime.telemetry.sources import Sources
from headrace_broker.runtime.telemetry.telemetry import now_us
from headrace_raftlog.model.group import CATALOG_GROUP

if TYPE_CHECKING:
    from headrace_broker.catalog.view import CatalogView
    from headrace_broker.runtime.alarm.alarms import AlarmBoard
    from headrace_broker.runtime.cluster.catalog_service import CatalogService
    from headrace_broker.runtime.cluster.maintenance import Maintenance
    from headrace_broker.runtime.cluster.operations import Operations
    from headrace_broker.runtime.contract.connection_info import ConnectionInfo
    from headrace_broker.runtime.explain.flow_facts import FlowFacts
    from headrace_broker.runtime.hosting.hosting import Hosting
    from headrace_raftlog.node.node import RaftNode


class CatalogForward(Payload, tag="catalog_forward"):
    """A catalog command on its way to the leader of group 0."""

    data: bytes


class Stopping(Payload, tag="stopping"):
    """From any node to all others: I am being stopped; let me lead nothing new."""


def caller() -> str:
    """Return the user and address on whose behalf a task works, "" for the node itself."""
    actor = ACTOR.get()
    return "" if actor is None else f"{actor.user}@{actor.peer.rpartition(':')[0]}"


def forwarder(raft: RaftNode) -> Callable[[int, bytes], bool]:
    """Return what sends a command of the catalog to the node that leads it."""

    def forward(peer: int, data: bytes) -> bool:
        return raft.send(peer, encode(CatalogForward(data)))

    return forward


class Founded(NamedTuple):
    """A node that may have founded a second cluster."""

    raft: RaftNode  # the replicated logs
    catalog: CatalogService  # cluster metadata
    maintenance: Maintenance  # refuses to go on where a person has to decide
    names: Mapping[int, str]  # of the nodes, by id
    caught_up: Callable[[], bool]  # whether it has applied what was decided before its start


def watch_founding(node: Founded) -> None:
    """Notice a second cluster, and voters that are gone for good."""
    node.raft.on_rival = partial(meet_rival, node)
    node.catalog.reach.diagnosis = partial(why_leaderless, node.raft, node.names)


def meet_rival(node: Founded, reason: str) -> None:
    """Give way to the cluster that a node belonged to before it founded a second one."""
    if node.caught_up() and is_untouched(node.catalog.catalog):
        node.raft.set_aside(
            f"{reason}. Nothing was stored here since, so that is done now: the data directory's "
            "log is set aside"
        )
    else:
        node.maintenance.contest(reason)


def is_untouched(view: CatalogView) -> bool:
    """Return whether a cluster of one node holds only its initial content.

    A changed password of its first user is not seen.
    """
    if any(len(each) != 1 for each in (view.nodes(), view.vhosts(), view.users())):
        return False
    if view.queues() or view.policies() or view.policies(operator=True) or view.parameters():
        return False
    if view.bindings() or view.topic_permissions():
        return False
    [vhost], [user] = view.vhosts(), view.users()
    if view.permissions() != [Permission(user.name, vhost.name, ".*", ".*", ".*")]:
        return False
    if view.vhost_limits(vhost.name) or view.user_limits(user.name):
        return False
    return all(each.name.startswith("amq.") for each in view.exchanges())


def why_leaderless(raft: RaftNode, names: Mapping[int, str]) -> str:
    """Return why the catalog has no leader, and will have none; "" where that is not known."""
    lost = raft.lost_voters(CATALOG_GROUP)
    if lost:
        gone = ", ".join(names.get(node, f"node {node}") for node in lost)
        return (
            f"by this node's data most votes are gone for good: {gone} run without the disks that "
            "they voted with. Keep this node's data; 'Most disks lost' in docs/clustering.md says "
            "the way back"
        )
    if raft.is_unadmitted(CATALOG_GROUP):
        return (
            "this node is new, or lost its data, and waits for the catalog's leader to take it "
            "in. If all nodes run and none leads, those that kept their data say why"
        )
    return ""


def make_balance(around: BalanceAround, operations: Operations, enabled: bool) -> LeaderBalance:
    """Make what spreads leaders by itself; its state is shown with that of other operations."""
    balance = LeaderBalance(around, operations, enabled)
    operations.rebalance.show(balance.status)
    return balance


def telemetry_sources(
    node: str,
    view: CatalogView,
    hosting: Hosting,
    facts: FlowFacts,
    alarms: AlarmBoard,
    connections: Callable[[], Mapping[str, ConnectionInfo]],  # returns those of clients, by id
) -> Sources:
    """Return what telemetry looks at."""
    return Sources(
        node=node,
        view=view,
        ledger=hosting.ledger,
        limits=hosting.ledger.limits,
        hosts=hosting.hosts,
        recent=hosting.recent,
        traffic=hosting.traffic,
        connections=connections,
        gate=facts.gate,
        alarms=alarms.listing,
        report=lambda: alarms.own,
        clock_us=now_us,
    )
