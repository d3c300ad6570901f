"""Operations of administrators on nodes, replicas and leaders."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from headrace_broker.catalog.cluster_version import CLUSTER_VERSION
from headrace_broker.catalog.command import (
    AdmitNode,
    AnyCommand,
    ForgetNode,
    RaiseClusterVersion,
    SetMaintenance,
    SetMembers,
)
from headrace_broker.catalog.movement import Led, Movable, Step, has_quorum
from headrace_broker.catalog.result import Exists, NotFound, Ok, Result, UpgradePending
from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.definition import Node, Queue
from headrace_broker.model.limits import LISTING_ROWS_MAX
from headrace_broker.model.reply_code import (
    INTERNAL_ERROR,
    NOT_FOUND,
    PRECONDITION_FAILED,
    AmqpError,
    UpgradePendingError,
)
from headrace_broker.model.shard import SHARD_IDS, belongs_to, processes_of
from headrace_broker.model.status import ClockStatus, LedQueue, MemberStatus, NodeLoad
from headrace_broker.runtime.cluster.node_directory import address_problem, takeover_problem
from headrace_broker.runtime.cluster.rebalance import Rebalance
from headrace_broker.runtime.hosting.replica_report import ReplicaReport
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.listing import rows_of, serve_rows
from headrace_broker.runtime.rpc.protocol import RpcError
from headrace_broker.runtime.rpc.question import Leads, Load, Replicas, Transfer

TRANSFER_SECONDS_MAX: Final = 10.0  # until a leadership has to be where it was to go
LOOK_SECONDS: Final = 0.1  # between looks whether it is

log = logging.getLogger("headrace.cluster")


class StepOutcome(NamedTuple):
    """Outcome of a step."""

    queue: Queue  # as it is now, or was when nothing was done
    problem: str  # why nothing was done, "" when the change is in the catalog


def _unmeasured(node: int) -> ClockStatus | None:
    return None


class ClusterFacts(NamedTuple):
    """Facts about the cluster for operations."""

    node: int  # this node's id
    view: CatalogView
    up: Callable[[], frozenset[int]]  # returns the ids of the nodes that run, this one among them
    avoided: Callable[[], Collection[int]]  # returns the ids of nodes that are not to lead
    others: Mapping[int, str]  # name by id of the other nodes; they may change
    # has the catalog make a change; AmqpError INTERNAL_ERROR where it has no quorum
    submit: Callable[[AnyCommand], Awaitable[Result]]
    # returns the ids of the nodes that vote on the catalog
    catalog_voters: Callable[[], Collection[int]]
    # returns how a node's clocks stand, None while they were not measured
    clock: Callable[[int], ClockStatus | None] = _unmeasured


class Operations:
    """Moves replicas and leaderships, wherever they are."""

    def __init__(self, around: ClusterFacts, rpc: Rpc, report: ReplicaReport) -> None:
        self._around = around
        self._rpc = rpc  # asks other nodes
        self._report = report  # answers for this one
        self.rebalance = Rebalance(around.view, self._fit, self.leads, self._hand_over)
        serve_rows(rpc, Leads, report.rows)
        serve_rows(rpc, Load, report.rows)
        serve_rows(rpc, Replicas, report.rows)
        rpc.serve(Transfer, lambda _, question: report.transfer(question))

    def up(self) -> frozenset[int]:
        """Return the ids of the nodes that run."""
        return self._around.up()

    def clock(self, node: int) -> ClockStatus | None:
        """Return how a node's clocks stand, None while they were not measured."""
        return self._around.clock(node)

    # Replicas

    async def members(self, queue: Queue) -> list[MemberStatus]:
        """Return what a queue's leader knows of its replicas; nothing while it has none."""
        question = Replicas(queue.group)
        own = self._around.node
        here = list(self._report.rows(question))
        if here:
            return [row for row in here if isinstance(row, MemberStatus)]
        places = [n for n in (*queue.members, *queue.leaving) if n != own and n in self.up()]
        answers = await asyncio.gather(*(self._asked(node, question) for node in places))
        return next((rows for rows in answers if rows), [])

    async def _asked(self, node: int, question: Replicas) -> list[MemberStatus]:
        try:
            rows, _ = await rows_of(self._rpc, node, question, MemberStatus)
        except RpcError:
            return []
        return rows

    async def apply_steps(self, steps: Sequence[Step]) -> list[StepOutcome]:
        """Apply steps in the catalog, one after the other; their queues' leaders do the rest.

        Raises AmqpError: INTERNAL_ERROR, the catalog has no quorum; some may be taken.
        """
        outcomes: list[StepOutcome] = []
        for step in steps:
            if step.problem:
                outcomes.append(StepOutcome(step.queue, step.problem))
                continue
            queue = step.queue
            command = SetMembers(queue.vhost, queue.name, queue.group, step.add, step.remove)
            result = await self._around.submit(command)
            if isinstance(result, Ok):
                outcomes.append(StepOutcome(result.value, ""))
            elif isinstance(result, Exists):
                outcomes.append(StepOutcome(result.current, ""))
            else:
                outcomes.append(StepOutcome(queue, result.text))
        return outcomes

    def placed_on(self, node: int) -> list[Queue]:
        """Return the queues with a replica on a node, or one on its way out."""
        found = self._around.view.queues()
        return [queue for queue in found if node in (*queue.members, *queue.leaving)]

    async def loads(self) -> dict[int, NodeLoad]:
        """Return what the nodes do that answer, by id."""
        peers = [node for node in self._around.others if node in self.up()]
        answers = await asyncio.gather(*(self._load_of(node) for node in peers))
        found = {n: rows[0] for n, rows in zip(peers, answers, strict=True) if rows}
        return {**found, self._around.node: self._report.load()}

    async def _load_of(self, node: int) -> list[NodeLoad]:
        try:
            rows, _ = await rows_of(self._rpc, node, Load(), NodeLoad, 1)
        except RpcError:
            return []
        return rows

    # Nodes

    async def admit(self, node: Node) -> Node:
        """Let a node join that has yet to be started, or that asks for it and has no data.

        A further process of a node is drained if that is.

        Raises AmqpError: PRECONDITION_FAILED, it cannot be; INTERNAL_ERROR, no quorum.
        """
        problem = address_problem(node.address) or takeover_problem(
            self._around.view.node(node.id), node, self.up()
        )
        if problem:
            raise AmqpError(PRECONDITION_FAILED, problem)
        found: Node = _done(await self._around.submit(AdmitNode(node)))
        first = self._around.view.node(node.id % SHARD_IDS)
        if first is not None and first.maintenance and belongs_to(node, first):
            found = _done(await self._around.submit(SetMaintenance(node.id, True)))
            first = self._around.view.node(first.id)
            if first is None or not first.maintenance:  # it was revived meanwhile
                found = _done(await self._around.submit(SetMaintenance(node.id, False)))
        return found

    async def set_maintenance(self, node: Node, on: bool) -> Node:
        """Drain a node with its further processes, or revive it; they do so by themselves.

        Raises:
            AmqpError: PRECONDITION_FAILED, no other node serves clients; INTERNAL_ERROR, no quorum.
        """
        own = [each.id for each in processes_of(node, self._around.view.nodes())]
        serving = self.up().difference(self._around.avoided(), own)
        if on and not serving:
            text = f"node '{node.name}' cannot be drained: no other node would serve clients"
            raise AmqpError(PRECONDITION_FAILED, text)
        found = node
        for process in own:
            found = _done(await self._around.submit(SetMaintenance(process, on)))
        for each in processes_of(node, self._around.view.nodes()):
            if each.id not in own:  # it joined before this; later ones are drained as they join
                _done(await self._around.submit(SetMaintenance(each.id, on)))
        return found

    async def raise_version(self) -> int:
        """Use what this release knows in the whole cluster, for good; return the cluster version.

        Raises AmqpError: PRECONDITION_FAILED, it names the nodes of an older release;
        INTERNAL_ERROR, no quorum.
        """
        version: int = _done(await self._around.submit(RaiseClusterVersion(CLUSTER_VERSION)))
        return version

    async def forget(self, node: Node) -> None:
        """Remove a node, or one of its further processes, from the cluster.

        Raises AmqpError: PRECONDITION_FAILED, as `check_forget`, or it has replicas;
        INTERNAL_ERROR, no quorum.
        """
        self.check_forget(node)
        _done(await self._around.submit(ForgetNode(node.id, bars_unknown=not node.disk)))

    def check_forget(self, node: Node) -> None:
        """Refuse to remove a node for what can be seen before its replicas leave.

        Raises AmqpError: PRECONDITION_FAILED, it serves clients, is this one, or the catalog would
        have no majority without it.
        """
        problem = ""
        if node.id == self._around.node:
            problem = "it is the one that was asked: ask another one"
        elif node.id in self.up() and node.id not in self._around.avoided():
            problem = "it runs: drain it first, or stop it"
        else:
            problem = self._catalog_problem(node.id)
        if problem:
            text = f"node '{node.name}' cannot be forgotten: {problem}"
            raise AmqpError(PRECONDITION_FAILED, text)

    def _catalog_problem(self, node: int) -> str:
        """Return why the catalog needs a node's vote, "" when it does not."""
        rest = [voter for voter in self._around.catalog_voters() if voter != node]
        missing = sum(voter not in self.up() for voter in rest)
        if not rest or has_quorum(rest, self.up()):
            return ""
        return (
            f"of the {len(rest)} other nodes that vote on the catalog, {missing} are down, so it "
            "would have no majority: start or forget those first"
        )

    # Leaders

    async def transfer(self, queue: Queue, node: Node) -> None:
        """Transfer a queue's leadership to a node, and wait until it leads.

        Raises AmqpError: PRECONDITION_FAILED, the node cannot lead it; INTERNAL_ERROR, it does not
        in time.
        """
        what = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        problem = self._transfer_problem(queue, node)
        if problem:
            text = f"{what} cannot be led by '{node.name}': {problem}"
            raise AmqpError(PRECONDITION_FAILED, text)
        if not await self._transfer(queue, node.id, by_hand=True):
            text = f"{what} is not led by '{node.name}' after {TRANSFER_SECONDS_MAX:g} s"
            raise AmqpError(INTERNAL_ERROR, text)

    def _transfer_problem(self, queue: Queue, node: Node) -> str:
        if not queue.logged:
            return "it lives in the memory of its node"
        if node.id not in queue.members:
            return "it has no replica there"
        if node.id not in self.up():
            return "the node is down"
        if node.id in self._around.avoided():
            return "the node is being drained"
        return ""

    async def move(self, queue: Queue, target: int) -> bool:
        """Try until a queue is led by a node, unasked; return False when the time is over."""
        return await self._transfer(queue, target, by_hand=False)

    async def _transfer(self, queue: Queue, target: int, by_hand: bool) -> bool:
        """Try until a queue is led by a node; return False when the time is over."""
        try:
            async with asyncio.timeout(TRANSFER_SECONDS_MAX):
                if by_hand:  # the node is to keep it for a while
                    await self._begin(target, Transfer(queue.group, target, by_hand=True))
                while True:
                    rows = await self.members(queue)
                    leader = next((row.node for row in rows if row.leader), 0)
                    if leader == target:
                        return True
                    if leader:
                        await self._begin(leader, Transfer(queue.group, target))
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            return False

    async def _begin(self, node: int, question: Transfer) -> None:
        try:
            await self._rpc.ask(node, question)
        except RpcError as error:
            log.info("leadership transfer skipped: %s", error)

    async def _hand_over(self, queue: Queue, target: int) -> bool:
        return await self._transfer(queue, target, by_hand=True)

    def _fit(self) -> frozenset[int]:
        return self.up().difference(self._around.avoided())

    @property
    def is_rebalancing(self) -> bool:
        """Return True while a rebalance runs that was begun through this node."""
        return self.rebalance.is_running

    async def leads(self) -> tuple[list[Led], list[str]]:
        """Return who leads what, and the names of nodes that did not answer though they run."""
        names = dict(self._around.others)
        nodes = [self._around.node, *(node for node in names if node in self.up())]
        answers = await asyncio.gather(*(self.movable(node, Leads()) for node in nodes))
        found: list[Led] = []
        missing: list[str] = []
        for node, rows in zip(nodes, answers, strict=True):
            if rows is None:
                missing.append(names[node])
            else:
                found += [each.led for each in rows]
        return found, missing

    async def movable(
        self, node: int, question: Leads, rows_max: int = LISTING_ROWS_MAX
    ) -> list[Movable] | None:
        """Return queues that a node leads, `rows_max` at most; None where it does not answer."""
        rows: list[Any]
        rows_max = min(rows_max, LISTING_ROWS_MAX)
        if node == self._around.node:
            rows = list(islice(self._report.rows(question), rows_max))
        else:
            try:
                rows, _ = await rows_of(self._rpc, node, question, LedQueue, rows_max)
            except RpcError:
                return None
        return [Movable(Led(row.group, node, row.candidates), row.busy, row.chosen) for row in rows]


def _done(result: Result) -> Any:
    """Return the value of the catalog's answer.

    Raises AmqpError: PRECONDITION_FAILED, it did nothing; NOT_FOUND, there is nothing to change.
    """
    if isinstance(result, Ok):
        return result.value
    if isinstance(result, Exists):
        return result.current
    if isinstance(result, UpgradePending):
        raise UpgradePendingError(result.text)
    code = NOT_FOUND if isinstance(result, NotFound) else PRECONDITION_FAILED
    raise AmqpError(code, result.text)
