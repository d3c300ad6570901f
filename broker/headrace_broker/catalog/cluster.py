"""The nodes of the cluster, and on which of them queues live."""

from __future__ import annotations

import msgspec

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.cluster_version import FIRST_CLUSTER_VERSION, too_old
from headrace_broker.catalog.governance import Governance, name_problem
from headrace_broker.catalog.placement import places_of, together
from headrace_broker.catalog.result import Exists, NotFound, Ok, Refused, Result
from headrace_broker.catalog.setting import INT32_MAX
from headrace_broker.catalog.version import GATED, ZONES, target_problem
from headrace_broker.model.definition import QUEUE_QUORUM, Node, Queue
from headrace_broker.model.limits import NODES_MAX, REPLICAS_MAX
from headrace_broker.model.session import NODE_ID_MAX


class ClusterChanges(Governance):
    """Applies commands about nodes and replicas."""

    # Nodes

    def _declare_nodes(self, command: commands.DeclareNodes) -> Result:
        problem = self._nodes_problem(command.nodes)
        if problem:
            return Refused(problem)
        changed = False
        for node in command.nodes:
            current = self.node(node.id)
            if current is not None:
                # The rest it says itself.
                node = msgspec.structs.replace(current, name=node.name, address=node.address)
            if node != current:
                self.put_node(node)
                changed = True
        return Ok() if changed else Exists()

    def _announce_node(self, command: commands.AnnounceNode) -> Result:
        current = self.node(command.node)
        if current is None:
            return NotFound(f"node {command.node}")
        if not 1 <= command.machine_version <= INT32_MAX:
            return Refused(f"machine_version: {command.machine_version} is not 1 or more")
        if not 0 <= command.catalog_version <= INT32_MAX:
            return Refused(f"catalog_version: {command.catalog_version} is not 0 or more")
        if not 0 <= command.message_bytes_max <= INT32_MAX:
            return Refused(f"message_bytes_max: {command.message_bytes_max} is not 0 or more")
        if command.zone and (problem := name_problem("zone", command.zone)):
            return Refused(problem)
        versions = (command.catalog_version, command.machine_version)
        if self.cluster_version > FIRST_CLUSTER_VERSION and (
            problem := too_old(current, *versions, self.cluster_version)
        ):
            return Refused(problem)
        node = msgspec.structs.replace(
            current,
            machine_version=command.machine_version,
            disk=command.disk or current.disk,
            name=command.name or current.name,
            address=command.address or current.address,
            catalog_version=command.catalog_version,
            message_bytes_max=command.message_bytes_max,
            zone=command.zone,
        )
        problem = self._node_problem(node)
        if problem:
            return Refused(problem)
        return self._replace_node(current, node)

    def _admit_node(self, command: commands.AdmitNode) -> Result:
        asked = command.node
        if asked.disk and (asked.id, asked.disk) in self._forgotten:
            return Refused(
                f"node {asked.id} was removed from the cluster with the data that it has; it may "
                "join again, as a new member, once its data directory is empty"
            )
        if asked.disk and (asked.id, 0) in self._forgotten:
            return Refused(
                f"node {asked.id} was removed from the cluster before it had said which data it "
                "has: have the new one announced first (`headrace node join`)"
            )
        problem = self._node_problem(asked)
        if problem:
            return Refused(problem)
        current = self.node(asked.id)
        self.unbar(asked.id)
        if current is None:
            if len(self.nodes()) >= NODES_MAX:
                return Refused(f"the cluster has {NODES_MAX} nodes, which is the most")
            node = Node(asked.id, asked.name, asked.address, disk=asked.disk)
            self.put_node(node)
            return Ok(node)
        node = msgspec.structs.replace(
            current, name=asked.name, address=asked.address, disk=asked.disk or current.disk
        )
        return self._replace_node(current, node)

    def _set_maintenance(self, command: commands.SetMaintenance) -> Result:
        current = self.node(command.node)
        if current is None:
            return NotFound(f"node {command.node}")
        return self._replace_node(current, msgspec.structs.replace(current, maintenance=command.on))

    def _raise_cluster_version(self, command: commands.RaiseClusterVersion) -> Result:
        if command.to <= self.cluster_version:
            return Exists(self.cluster_version)
        self.raise_cluster_version(command.to)
        return Ok(command.to)

    def _replace_node(self, current: Node, node: Node) -> Result:
        if node == current:
            return Exists(current)
        self.put_node(node)
        return Ok(node)

    def _forget_node(self, command: commands.ForgetNode) -> Result:
        node = self.node(command.node)
        if node is None:
            return NotFound(f"node {command.node}")
        if len(self.nodes()) == 1:
            return Refused(f"node '{node.name}' is the last one")
        held = [q for q in self.queues() if node.id in (*q.members, *q.leaving)]
        kept = [queue for queue in held if queue.logged]
        if kept:
            first = f"queue '{kept[0].name}' in vhost '{kept[0].vhost}'"
            return Refused(
                f"node '{node.name}' has replicas of {len(kept)} queues, for instance {first}: "
                "move them off it first"
            )
        for queue in held:
            self.drop_queue(queue)
        self.drop_node(node, command.bars_unknown)
        return Ok(node)

    def _node_problem(self, node: Node) -> str:
        problem = self._nodes_problem((node,))
        twin = next(
            (n for n in self.nodes() if n.address == node.address and n.id != node.id), None
        )
        if not problem and twin is not None:
            problem = f"node '{node.name}' and node '{twin.name}' have the same address"
        return problem

    def _nodes_problem(self, nodes: tuple[Node, ...]) -> str:
        names = {node.id: node.name for node in self.nodes()}
        for node in nodes:
            if not 1 <= node.id <= NODE_ID_MAX:
                return f"node id {node.id} is not within 1 to {NODE_ID_MAX}"
            problem = name_problem("node", node.name)
            if problem:
                return problem
            names[node.id] = node.name
        if len(set(names.values())) < len(names):
            return "two nodes have the same name"
        return ""

    # Replicas

    def _set_members(self, command: commands.SetMembers) -> Result:
        queue = self.queue(command.vhost, command.name)
        if queue is None or queue.group != command.group:
            return NotFound(f"queue '{command.name}' in vhost '{command.vhost}'")
        unknown = next((node for node in command.add if self.node(node) is None), None)
        if unknown is not None:
            return NotFound(f"node {unknown}")
        staying = [node for node in queue.members if node not in command.remove]
        coming = [node for node in dict.fromkeys(command.add) if node not in staying]
        members = (*staying, *coming)
        gone = [node for node in queue.members if node not in members]
        leaving = tuple([n for n in (*queue.leaving, *gone) if n not in members])
        if members == queue.members:
            return Exists(queue)
        problem = _members_problem(queue, members)
        if problem:
            return Refused(f"queue '{queue.name}' in vhost '{queue.vhost}' {problem}")
        if command.as_of >= GATED:
            problem = target_problem(self, queue, coming)
            if problem:
                return Refused(problem)
        if command.as_of >= ZONES:
            places = places_of(self.nodes())
            if any(together(n, [o for o in members if o != n], places) for n in coming):
                what = f"queue '{queue.name}' in vhost '{queue.vhost}'"
                return Refused(f"{what} would have replicas in two processes of one node")
        moved = msgspec.structs.replace(
            queue, members=members, leaving=leaving, revision=queue.revision + 1
        )
        self.move_queue(moved)
        return Ok(moved)

    def _settle_members(self, command: commands.SettleMembers) -> Result:
        queue = self.queue_by_group(command.group)
        if queue is None:
            return NotFound(f"queue of group {command.group}")
        leaving = tuple([node for node in queue.leaving if node not in command.left])
        if queue.revision != command.revision or leaving == queue.leaving:
            return Exists(queue)
        settled = msgspec.structs.replace(queue, leaving=leaving)
        self.move_queue(settled)
        return Ok(settled)


def _members_problem(queue: Queue, members: tuple[int, ...]) -> str:
    """Return why a queue cannot live on these nodes, "" if it can."""
    if not queue.logged:
        return "lives in the memory of its node and cannot be moved"
    if not members:
        return "would lose its last replica"
    if queue.kind != QUEUE_QUORUM and len(members) > 1:
        return f"is of type '{queue.kind}' and has one replica"
    if len(members) > REPLICAS_MAX:
        return f"would have {len(members)} replicas, more than {REPLICAS_MAX}"
    return ""
