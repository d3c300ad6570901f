"""Status of a running node, from memory."""

from __future__ import annotations

from headrace_broker.catalog.policy import effective, merged, policy_of
from headrace_broker.config.shards import process_ids
from headrace_broker.flow.alarm import STAGE_ALARM
from headrace_broker.model.definition import QUEUE_QUORUM, Policy, Queue
from headrace_broker.model.flow_parameter import PARAMETERS
from headrace_broker.model.shard import SHARD_IDS, node_name, shard_name
from headrace_broker.model.status import (
    NodeStatus,
    Overview,
    QueueStatus,
    ReplicaStatus,
    ResourceStatus,
)
from headrace_broker.runtime.alarm.alarms import AlarmStatus
from headrace_broker.runtime.cluster.counts import counts_of
from headrace_broker.runtime.cluster.node_directory import version_problem
from headrace_broker.runtime.hosting.replica_report import replica_rows
from headrace_broker.runtime.intake.flow_settings import Setting
from headrace_broker.runtime.node.node import BrokerNode
from headrace_broker.runtime.node.parts import why_leaderless
from headrace_broker.runtime.replica.head_timestamp import HeadTimestamps
from headrace_broker.runtime.replica.queue_settings import queue_settings
from headrace_broker.runtime.security.authenticator import Verdict
from headrace_broker.runtime.security.certificate_end import first_end_s
from headrace_raftlog.model.group import CATALOG_GROUP


class NodeStatusSource:
    """Status of a node, from its parts."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self.accepting = False
        self._heads = HeadTimestamps()

    def not_ready_reason(self) -> str:
        """Return why clients should not be sent here now, "" when they may."""
        node = self._node
        refusals = node.raft.refusals()
        refused = "; ".join(f"{self._name(peer)}: {text}" for peer, text in refusals.items())
        if not node.raft.is_formed:
            return self._waits_for() + (f". Refused by {refused}" if refused else "")
        if refused and not self.accepting:
            return f"refused by {refused}"
        if node.removed:
            return "the node was removed from the cluster: it serves nobody any more"
        if node.maintenance.contested:
            return f"the node serves nobody until this is settled: {node.maintenance.contested}"
        if node.maintenance.on:
            return "the node is being drained for maintenance: connect to another one"
        if not self.accepting:
            return f"the node has not joined the cluster: {self._why_leaderless()}"
        if node.raft.disk_stalled:
            return "the disk of the node hangs: it leads nothing, and what it knows grows old"
        if not self._node.raft.leader(CATALOG_GROUP):
            return f"the catalog has no leader: {self._why_leaderless()}"
        forgotten = {each for each, _ in node.catalog.catalog.forgotten()} - node.names.keys()
        away = process_ids(node.config) - node.nodes_up() - forgotten
        if away:
            first = node_name(node.config.node.name)
            names = ", ".join(shard_name(first, each // SHARD_IDS) for each in sorted(away))
            why = version_problem(node.catalog.catalog)
            return f"of the node's processes, {names} is not heard" + (f": {why}" if why else "")
        return ""

    def _why_leaderless(self) -> str:
        node = self._node
        return why_leaderless(node.raft, node.names) or "too few nodes are running"

    def closed_reason(self) -> str:
        """Return why clients are not served here now, "" when they are."""
        closed = not self.accepting or self._node.maintenance.on
        return self.not_ready_reason() if closed else ""

    def _waits_for(self) -> str:
        """Say whom a node with new data waits for."""
        if self._node.raft.waits_for_data:
            return (
                "the node waits for one that still has the cluster's data: its own, or those of a "
                "node that it has met, were set aside. Should no node have them any more: see "
                "'Most disks lost' in docs/clustering.md"
            )
        missing = [self._name(peer) for peer in self._node.raft.missing_nodes]
        names = ", ".join(missing) or "the others to take it in"
        return (
            f"the node is new and waits for {names}: a new cluster begins when all of its nodes "
            "run, and a cluster that has begun lets a new node in when any of its nodes runs"
        )

    def overview(self) -> Overview:
        """Return what the cluster is, and who is in it."""
        node = self._node
        return Overview(
            cluster_name=node.config.cluster.name,
            node=node.config.node.name,
            leader=self._name(node.raft.leader(CATALOG_GROUP)),
            nodes=self._nodes(),
        )

    def queue(self, vhost: str, name: str) -> QueueStatus | None:
        """Return one queue."""
        queue = self._node.catalog.catalog.queue(vhost, name)
        return self._queue(queue) if queue is not None else None

    async def authenticate(self, user: str, password: str, host: str) -> Verdict:
        """Return whether the password is right and the user may come from there."""
        return await self._node.broker.authenticator.check(user, password, host)

    def admits(self, user: str, host: str) -> bool:
        """Return whether a user whom a certificate has proven may come from there."""
        return self._node.broker.authenticator.admits(user, host)

    def name_of(self, node: int) -> str:
        """Return a node's name by its id, or the id of one that is not known."""
        return self._name(node) or str(node)

    def _name(self, node: int) -> str:
        return self._node.names.get(node, "")

    def _nodes(self) -> tuple[NodeStatus, ...]:
        node = self._node
        own = node.config.node.id
        boots = {**node.peers_up, own: node.raft.boot}
        catalog = replica_rows(node.raft, node.names, CATALOG_GROUP)
        return tuple(
            NodeStatus(
                id=member.id,
                name=member.name,
                address=member.address,
                running=boots.get(member.id, 0) > 0,
                boot=boots.get(member.id, 0),
                being_drained=member.maintenance,
                catalog=tuple(each for each in catalog if each.node == member.name),
                resources=self._resources(member.id),
                clock=node.clocks.status(member.id),
            )
            for member in node.directory.nodes()
        )

    def _resources(self, node: int) -> ResourceStatus | None:
        report = self._node.alarms.reports.get(node)
        if report is None:
            return None
        return ResourceStatus(
            mem_used=report.memory_used,
            mem_limit=report.memory_limit,
            mem_total=report.memory_total,
            mem_stage=report.memory_stage,
            mem_alarm=report.memory_stage >= STAGE_ALARM,
            disk_free=report.disk_free,
            disk_free_limit=report.disk_limit,
            disk_free_alarm=report.disk_alarm,
        )

    def alarms(self) -> tuple[AlarmStatus, ...]:
        """Return the alarms that are on in the cluster, the oldest first."""
        return tuple(self._node.alarms.listing())

    def certificate_ends_s(self) -> float | None:
        """Return when the first of the node's certificates ends, in Unix time; None without one."""
        path = self._node.config.tls.certificate_file
        return first_end_s(path) if path else None

    def critical_queues(self) -> list[tuple[str, str]] | None:
        """Return the replicated queues that would lose their quorum without this node.

        That is without all its processes. None where the cluster has no other node.
        """
        own = process_ids(self._node.config)
        others = {peer: boot for peer, boot in self._node.peers_up.items() if peer not in own}
        if not others:
            return None
        return [
            (queue.vhost, queue.name)
            for queue in self._node.catalog.catalog.queues()
            if queue.kind == QUEUE_QUORUM
            and not own.isdisjoint(queue.members)
            and 2 * sum(others.get(member, 0) > 0 for member in queue.members) <= len(queue.members)
        ]

    def leaderless_queues(self) -> list[tuple[str, str]]:
        """Return the replicated queues without a leader, as far as this node knows."""
        node = self._node
        own = node.config.node.id
        found = []
        for queue in node.catalog.catalog.queues():
            if queue.kind != QUEUE_QUORUM:
                continue
            if queue.group in node.hosting.hosts:
                led = node.raft.leader(queue.group) != 0
            else:
                heard = sum(node.peers_up.get(member, 0) > 0 for member in queue.members)
                led = 2 * (heard + (own in queue.members)) > len(queue.members)
            if not led:
                found.append((queue.vhost, queue.name))
        return found

    def flow_limits(self) -> dict[str, Setting]:
        """Return the limits of flow control by name."""
        return {name: self._node.flow_settings.find(name) for name in PARAMETERS}

    def _queue(self, queue: Queue) -> QueueStatus:
        node = self._node
        host = node.hosting.hosts.get(queue.group)
        policy = policy_of(node.catalog.catalog, queue)
        operator_policy = policy_of(node.catalog.catalog, queue, operator=True)
        leader = queue.members[0] if not queue.logged else 0
        snapshot_index = None
        if queue.logged and host is not None:
            leader = node.raft.leader(queue.group)
            snapshot_index = node.raft.snapshot_index(queue.group)
        return QueueStatus(
            vhost=queue.vhost,
            name=queue.name,
            kind=queue.kind,
            durable=queue.durable,
            exclusive=queue.exclusive,
            auto_delete=queue.auto_delete,
            arguments=queue.arguments,
            leader=self._name(leader),
            members=tuple(self._name(member) for member in queue.members),
            counts=counts_of(host) if host is not None else None,
            replicas=self._replicas(queue, host is not None),
            snapshot_index=snapshot_index,
            head_timestamp=self._heads.timestamp(host) if host else -1,
            policy=policy.name if policy is not None else "",
            operator_policy=operator_policy.name if operator_policy is not None else "",
            definition=merged(policy, operator_policy),
            delivery_limit=self._delivery_limit(queue, policy, operator_policy),
        )

    def _replicas(self, queue: Queue, here: bool) -> tuple[ReplicaStatus, ...] | None:
        if not queue.logged:
            return ()
        return replica_rows(self._node.raft, self._node.names, queue.group) if here else None

    def _delivery_limit(self, queue: Queue, policy: Policy | None, operator: Policy | None) -> int:
        """Return what the queue's machine is told, whether a replica is here or not."""
        if queue.kind != QUEUE_QUORUM:
            return -1
        limits = self._node.catalog.catalog.vhost_limits(queue.vhost)
        settings = queue_settings(queue, effective(queue, policy, operator, limits))
        return int(settings.delivery_limit)
