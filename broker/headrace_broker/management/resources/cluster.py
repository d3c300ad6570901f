"""/api/cluster/nodes: nodes join, are drained and are forgotten."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from aiohttp import web

from headrace_broker.catalog.movement import shrink
from headrace_broker.management.http.administration import Administration, known_node
from headrace_broker.management.http.answer import bad_request, json_answer
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import (
    ADMINISTRATOR,
    MONITORING,
    Parameter,
    Route,
    deleted,
    got,
    listed,
    posted,
)
from headrace_broker.management.resources.members import spares
from headrace_broker.model.definition import Node
from headrace_broker.model.status import NodeLoad

FORGET_SECONDS: Final = 20.0  # for replicas to leave a node; then the answer says how many are left
LOOK_SECONDS: Final = 0.2  # between looks whether they have
KEEP: Final = "keep"
MOVE: Final = "move"
SHRINK: Final = "shrink"
_NODE: Final = "/api/cluster/nodes/{node}"


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


class ClusterNodeView(msgspec.Struct):
    """A node of the cluster.

    Attributes:
        running: the answering node hears it, or is it.
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
    """

    id: int
    name: str
    address: str
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


class ClusterEndpoints:
    """Answers requests about the nodes of the cluster."""

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return the route table."""
        admin, path = ADMINISTRATOR, "/api/cluster/nodes"
        replicas = Parameter(
            "replicas",
            "What becomes of the node's replicas: keep (it is refused while there are any), move "
            "(each goes to another node) or shrink (queues have one less).",
            {"type": "string", "enum": [KEEP, MOVE, SHRINK]},
        )
        return [
            listed(path, self._list, "Nodes of the cluster.", ClusterNodeView, MONITORING),
            posted(
                path,
                self._join,
                "Let a node join that has no data yet.",
                JoinBody,
                admin,
                answer=ClusterNodeView,
            ),
            got(_NODE, self._get, "A node of the cluster.", ClusterNodeView, MONITORING),
            posted(
                _NODE + "/drain",
                self._drain,
                "Have a node hand over what it leads, and send its clients away.",
                None,
                admin,
                answer=ClusterNodeView,
            ),
            posted(
                _NODE + "/revive",
                self._revive,
                "Let a drained node serve again.",
                None,
                admin,
                answer=ClusterNodeView,
            ),
            deleted(
                _NODE,
                self._forget,
                "Remove a node from the cluster; 202 while it still has replicas.",
                admin,
                query=(replicas,),
                answer=ForgetView,
                codes=(202,),
            ),
        ]

    async def _named(self, request: web.Request) -> Node:
        return await known_node(self._node, request.match_info["node"])

    async def _list(self, request: web.Request) -> web.Response:
        loads = await self._node.operations.loads()
        rows = [self._view(node, loads) for node in self._node.view.nodes()]
        return await listing(request, rows, msgspec.to_builtins)

    async def _get(self, request: web.Request) -> web.Response:
        return await self._answer(await self._named(request))

    async def _answer(self, node: Node) -> web.Response:
        return json_answer(self._view(node, await self._node.operations.loads()))

    def _view(self, node: Node, loads: dict[int, NodeLoad]) -> ClusterNodeView:
        load = loads.get(node.id)
        placed = self._node.operations.placed_on(node.id)
        clock = self._node.operations.clock(node.id)
        idle = load is None or (load.leaders == load.alone and load.connections == 0)
        return ClusterNodeView(
            node.id,
            node.name,
            node.address,
            node.id in self._node.operations.up(),
            node.maintenance,
            node.maintenance and idle,
            load.leaders if load is not None else None,
            load.alone if load is not None else None,
            load.connections if load is not None else None,
            len(placed),
            sum(node.id in queue.leaving for queue in placed),
            clock.skew_ms if clock is not None else None,
            clock.warning if clock is not None else "",
        )

    async def _join(self, request: web.Request) -> web.Response:
        body = await decode(request, JoinBody)
        return await self._answer(
            await self._node.operations.admit(Node(body.id, body.name, body.address))
        )

    async def _drain(self, request: web.Request) -> web.Response:
        node = await self._named(request)
        return await self._answer(await self._node.operations.set_maintenance(node, True))

    async def _revive(self, request: web.Request) -> web.Response:
        node = await self._named(request)
        return await self._answer(await self._node.operations.set_maintenance(node, False))

    async def _forget(self, request: web.Request) -> web.Response:
        node = await self._named(request)
        what = request.query.get("replicas", KEEP)
        if what not in (KEEP, MOVE, SHRINK):
            raise bad_request(f"replicas: '{what}' is not {KEEP}, {MOVE} or {SHRINK}")
        problems: list[str] = []
        if what != KEEP:
            problems = await self._empty(node, what == MOVE)
            left = len(self._replicas(node))
            if left:
                return json_answer(ForgetView(False, left, problems), 202)
        await self._node.operations.forget(node)
        return json_answer(ForgetView(True, 0, []))

    def _replicas(self, node: Node) -> list[str]:
        placed = self._node.operations.placed_on(node.id)
        return [queue.name for queue in placed if queue.logged]

    async def _empty(self, node: Node, move: bool) -> list[str]:
        """Take replicas off a node, wait a while for them, and return why some stay."""
        operations = self._node.operations
        others = spares(self._node, node) if move else {}
        steps = shrink(operations.placed_on(node.id), node.id, operations.up(), others)
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
