"""Collector of stopped publishers and queues of all nodes, combined into one picture."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from headrace_broker.catalog.view import CatalogView
from headrace_broker.flow.backlog import backlog_causes, is_backlog
from headrace_broker.flow.blame import Names, causes_at, heaviest
from headrace_broker.flow.explanation import ALARMS, binding_group, binding_limit
from headrace_broker.model.flow import FLOW, LIMIT_NAMES, LIMIT_WATERMARK
from headrace_broker.model.flow_status import (
    AccountStatus,
    BroughtStatus,
    CauseStatus,
    ConnectionFlow,
    FlowRow,
    QueueFlow,
)
from headrace_broker.model.limits import (
    FLOW_ROWS_MAX,
    WATCH_CAUSES_MS,
    WATCH_GROUPS_MAX,
    WATCH_STALE_MS,
)
from headrace_broker.runtime.explain.flow_facts import ACCOUNT, BROUGHT, CONNECTION, QUEUE
from headrace_broker.runtime.explain.flow_report import FlowReport, of_kind
from headrace_broker.runtime.rpc.question import Flow

OWN: Final = 0  # stands for this node among the ids of the others
ROWS_MAX: Final = 2 * (FLOW_ROWS_MAX + 1)  # of a node: connections and queues, and one more of each
LATE: Final = 2  # times the patience without an answer, and a node counts as missing

Key = tuple[str, str]  # "connection" and its id, or "queue" and its group


class FlowState(NamedTuple):
    """A connection or queue that is not running."""

    state: str  # as `model.flow` names them
    limit: str  # that which binds, by name
    group: int  # the queue behind it, 0 for none
    text: str = ""  # an alarm's reason, "" for none
    connection: ConnectionFlow | None = None  # when it is one
    queue: QueueFlow | None = None  # when it is one
    stopped_count: int = 0  # connections that wait for a queue, among those that are known
    causes: tuple[CauseStatus, ...] = ()  # who has loaded the queue behind it

    @property
    def mark(self) -> tuple[str, str, int, str]:
        """Identity of the state without its figures: another mark is another state."""
        first = self.causes[0].account if self.causes else ""
        return (self.state, self.limit, self.group, first)


class FlowSnapshot(NamedTuple):
    """The cluster at one look."""

    states: Mapping[Key, FlowState] = {}  # of all that is known not to be running
    missing: tuple[str, ...] = ()  # nodes that did not answer; their states are old for a while
    left_out: int = 0  # connections that are stopped and not among the states, at least


class FlowCollector:
    """Collector of the flow control of all nodes, one collection after the other.

    A node that is slow is not asked twice at once, and delays a look by `patience_s` at most.
    """

    def __init__(self, report: FlowReport, view: CatalogView, patience_s: float) -> None:
        self._report = report  # asks the nodes
        self._view = view
        self._patience_s = patience_s  # seconds that a look, and causes, wait for answers
        self._now = asyncio.get_running_loop().time
        self._rows: dict[int, list[FlowRow]] = {}
        self._heard: dict[int, float] = {}
        self._asking: dict[int, asyncio.Task[list[FlowRow] | None]] = {}
        self._causes: dict[int, tuple[float, tuple[CauseStatus, ...]]] = {}

    async def poll(self) -> FlowSnapshot:
        """Return how it stands now."""
        await self._ask()
        states, left_out = self._fold()
        await self._find_causes(states)
        explained = {key: self._explained(state) for key, state in states.items()}
        peers = self._report.peers
        missing = tuple(name for peer, name in peers.items() if not self._answers(peer))
        return FlowSnapshot(explained, missing, left_out)

    def close(self) -> None:
        """Cancel all waits for answers."""
        for task in self._asking.values():
            task.cancel()
        self._asking.clear()

    # Asking

    async def _ask(self) -> None:
        groups = sorted({group for row in self._connections() if (group := _group(row))})
        question = Flow(
            (CONNECTION, QUEUE),
            stopped=True,
            groups=tuple(groups[:FLOW_ROWS_MAX]),
            rows_max=FLOW_ROWS_MAX + 1,
        )
        self._rows[OWN] = list(islice(self._report.facts.rows(question), ROWS_MAX))
        for peer in self._report.peers:
            if peer not in self._asking:
                work = self._report.rows_of(peer, question, ROWS_MAX)
                self._asking[peer] = asyncio.create_task(work, name="flow-question")
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=self._patience_s)
        self._hear()

    def _hear(self) -> None:
        now, peers = self._now(), self._report.peers
        for peer, task in list(self._asking.items()):
            if task.done():
                del self._asking[peer]
                rows = task.result()
                if rows is not None:
                    self._rows[peer] = rows
                    self._heard[peer] = now
        for peer, heard in list(self._heard.items()):
            if peer not in peers or now - heard > WATCH_STALE_MS / 1000:
                del self._heard[peer], self._rows[peer]

    def _answers(self, peer: int) -> bool:
        """Return whether a node answered lately."""
        heard = self._heard.get(peer)
        return heard is not None and self._now() - heard <= LATE * self._patience_s

    def _connections(self) -> Iterable[ConnectionFlow]:
        for rows in self._rows.values():
            yield from of_kind(rows, ConnectionFlow)

    # Folding

    def _fold(self) -> tuple[dict[Key, FlowState], int]:
        """Return what the rows come to, without causes, and how many are left out at least."""
        alarms = {alarm.kind: alarm.reason for alarm in self._report.facts.alarms()}
        states: dict[Key, FlowState] = {}
        stops: dict[int, Counter[str]] = {}
        left_out = 0
        for rows in self._rows.values():
            connections = of_kind(rows, ConnectionFlow)
            left_out += max(len(connections) - FLOW_ROWS_MAX, 0)
            for row in connections[:FLOW_ROWS_MAX]:
                limit = _limit(row, alarms)
                group = _group(row) if limit not in ALARMS else 0
                text = alarms.get(limit, "")
                states["connection", row.id] = FlowState(row.state, limit, group, text, row)
                if group:
                    stops.setdefault(group, Counter())[limit] += 1
        states.update(self._fold_queues(stops))
        return states, left_out

    def _fold_queues(self, stops: Mapping[int, Counter[str]]) -> dict[Key, FlowState]:
        led = {row.group: row for rows in self._rows.values() for row in of_kind(rows, QueueFlow)}
        states: dict[Key, FlowState] = {}
        for group in sorted({*led, *stops}):
            queue = self._view.queue_by_group(group)
            if queue is None:
                continue
            row = led.get(group)
            if row is None:  # it has no leader, or the leader has not answered
                row = QueueFlow(queue.vhost, queue.name, group, "", queue.kind)
            count = stops.get(group, Counter())
            limit = LIMIT_NAMES[LIMIT_WATERMARK] if row.saturated else _commonest(count)
            if limit:
                stopped = count.total()
                state = FlowState(FLOW, limit, group, queue=row, stopped_count=stopped)
                states["queue", str(group)] = state
        return states

    # Causes

    async def _find_causes(self, states: Mapping[Key, FlowState]) -> None:
        """Ask for the causes of queues that stop something: some at a time, the oldest first."""
        now = self._now()
        needed = dict.fromkeys(state.group for state in states.values() if _has_causes(state))
        self._causes = {group: each for group, each in self._causes.items() if group in needed}
        due = [group for group in needed if self._age(group, now) > WATCH_CAUSES_MS / 1000]
        due.sort(key=lambda group: -self._age(group, now))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                filled = [_filled(states, each) for each in due[:WATCH_GROUPS_MAX]]
                await asyncio.gather(*map(self._ask_causes, due, filled))

    def _age(self, group: int, now: float) -> float:
        known = self._causes.get(group)
        return now - known[0] if known is not None else float("inf")

    async def _ask_causes(self, group: int, queue: QueueFlow | None) -> None:
        """Ask answering nodes about a queue's accounts; 0 for all, when an alarm is on.

        `queue` is one whose contents stop publishers, None where its load does.
        """
        question = Flow((ACCOUNT, BROUGHT) if queue is not None else (ACCOUNT,), group=group)
        peers = [peer for peer in self._report.peers if self._answers(peer)]
        rows = list(islice(self._report.facts.rows(question), FLOW_ROWS_MAX))
        answers = (self._report.rows_of(peer, question, FLOW_ROWS_MAX) for peer in peers)
        for answer in await asyncio.gather(*answers):
            rows += answer or ()
        accounts = of_kind(rows, AccountStatus)
        names = self._names(accounts)
        brought = of_kind(rows, BroughtStatus)
        if queue is not None and brought:
            causes = backlog_causes(queue, brought, names)
        else:
            causes = causes_at(group, accounts, names) if group else heaviest(accounts, names)
        self._causes[group] = (self._now(), tuple(causes))

    def _names(self, accounts: Iterable[AccountStatus]) -> Names:
        groups = {balance.group for account in accounts for balance in account.balances}
        found = [(group, self._view.queue_by_group(group)) for group in groups]
        return {group: (queue.vhost, queue.name) for group, queue in found if queue is not None}

    def _explained(self, state: FlowState) -> FlowState:
        known = self._causes.get(state.group) if _has_causes(state) else None
        return state._replace(causes=known[1]) if known is not None else state


def _filled(states: Mapping[Key, FlowState], group: int) -> QueueFlow | None:
    """Return a queue if it stops publishers by what stands in it."""
    state = states.get(("queue", str(group)))
    return state.queue if state is not None and is_backlog(state.limit, state.queue) else None


def _has_causes(state: FlowState) -> bool:
    return state.group != 0 or state.limit in ALARMS


def _limit(row: ConnectionFlow, alarms: Mapping[str, str]) -> str:
    """Return the limit that binds a connection; for a blocked one, an alarm."""
    limit = binding_limit(row.flow)
    return limit if limit or row.state == FLOW else next(iter(alarms), "")


def _group(row: ConnectionFlow) -> int:
    return binding_group(row.flow, None)


def _commonest(counts: Counter[str]) -> str:
    """Return the most frequent value, of several the first by name; "" for none."""
    return min(counts, key=lambda name: (-counts[name], name), default="")
