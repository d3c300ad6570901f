"""Replicas and leaders of queues: paths and bodies of RabbitMQ where it has the thing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec
from aiohttp import web

from headrace_broker.catalog.movement import Step, add_step, grow, remove_step, shrink
from headrace_broker.catalog.pattern import matches, pattern_problem
from headrace_broker.catalog.placement import Place, places_of
from headrace_broker.management.http.answer import ApiError, bad_request, done, json_answer
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.query import flag
from headrace_broker.management.http.route import (
    ADMINISTRATOR,
    Parameter,
    deleted,
    got,
    listed,
    posted,
    put,
)
from headrace_broker.model.definition import Node, Queue
from headrace_broker.model.status import MemberStatus
from headrace_broker.runtime.administration.administration import NodeAdministration
from headrace_broker.runtime.cluster.rebalance import RebalanceStatus

QUORUM: Final = "/api/queues/quorum"
_QUEUE: Final = QUORUM + "/{vhost}/{queue}"
_MEMBERS: Final = "/api/queues/{vhost}/{queue}/members"
_MOVE: Final = Parameter(
    "move",
    "With true, each replica goes to another node, so that queues keep their number of replicas.",
    {"type": "boolean"},
)


class NodeBody(msgspec.Struct):
    """Body that names a node.

    Attributes:
        node: its name.
    """

    node: str


class GrowBody(msgspec.Struct):
    """Body of POST .../grow.

    Attributes:
        strategy: "all", or "even" for queues with an even number of replicas only.
        vhost_pattern: regular expression for vhosts.
        queue_pattern: regular expression for queues.
    """

    strategy: Literal["all", "even"] = "all"
    vhost_pattern: str = ".*"
    queue_pattern: str = ".*"


class ChoiceBody(msgspec.Struct):
    """Which queues are meant: two regular expressions."""

    vhost_pattern: str = ".*"
    queue_pattern: str = ".*"


class MemberRow(msgspec.Struct):
    """A replica of a queue.

    Attributes:
        node: name of its node.
        member: its id in the queue's log.
        role: "voter", "learner" (it has yet to get everything), "leaving" (it still votes) or
            "missing" (wanted there, and not in the log yet).
        leader: whether it leads.
        running: whether its node runs.
        online: whether it answers the leader.
        wanted: whether the queue is to be there.
        match: log position known to be on its disk.
        lag: entries of the log that it lacks, None while unknown.
        fetching: it needs the leader's snapshot first.
    """

    node: str
    member: str = ""
    role: str = "missing"
    leader: bool = False
    running: bool = False
    online: bool = False
    wanted: bool = True
    match: int = 0
    lag: int | None = None
    fetching: bool = False


class MembersView(msgspec.Struct):
    """A queue's replicas.

    Attributes:
        leader: name of the node that leads it, "" for none.
        settled: whether all replicas are where they are wanted, and have what they need.
    """

    vhost: str
    name: str
    leader: str
    settled: bool
    revision: int
    members: list[MemberRow]


class StepView(msgspec.Struct):
    """Outcome of a queue's step, in the words of RabbitMQ.

    Attributes:
        result: "ok" or "error".
        size: replicas that it is to have.
    """

    vhost: str
    name: str
    result: str
    size: int
    reason: str = ""


class MemberEndpoints(Endpoints):
    """Answers requests about replicas and leaders."""

    async def _node_of(self, request: web.Request) -> Node:
        return await self._known_node(request.match_info["node"])

    # Looking

    @got(_MEMBERS, "Replicas of a queue, and how they are.", MembersView)
    async def _members(self, request: web.Request) -> web.Response:
        queue = await self._path_queue(request)
        return json_answer(self._view(queue, await self._node.operations.members(queue)))

    @listed(_QUEUE + "/status", "Replicas of a queue.", MemberRow)
    async def _status(self, request: web.Request) -> web.Response:
        queue = await self._path_queue(request)
        view = self._view(queue, await self._node.operations.members(queue))
        return await listing(request, view.members, msgspec.to_builtins, name=attrgetter("node"))

    def _view(self, queue: Queue, found: Sequence[MemberStatus]) -> MembersView:
        """Return what a queue's leader says, with those it should have besides."""
        there = {each.node for each in found}
        away = [node for node in queue.members if node not in there]
        rows = [self._row(queue, each) for each in found]
        if queue.logged:
            rows += [MemberRow(self._name(node), running=self._runs(node)) for node in away]
        else:
            runs = self._runs(away[0])
            rows = [MemberRow(self._name(away[0]), "", "voter", True, runs, runs, lag=0)]
        leader = next((row.node for row in rows if row.leader), "")
        settled = not queue.leaving and all(
            row.wanted and row.online and row.role == "voter" for row in rows
        )
        return MembersView(queue.vhost, queue.name, leader, settled, queue.revision, rows)

    def _row(self, queue: Queue, found: MemberStatus) -> MemberRow:
        return MemberRow(
            self._name(found.node),
            found.member,
            found.role,
            found.leader,
            self._runs(found.node),
            found.online,
            found.node in queue.members,
            found.match,
            found.lag if found.online else None,
            found.fetching,
        )

    def _name(self, node: int) -> str:
        found = self._node.view.node(node)
        return found.name if found is not None else str(node)

    def _runs(self, node: int) -> bool:
        return node in self._node.operations.up()

    # One replica

    async def _take(self, step: Step) -> web.Response:
        """Take a step that concerns one queue."""
        outcome = (await self._node.operations.apply_steps([step]))[0]
        if outcome.problem:
            queue = outcome.queue
            raise bad_request(f"queue '{queue.name}' in vhost '{queue.vhost}': {outcome.problem}")
        return done()

    async def _add_to(self, queue: Queue, node: Node) -> web.Response:
        if node.id in queue.members:
            return done()
        return await self._take(add_step(queue, node.id, self._places()))

    async def _remove_from(self, queue: Queue, node: Node, move: bool) -> web.Response:
        if node.id not in queue.members:
            return done()
        up = self._node.operations.up()
        if move:
            spare = self._spares(node)
            return await self._take(shrink([queue], node.id, up, spare, self._places())[0])
        return await self._take(remove_step(queue, node.id, up))

    @posted(_QUEUE + "/replicas/add", "Add a replica.", NodeBody, ADMINISTRATOR)
    async def _add_named(self, request: web.Request) -> web.Response:
        queue = await self._path_queue(request)
        body = await decode(request, NodeBody)
        return await self._add_to(queue, await self._known_node(body.node))

    @deleted(_QUEUE + "/replicas/delete", "Remove a replica.", ADMINISTRATOR, body=NodeBody)
    async def _remove_named(self, request: web.Request) -> web.Response:
        queue = await self._path_queue(request)
        body = await decode(request, NodeBody)
        return await self._remove_from(queue, await self._known_node(body.node), False)

    @put(_MEMBERS + "/{node}", "Add a replica.", None, ADMINISTRATOR)
    async def _add(self, request: web.Request) -> web.Response:
        return await self._add_to(await self._path_queue(request), await self._node_of(request))

    @deleted(_MEMBERS + "/{node}", "Remove a replica.", ADMINISTRATOR, query=(_MOVE,))
    async def _remove(self, request: web.Request) -> web.Response:
        queue, node = await self._path_queue(request), await self._node_of(request)
        return await self._remove_from(queue, node, flag(request, "move"))

    # Many

    @posted(
        QUORUM + "/replicas/on/{node}" + "/grow",
        "Give queues a replica on a node.",
        GrowBody,
        ADMINISTRATOR,
        answer=list[StepView],
    )
    async def _grow(self, request: web.Request) -> web.Response:
        node = await self._node_of(request)
        body = await decode(request, GrowBody)
        wanted = choice(body.vhost_pattern, body.queue_pattern)
        queues = [queue for queue in self._node.view.queues() if wanted(queue)]
        return await self._take_all(grow(queues, node.id, body.strategy, self._places()))

    @deleted(
        QUORUM + "/replicas/on/{node}" + "/shrink",
        "Take all replicas off a node.",
        ADMINISTRATOR,
        query=(_MOVE,),
        body=ChoiceBody,
        answer=list[StepView],
    )
    async def _shrink(self, request: web.Request) -> web.Response:
        node = await self._node_of(request)
        body = await decode(request, ChoiceBody)
        wanted = choice(body.vhost_pattern, body.queue_pattern)
        queues = [queue for queue in self._node.view.queues() if wanted(queue)]
        spares = self._spares(node) if flag(request, "move") else {}
        up = self._node.operations.up()
        return await self._take_all(shrink(queues, node.id, up, spares, self._places()))

    async def _take_all(self, steps: Sequence[Step]) -> web.Response:
        found = [
            StepView(
                outcome.queue.vhost,
                outcome.queue.name,
                "error" if outcome.problem else "ok",
                len(outcome.queue.members),
                outcome.problem,
            )
            for outcome in await self._node.operations.apply_steps(steps)
        ]
        return json_answer(found)

    def _spares(self, node: Node) -> dict[int, int]:
        return spares(self._node, node)

    def _places(self) -> dict[int, Place]:
        return places_of(self._node.view.nodes())

    # Leaders

    @put(
        "/api/queues/{vhost}/{queue}/leader", "Have a queue led by a node.", NodeBody, ADMINISTRATOR
    )
    async def _transfer(self, request: web.Request) -> web.Response:
        queue = await self._path_queue(request)
        body = await decode(request, NodeBody)
        await self._node.operations.transfer(queue, await self._known_node(body.node))
        return done()

    @got("/api/rebalance/queues", "The last rebalance.", RebalanceStatus)
    async def _balance(self, request: web.Request) -> web.Response:
        del request
        return json_answer(self._node.operations.rebalance.status)

    @posted(
        "/api/rebalance/queues",
        "Spread the leaders of queues over nodes.",
        ChoiceBody,
        ADMINISTRATOR,
        codes=(409,),
    )
    async def _rebalance(self, request: web.Request) -> web.Response:
        body = await decode(request, ChoiceBody)
        wanted = choice(body.vhost_pattern, body.queue_pattern)
        if not self._node.operations.rebalance.begin(wanted):
            reason = "a rebalance that was begun through this node has not ended"
            raise ApiError(409, "conflict", reason)
        return done()


def spares(node: NodeAdministration, leaving: Node) -> dict[int, int]:
    """Return how many replicas the nodes have that may take those of another one over."""
    view: Any = node.view
    return {
        each.id: view.replica_count(each.id)
        for each in view.nodes()
        if each.id != leaving.id and not each.maintenance
    }


def choice(vhost_pattern: str, queue_pattern: str) -> Callable[[Queue], bool]:
    """Return what says whether a queue is meant; ApiError 400 where an expression is none."""
    problem = pattern_problem("vhost_pattern", vhost_pattern) or pattern_problem(
        "queue_pattern", queue_pattern
    )
    if problem:
        raise bad_request(problem)
    return lambda queue: matches(vhost_pattern, queue.vhost) and matches(queue_pattern, queue.name)
