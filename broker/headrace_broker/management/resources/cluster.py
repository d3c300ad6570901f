"""/api/cluster: nodes join, are drained and are forgotten; the cluster version."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import Final

import msgspec
from aiohttp import web

from headrace_broker.catalog.cluster_version import CLUSTER_VERSION, known_cluster_version
from headrace_broker.catalog.command import RaiseClusterVersion
from headrace_broker.catalog.movement import shrink
from headrace_broker.catalog.placement import places_of
from headrace_broker.catalog.version import is_silent, known_version, upgrade_problem
from headrace_broker.management.http.answer import bad_request, json_answer
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import (
    ADMINISTRATOR,
    MONITORING,
    Parameter,
    deleted,
    got,
    listed,
    posted,
)
from headrace_broker.management.resources.members import spares
from headrace_broker.model.definition import Node
from headrace_broker.model.shard import is_further, node_name, processes_of
from headrace_broker.model.status import NodeLoad

FORGET_SECONDS: Final = 20.0  # for replicas to leave a node; then the answer says how many are left
LOOK_SECONDS: Final = 0.2  # between looks whether they have
KEEP: Final = "keep"
MOVE: Final = "move"
SHRINK: Final = "shrink"
_NODE: Final = "/api/cluster/nodes/{node}"

_REPLICAS: Final = Parameter(
    "replicas",
    "What becomes of the node's replicas: keep (it is refused while there are any), move "
    "(each goes to another node) or shrink (queues have one less).",
    {"type": "string", "enum": [KEEP, MOVE, SHRINK]},
)


class JoinBody(msgspec.Struct):
    """Body of POST /api/cluster/nodes.

    Attributes:
        id: 1 to 1023; unique.
        name: unique.
        address: HOST:PORT at which other nodes reach it.
    """

    id: int
    name: str
    address: str


class ClusterShardView(msgspec.Struct):
    """A process of a node; `leaders` and `connections` are None of one that does not answer."""

    id: int
    name: str
    address: str
    running: bool
    being_drained: bool
    leaders: int | None
    connections: int | None


class ClusterNodeView(msgspec.Struct):
    """A node of the cluster.

    Attributes:
        zone: what fails as a whole with the nodes in it, "" where it did not say.
        running: the answering node hears it, or is it, or one of its processes.
        being_drained: it is to lead nothing and to take no clients.
        drained: it does neither now, but lead queues that have no other replica.
        leaders: queues that it leads, and the catalog if it leads that; None of a node that does
            not answer.
        alone: of these, those that have no other replica.
        connections: of clients, likewise.
        replicas: of queues that it has, or is about to give up.
        leaving: of these, those that are on their way to other nodes.
        clock_skew_ms: its wall clock less the median of the cluster's; None while not measured.
        clock_warning: what is wrong with its clock or with the time of its queues, "" for nothing.
        shards: its processes, the first one first; figures above are of all of them.
    """

    id: int
    name: str
    address: str
    zone: str
    running: bool
    being_drained: bool
    drained: bool
    leaders: int | None
    alone: int | None
    connections: int | None
    replicas: int
    leaving: int
    clock_skew_ms: int | None
    clock_warning: str
    shards: list[ClusterShardView]


class ForgetView(msgspec.Struct):
    """Progress of a node's removal.

    Attributes:
        forgotten: it belongs to the cluster no more.
        replicas: that it still has.
        problems: why some of them stay.
    """

    forgotten: bool
    replicas: int
    problems: list[str]


class NodeVersionView(msgspec.Struct):
    """A node and the newest cluster version that its release knows; None while it has not said."""

    name: str
    known: int | None


class ClusterVersionView(msgspec.Struct):
    """The version of the cluster, and how far it may be raised.

    Attributes:
        version: what the cluster uses; it never goes down.
        newest: the newest that this node's release knows.
        nodes: what the release of each node knows.
        problem: why it cannot be raised to `newest`, "" if it can or is there.
    """

    version: int
    newest: int
    nodes: list[NodeVersionView]
    problem: str


class ClusterEndpoints(Endpoints):
    """Answers requests about the nodes of the cluster."""

    async def _named(self, request: web.Request) -> Node:
        return await self._known_node(request.match_info["node"])

    @listed("/api/cluster/nodes", "Nodes of the cluster.", ClusterNodeView, MONITORING)
    async def _list(self, request: web.Request) -> web.Response:
        loads = await self._node.operations.loads()
        known = self._node.view.nodes()
        names = {node.name for node in known}
        nodes = [n for n in known if not is_further(n) or node_name(n.name) not in names]
        rows = [self._view(node, loads) for node in nodes]
        return await listing(request, rows, msgspec.to_builtins)

    @got(_NODE, "A node of the cluster.", ClusterNodeView, MONITORING)
    async def _get(self, request: web.Request) -> web.Response:
        return await self._answer(await self._named(request))

    async def _answer(self, node: Node) -> web.Response:
        return json_answer(self._view(node, await self._node.operations.loads()))

    def _view(self, node: Node, loads: dict[int, NodeLoad]) -> ClusterNodeView:
        """Return a node with its further processes as one row, or one of these."""
        found = processes_of(node, self._node.view.nodes())
        nodes = sorted(found, key=attrgetter("id"))
        shards = [self._shard(each, loads.get(each.id)) for each in nodes]
        up, clock = self._node.operations.up(), self._node.operations.clock(node.id)
        told = [loads[each.id] for each in nodes if each.id in loads]
        is_known = bool(told) and all(n.id in loads or n.id not in up for n in nodes)
        idle = (is_known or not told) and all(
            load.leaders == load.alone and load.connections == 0 for load in told
        )
        placed = [(n.id, q) for n in nodes for q in self._node.operations.placed_on(n.id)]
        return ClusterNodeView(
            node.id,
            node.name,
            node.address,
            node.zone,
            any(each.id in up for each in nodes),
            all(each.maintenance for each in nodes),
            all(each.maintenance for each in nodes) and idle,
            sum(load.leaders for load in told) if is_known else None,
            sum(load.alone for load in told) if is_known else None,
            sum(load.connections for load in told) if is_known else None,
            len(placed),
            sum(number in queue.leaving for number, queue in placed),
            clock.skew_ms if clock is not None else None,
            clock.warning if clock is not None else "",
            shards,
        )

    def _shard(self, node: Node, load: NodeLoad | None) -> ClusterShardView:
        return ClusterShardView(
            node.id,
            node.name,
            node.address,
            node.id in self._node.operations.up(),
            node.maintenance,
            load.leaders if load is not None else None,
            load.connections if load is not None else None,
        )

    @got("/api/cluster/version", "The cluster version.", ClusterVersionView, MONITORING)
    async def _version(self, request: web.Request) -> web.Response:
        del request
        return json_answer(self._version_view())

    @posted(
        "/api/cluster/version/raise",
        "End an upgrade: use what all nodes know, for good.",
        None,
        ADMINISTRATOR,
        answer=ClusterVersionView,
    )
    async def _raise_version(self, request: web.Request) -> web.Response:
        del request
        await self._node.operations.raise_version()
        return json_answer(self._version_view())

    def _version_view(self) -> ClusterVersionView:
        view = self._node.view
        nodes = [
            NodeVersionView(
                node.name,
                None
                if is_silent(node)
                else known_cluster_version(known_version(node), node.machine_version),
            )
            for node in view.nodes()
        ]
        problem = ""
        if view.cluster_version < CLUSTER_VERSION:
            problem = upgrade_problem(view, 0, RaiseClusterVersion(CLUSTER_VERSION))
        return ClusterVersionView(view.cluster_version, CLUSTER_VERSION, nodes, problem)

    @posted(
        "/api/cluster/nodes",
        "Let a node join that has no data yet.",
        JoinBody,
        ADMINISTRATOR,
        answer=ClusterNodeView,
    )
    async def _join(self, request: web.Request) -> web.Response:
        body = await decode(request, JoinBody)
        if node_name(body.name) != body.name:
            raise bad_request(f"name: '{body.name}' is that of a node's process, which joins alone")
        return await self._answer(
            await self._node.operations.admit(Node(body.id, body.name, body.address))
        )

    @posted(
        _NODE + "/drain",
        "Have a node hand over what it leads, and send its clients away.",
        None,
        ADMINISTRATOR,
        answer=ClusterNodeView,
    )
    async def _drain(self, request: web.Request) -> web.Response:
        node = await self._named(request)
        return await self._answer(await self._node.operations.set_maintenance(node, True))

    @posted(
        _NODE + "/revive",
        "Let a drained node serve again.",
        None,
        ADMINISTRATOR,
        answer=ClusterNodeView,
    )
    async def _revive(self, request: web.Request) -> web.Response:
        node = await self._named(request)
        return await self._answer(await self._node.operations.set_maintenance(node, False))

    @deleted(
        _NODE,
        "Remove a node with all its processes; 202 while one of them still has replicas.",
        ADMINISTRATOR,
        query=(_REPLICAS,),
        answer=ForgetView,
        codes=(202,),
    )
    async def _forget(self, request: web.Request) -> web.Response:
        node = await self._named(request)
        what = request.query.get("replicas", KEEP)
        if what not in (KEEP, MOVE, SHRINK):
            raise bad_request(f"replicas: '{what}' is not {KEEP}, {MOVE} or {SHRINK}")
        processes = processes_of(node, self._node.view.nodes())
        for each in processes:
            self._node.operations.check_forget(each)
        for each in processes:
            problems: list[str] = []
            if what != KEEP:
                problems = await self._empty(each, what == MOVE)
                left = len(self._replicas(each))
                if left:
                    return json_answer(ForgetView(False, left, problems), 202)
            await self._node.operations.forget(each)
        return json_answer(ForgetView(True, 0, []))

    def _replicas(self, node: Node) -> list[str]:
        placed = self._node.operations.placed_on(node.id)
        return [queue.name for queue in placed if queue.logged]

    async def _empty(self, node: Node, move: bool) -> list[str]:
        """Take replicas off a node, wait a while for them, and return why some stay."""
        operations = self._node.operations
        others = spares(self._node, node) if move else {}
        placed, places = operations.placed_on(node.id), places_of(self._node.view.nodes())
        steps = shrink(placed, node.id, operations.up(), others, places)
        problems = [
            f"queue '{outcome.queue.name}' in vhost '{outcome.queue.vhost}': {outcome.problem}"
            for outcome in await operations.apply_steps(steps)
            if outcome.problem
        ]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + FORGET_SECONDS
        while loop.time() < deadline and len(self._replicas(node)) > len(problems):  # noqa: ASYNC110 (no event)
            await asyncio.sleep(LOOK_SECONDS)
        return problems
