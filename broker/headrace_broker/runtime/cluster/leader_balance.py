"""Spreads the leaders of queues by itself: looks now and then, and hands a few over.

The node that leads the catalog does it for the cluster, so that there is one. It does nothing
while nodes come or go, while elections go on, or while somebody spreads leaders by hand.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

from headrace_broker.catalog.movement import (
    Handover,
    Movable,
    has_quorum,
    idle_at_once,
    is_uneven,
    lighter_nodes,
    spread,
)
from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import (
    BALANCE_BUSY_AT_ONCE,
    BALANCE_LOOK_SECONDS,
    BALANCE_REST_SECONDS,
    BALANCE_STEADY_LOOKS,
    LISTING_ROWS_MAX,
)
from headrace_broker.model.status import NodeLoad
from headrace_broker.runtime.rpc.question import Leads

OFF: Final = "off"
ELSEWHERE: Final = "elsewhere"  # another node decides
WAITING: Final = "waiting"
EVEN: Final = "even"
MOVING: Final = "moving"
GIVER_QUESTIONS_MAX: Final = 3  # to one node about what it could hand over, each for more

log = logging.getLogger("headrace.cluster")


class AutomaticBalance(msgspec.Struct):
    """State of the automatic balance of leaders, as the asked node knows it.

    Attributes:
        state: "off" (by its configuration), "elsewhere" (another node leads the catalog, and
            decides), "waiting", "even" or "moving".
        text: why, in a sentence.
        decides: name of the node that decides, "" while none does.
        handed_over: leaderships that this node has had handed over since its start.
        failed: those that it could not.
    """

    state: str = OFF
    text: str = "cluster.balance_leaders is off"
    decides: str = ""
    handed_over: int = 0
    failed: int = 0


class BalanceAround(NamedTuple):
    """Surroundings of the balance."""

    node: int  # this node's id
    view: CatalogView
    decider: Callable[[], int]  # returns the id of the node that leads the catalog, 0 for none
    up: Callable[[], frozenset[int]]  # returns the ids of the nodes that run, this one among them
    avoided: Callable[[], Collection[int]]  # returns the ids of nodes that are not to lead
    names: Mapping[int, str]  # of all nodes by id; they may change
    seconds: Callable[[], float] = time.monotonic  # a time that only goes forward


class Leaderships(Protocol):
    """The part of `runtime.cluster.operations.Operations` that the balance needs."""

    @property
    def is_rebalancing(self) -> bool:
        """Return True while a manual rebalance runs."""

    async def movable(self, node: int, question: Leads, rows_max: int) -> list[Movable] | None:
        """Return queues that a node leads, `rows_max` at most; None where it does not answer."""

    async def loads(self) -> dict[int, NodeLoad]:
        """Return what the nodes do that answer, by id."""

    async def move(self, queue: Queue, target: int) -> bool:
        """Try until a queue is led by a node; return False when the time is over."""


class LeaderBalance:
    """Balance of leaders, checked every BALANCE_LOOK_SECONDS."""

    def __init__(
        self,
        around: BalanceAround,
        operations: Leaderships,
        enabled: bool,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.status = AutomaticBalance()  # what is shown of it; changed in place
        self._around = around  # the cluster
        self._operations = operations  # asks the nodes, and hands leaderships over
        self._enabled = enabled  # whether it does anything
        self._wait = wait  # lets time pass
        self._task: asyncio.Task[None] | None = None
        self._fit: frozenset[int] = frozenset()
        self._steady = 0  # looks in a row that found these nodes fit
        self._going = False
        self._rests: dict[int, float] = {}  # groups: until when they stay where they are

    def start(self) -> None:
        """Start the periodic check."""
        if self._enabled:
            self._say(ELSEWHERE, "this node has not looked yet")
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._look_forever(), name="leader balance")
            self._task.add_done_callback(_report)

    async def stop(self) -> None:
        """Stop the periodic check."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look_forever(self) -> None:
        while True:
            await self._wait(BALANCE_LOOK_SECONDS)
            await self.poll()

    async def poll(self) -> None:
        """Check once, and hand over a few leaderships if that is due."""
        decider = self._around.decider()
        self.status.decides = self._around.names.get(decider, "")
        if decider != self._around.node:
            who = f"node '{self.status.decides}'" if self.status.decides else "no node"
            self._say(ELSEWHERE, f"{who} leads the catalog")
            self._disturbed()
            return
        if self._operations.is_rebalancing:
            self._say(WAITING, "a rebalance goes on that somebody began")
            return
        loads = await self._operations.loads()
        problem = self._problem(loads)
        if problem:
            self._say(WAITING, problem)
            return
        await self._spread(self._counts(loads))

    def _problem(self, loads: Mapping[int, NodeLoad]) -> str:
        """Return why nothing moves after this look, "" when something may."""
        around = self._around
        missing = around.up() - loads.keys()
        if missing:
            return self._silent(missing)
        fit = fit_nodes(loads, around.up(), around.avoided())
        if fit != self._fit:
            self._fit = fit
            self._disturbed()
        self._steady += 1
        if self._steady < BALANCE_STEADY_LOOKS:
            looks = f"{self._steady} of {BALANCE_STEADY_LOOKS} looks"
            return f"nodes have come or gone: {looks} found the same ones fit to lead"
        return ""

    def _silent(self, missing: Collection[int]) -> str:
        self._disturbed()
        names = sorted(self._name(node) for node in missing)
        return f"these nodes do not answer: {', '.join(names)}"

    def _counts(self, loads: Mapping[int, NodeLoad]) -> dict[int, int]:
        """Return how many queues each node leads: the fit ones, and others that lead some."""
        counts = dict.fromkeys(sorted(self._fit), 0)
        for node, load in loads.items():
            led = load.leaders - (node == self._around.node)  # this one leads the catalog as well
            if led > 0:
                counts[node] = led
        return counts

    def _leaderless(self, led: int) -> int:
        """Return how many queues that could have a leader have none, by the number of those led."""
        up = self._around.up()
        queues = self._around.view.queues()
        return sum(queue.logged and has_quorum(queue.members, up) for queue in queues) - led

    async def _spread(self, counts: Mapping[int, int]) -> None:
        moves: list[Handover] = []
        if self._going or is_uneven(counts, self._fit):
            waiting = self._leaderless(sum(counts.values()))
            if waiting > 0:
                self._say(WAITING, f"{waiting} queues have no leader yet")
                return
            moves, missing = await self._plan(counts)
            if missing:
                self._say(WAITING, self._silent(missing))
                return
        figures = ", ".join(f"{self._name(node)} {count}" for node, count in counts.items())
        if not moves:
            if self._going:
                log.info("leaders balanced: %s", figures)
            self._going = False
            self._say(EVEN, f"queues led: {figures}")
            return
        self._going = True
        self._say(MOVING, f"queues led: {figures}")
        log.info("leaders unbalanced (%s): transferring %d", figures, len(moves))
        await self._hand_over_all(moves)

    async def _plan(self, counts: Mapping[int, int]) -> tuple[list[Handover], list[int]]:
        """Return the next handovers, and the ids of nodes that do not say what they could give.

        Nodes are asked for as many of their queues as may be handed over after one look.
        """
        now = self._around.seconds()
        self._rests = {group: end for group, end in self._rests.items() if end > now}
        fewest = min((counts.get(node, 0) for node in self._fit), default=0)
        lightest = frozenset(node for node in self._fit if counts.get(node, 0) == fewest)
        for takers, busy, at_once in (
            (lightest, False, idle_at_once(counts)),
            (self._fit, False, idle_at_once(counts)),
            (self._fit, True, BALANCE_BUSY_AT_ONCE),
        ):
            queues, missing = await self._givers(counts, takers, busy, at_once)
            moves = [] if missing else spread(queues, counts, self._fit)
            if moves or missing:
                return moves, missing
        return [], []

    async def _givers(
        self, counts: Mapping[int, int], takers: Collection[int], busy: bool, at_once: int
    ) -> tuple[list[Movable], list[int]]:
        """Return queues that could be handed over, and the ids of nodes that do not answer."""
        givers = {
            node: Leads(targets=targets, busy=busy)
            for node in counts
            if node not in self._around.avoided()
            if (targets := lighter_nodes(node, counts, takers))
        }
        asked = (self._given_by(node, question, at_once) for node, question in givers.items())
        answers = await asyncio.gather(*asked)
        missing = [node for node, rows in zip(givers, answers, strict=True) if rows is None]
        return [each for rows in answers for each in rows or ()], missing

    async def _given_by(self, node: int, question: Leads, at_once: int) -> list[Movable] | None:
        """Return queues that a node could hand over; None where it does not answer.

        A node of release 0.2.0 answers with the first of all that it leads, whatever is asked:
        where some do not fit, it is asked for all.
        """
        found: list[Movable] = []
        rows_max = at_once
        for _ in range(GIVER_QUESTIONS_MAX):
            rows = await self._operations.movable(node, question, rows_max)
            if rows is None:
                return None
            fitting = [each for each in rows if _fits(each, question)]
            found = [each for each in fitting if each.led.group not in self._rests]
            if len(found) >= at_once or len(rows) < rows_max:
                break
            is_older = len(fitting) < len(rows)
            rows_max = LISTING_ROWS_MAX if is_older else at_once + len(self._rests)
        return found

    async def _hand_over_all(self, moves: list[Handover]) -> None:
        """Hand over one after the other, until it is time to look at the nodes again."""
        around = self._around
        until = around.seconds() + BALANCE_LOOK_SECONDS
        for number, move in enumerate(moves):
            if around.seconds() >= until or not self._may_decide():
                log.info(
                    "round ended after %d of %d transfers: nodes are looked at again",
                    number,
                    len(moves),
                )
                break
            await self._hand_over(move)

    def _may_decide(self) -> bool:
        return self._around.decider() == self._around.node and not self._operations.is_rebalancing

    async def _hand_over(self, move: Handover) -> None:
        around = self._around
        queue = around.view.queue_by_group(move.group)
        if queue is None or move.target in around.avoided() or move.target not in around.up():
            return  # it is gone, or the node is: the next look finds out
        self._rests[move.group] = around.seconds() + BALANCE_REST_SECONDS
        what = (queue.name, queue.vhost, self._name(move.source), self._name(move.target))
        if await self._operations.move(queue, move.target):
            self.status.handed_over += 1
            log.debug("leader of queue %r in vhost %r moved from %s to %s", *what)
        else:
            self.status.failed += 1
            log.info("leader of queue %r in vhost %r could not be moved from %s to %s", *what)

    def _disturbed(self) -> None:
        self._steady = 0
        self._going = False

    def _name(self, node: int) -> str:
        return self._around.names.get(node, str(node))

    def _say(self, state: str, text: str) -> None:
        self.status.state = state
        self.status.text = text


def _fits(queue: Movable, question: Leads) -> bool:
    """Return whether a queue is among those that were asked for."""
    able = not set(question.targets).isdisjoint(queue.led.candidates)
    return able and queue.busy is question.busy and not queue.stays


def fit_nodes(
    loads: Mapping[int, NodeLoad], up: Collection[int], avoided: Collection[int]
) -> frozenset[int]:
    """Return the nodes that may get leaders.

    Args:
        loads: what nodes say of themselves.
        up: ids of the nodes that run.
        avoided: ids of nodes that are not to lead.
    """
    cut_off: set[int] = set()
    for node in up:
        missed = [peer for peer in loads[node].unheard if peer in up]
        if missed:  # the link is bad, and nobody knows at which end
            cut_off.update((node, *missed))
    unfit = {node for node in up if loads[node].unfit}
    return frozenset(up) - cut_off - unfit - frozenset(avoided)


def _report(task: asyncio.Task[None]) -> None:
    """Log an error that has no waiter."""
    if not task.cancelled() and task.exception() is not None:
        log.error("automatic leader balancing stopped", exc_info=task.exception())
