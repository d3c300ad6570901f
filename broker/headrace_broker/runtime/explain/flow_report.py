"""Explanation of a slow publisher or queue and its causes, from facts of all nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from headrace_broker.catalog.view import CatalogView
from headrace_broker.catalog.viewer import (
    EVERYBODY,
    HIDDEN,
    Viewer,
    shown_account,
    shown_brought,
    shown_connection,
)
from headrace_broker.flow.blame import load
from headrace_broker.flow.explanation import (
    ALARMS,
    binding_group,
    binding_limit,
    explain_connection,
    explain_queue,
)
from headrace_broker.flow.facts import Facts
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import BLOCKING, LIMIT_NAMES, LIMIT_RATE
from headrace_broker.model.flow_status import (
    AccountStatus,
    BroughtStatus,
    ConnectionFlow,
    Explanation,
    FlowRow,
    GateFlow,
    NodeFlow,
    QueueFlow,
)
from headrace_broker.model.limits import FLOW_CANDIDATES_MAX, FLOW_ROWS_MAX, LISTING_ROWS_MAX
from headrace_broker.runtime.explain.flow_facts import (
    ACCOUNT,
    BROUGHT,
    CONNECTION,
    GATE,
    NODE,
    QUEUE,
    FlowFacts,
    blocked_rank,
)
from headrace_broker.runtime.intake.quotas import PUBLISH_RATE_BYTES, PUBLISH_RATE_MESSAGES
from headrace_broker.runtime.rpc.correlator import ANSWER_SECONDS_MAX, Rpc
from headrace_broker.runtime.rpc.listing import Asked, ask_everywhere, ask_node, serve_rows
from headrace_broker.runtime.rpc.question import Flow

T = TypeVar("T")

DEBTS: Final = Flow((ACCOUNT, CONNECTION))


class UnknownNameError(Exception):
    """No object that the caller may see has this name."""


class AmbiguousNameError(Exception):
    """Several things begin with this name."""

    def __init__(self, name: str, names: list[str]) -> None:
        super().__init__(f"'{name}' may be {', '.join(names)}: say more of the name")
        self.names = names  # some of them


class Listing(msgspec.Struct):
    """Rows of all nodes that answered."""

    rows: list[FlowRow] = []
    missing: tuple[str, ...] = ()  # names of those that did not
    left_out: int = 0  # rows that are there and not in the list, at least

    def connections(self) -> list[ConnectionFlow]:
        """Return those that are connections."""
        return of_kind(self.rows, ConnectionFlow)

    def queues(self) -> list[QueueFlow]:
        """Return those that are queues."""
        return of_kind(self.rows, QueueFlow)


class Edge(msgspec.Struct, frozen=True):
    """Debt of an account at a queue."""

    account: str
    kind: str
    name: str
    node: str
    user: str
    vhost: str
    queue: str
    messages: int
    byte_count: int
    message_rate: float
    byte_rate: float
    load: float  # bytes that are owed, and those that came in the last 10 s
    limit: str  # that which stops the account's connection at this queue now, "" for none
    exchanges: tuple[tuple[str, float], ...] = ()  # that it came through, and messages a second
    user_provided_name: str = ""  # what the account's client calls itself, "" for nothing


class FlowReport:
    """Explains flow control, with the facts of all nodes."""

    def __init__(
        self, facts: FlowFacts, view: CatalogView, peers: dict[int, str], rpc: Rpc
    ) -> None:
        self.facts = facts  # of this node
        self._view = view
        self._peers = peers  # name by id of the other nodes
        self._rpc = rpc  # asks them
        serve_rows(rpc, Flow, facts.rows)

    # What all nodes say

    @property
    def peers(self) -> Mapping[int, str]:
        """Name by id of the other nodes."""
        return self._peers

    async def rows_of(self, peer: int, question: Flow, most: int) -> list[FlowRow] | None:
        """Return another node's rows, at most so many, None when it does not answer."""
        asked = Asked(question, FlowRow, most, ANSWER_SECONDS_MAX)
        answer = await ask_node(self._rpc, peer, asked)
        return answer[0] if answer is not None else None

    async def ask(self, question: Flow, seconds: float = ANSWER_SECONDS_MAX) -> Listing:
        """Return the rows of all nodes that answer within some seconds."""
        most = min(question.rows_max * len(question.parts) + 1, LISTING_ROWS_MAX)
        asked = Asked(question, FlowRow, most, seconds)
        rows = self.facts.rows(question)
        return Listing(*await ask_everywhere(self._rpc, self._peers, asked, rows))

    # Listings

    async def top(self, count: int, viewer: Viewer = EVERYBODY) -> Listing:
        """Return the connections that are stopped the most, at most `count`."""
        asked = FLOW_ROWS_MAX if not viewer.monitors else min(count, FLOW_ROWS_MAX)
        found = await self.ask(Flow((CONNECTION,), rows_max=asked))
        rows = [row for row in of_kind(found.rows, ConnectionFlow) if viewer.knows(row.user)]
        rows.sort(key=blocked_rank, reverse=True)
        shown = [shown_connection(row, self._view, viewer) for row in rows[:count]]
        return Listing(list(shown), found.missing, found.left_out)

    async def queues(self, viewer: Viewer = EVERYBODY) -> Listing:
        """Return the largest queues, at most FLOW_ROWS_MAX of each node."""
        found = await self.ask(Flow((QUEUE,)))
        rows = [row for row in of_kind(found.rows, QueueFlow) if viewer.sees_vhost(row.vhost)]
        rows.sort(
            key=lambda row: (not row.saturated, -row.byte_count, -row.ready, row.vhost, row.name)
        )
        return Listing(list(rows), found.missing, found.left_out)

    async def moving_queues(self) -> dict[int, QueueFlow]:
        """Return the queues that move or defer confirms, by group, of all nodes that answer."""
        found = await self.ask(Flow((QUEUE,), moving=True, rows_max=LISTING_ROWS_MAX))
        return {row.group: row for row in of_kind(found.rows, QueueFlow)}

    async def queue(self, queue: Queue) -> QueueFlow | None:
        """Return what a queue's leader says of it, None when there is no answer."""
        found = of_kind((await self.ask(Flow((QUEUE,), group=queue.group))).rows, QueueFlow)
        return found[0] if found else None

    async def graph(self, viewer: Viewer = EVERYBODY) -> tuple[list[Edge], tuple[str, ...]]:
        """Return who owes what where, the heaviest first, and the nodes that did not answer."""
        found = await self.ask(DEBTS)
        return self.edges(found, viewer), found.missing

    def edges(self, found: Listing, viewer: Viewer = EVERYBODY) -> list[Edge]:
        """Return who owes what where, the heaviest first, out of what nodes answered to DEBTS."""
        stopped = {
            (row.id, row.flow.group): row.flow.limit
            for row in of_kind(found.rows, ConnectionFlow)
            if row.flow.limit
        }
        edges = []
        for account in of_kind(found.rows, AccountStatus):
            shown = shown_account(account, self._view, viewer)
            for balance in account.balances:
                queue = self._view.queue_by_group(balance.group)
                if queue is None or not viewer.sees_vhost(queue.vhost):
                    continue
                limit = stopped.get((account.account, balance.group), "")
                origin = (shown.account, shown.kind, shown.name, shown.node, shown.user)
                owed = (
                    balance.messages,
                    balance.byte_count,
                    balance.message_rate,
                    balance.byte_rate,
                )
                edge = Edge(*origin, queue.vhost, queue.name, *owed, load(balance), limit)
                more = {
                    "exchanges": balance.exchanges,
                    "user_provided_name": shown.user_provided_name,
                }
                edges.append(msgspec.structs.replace(edge, **more))
        edges.sort(key=lambda edge: (-edge.load, edge.vhost, edge.queue, edge.account))
        return edges[:FLOW_ROWS_MAX]

    # Why

    async def why(self, name: str, vhost: str, viewer: Viewer = EVERYBODY) -> Explanation:
        """Explain a connection, or a queue of a vhost; UnknownNameError or AmbiguousNameError."""
        queue = self._view.queue(vhost, name) if viewer.sees_vhost(vhost) else None
        if queue is not None:
            return await self.why_queue(queue, viewer)
        connections, facts = await self._named(name, viewer)
        exact = [row for row in connections if _is_named(row, name)]
        if len(exact) == 1:
            return await self._explain(exact[0], facts, viewer)
        queues = self._queues_like(vhost, name) if viewer.sees_vhost(vhost) else []
        if not connections and len(queues) == 1:
            return await self.why_queue(queues[0], viewer)
        if len(connections) == 1 and not queues:
            return await self._explain(connections[0], facts, viewer)
        if not connections and not queues:
            missing = f"; no answer from {', '.join(facts.missing)}" if facts.missing else ""
            raise UnknownNameError(
                f"no connection, and no queue in vhost '{vhost}', has a name that begins with "
                f"'{name}'{missing}"
            )
        names = [f"queue '{each.name}'" for each in queues]
        names += [f"connection '{row.name}'" for row in exact or connections]
        raise AmbiguousNameError(name, _some(names))

    async def why_connection(self, name: str, viewer: Viewer = EVERYBODY) -> Explanation:
        """Explain a connection by its name, its id, its client's name for it, or their beginning.

        Raises UnknownNameError: there is none; AmbiguousNameError: there are several.
        """
        connections, facts = await self._named(name, viewer)
        exact = [row for row in connections if _is_named(row, name)]
        found = exact or connections
        if not found:
            missing = f"; no answer from {', '.join(facts.missing)}" if facts.missing else ""
            raise UnknownNameError(f"no connection has a name that begins with '{name}'{missing}")
        if len(found) > 1:
            raise AmbiguousNameError(name, _some([f"'{row.name}'" for row in found]))
        return await self._explain(found[0], facts, viewer)

    async def _named(self, name: str, viewer: Viewer) -> tuple[list[ConnectionFlow], Facts]:
        parts = (CONNECTION, ACCOUNT, NODE)
        found = await self.ask(Flow(parts, name=name))
        facts = Facts()
        facts.missing = found.missing
        facts.nodes = of_kind(found.rows, NodeFlow)
        facts.accounts = of_kind(found.rows, AccountStatus)
        rows = of_kind(found.rows, ConnectionFlow)
        return [row for row in rows if viewer.knows(row.user)], facts

    def _queues_like(self, vhost: str, name: str) -> list[Queue]:
        return [each for each in self._view.queues(vhost) if each.name.startswith(name)]

    async def _explain(
        self, connection: ConnectionFlow, facts: Facts, viewer: Viewer
    ) -> Explanation:
        own = [each for each in facts.accounts if each.account == connection.id]
        account = own[0] if own else None
        limit = binding_limit(connection.flow)
        group = binding_group(connection.flow, account)
        facts.hides_queue = viewer.hides(self._view, group)
        connection = shown_connection(connection, self._view, viewer)
        if not connection.flow.limit and connection.state != BLOCKING:
            group = self._waits_at(account, facts, viewer) or group
            group = group or await self._confirms_wait(account, viewer)
        if group and not facts.hides_queue:
            await self._learn_of(group, facts)
        elif limit in ALARMS:
            found = await self.ask(Flow((ACCOUNT, QUEUE)))
            facts.accounts = of_kind(found.rows, AccountStatus)
            largest = [row for row in of_kind(found.rows, QueueFlow) if row.byte_count]
            largest.sort(key=lambda row: (-row.byte_count, row.vhost, row.name))
            facts.queues = [row for row in largest if viewer.sees_vhost(row.vhost)]
        if limit == LIMIT_NAMES[LIMIT_RATE]:
            facts.publish_rates = self._publish_rates(connection.user, connection.vhost)
        if account is not None:
            facts.account = shown_account(account, self._view, viewer)
            self._name_queues([facts.account], facts)
        self._show_accounts(facts, viewer)
        return explain_connection(connection, facts)

    def _waits_at(self, account: AccountStatus | None, facts: Facts, viewer: Viewer) -> int:
        """Note a queue without a leader where something of an account waits; return its group."""
        for balance in account.balances if account is not None else ():
            queue = self._view.queue_by_group(balance.group) if balance.messages else None
            found = self.facts.leaderless(queue) if queue is not None else None
            if found is not None:
                facts.hides_queue = viewer.hides(self._view, balance.group)
                hidden = msgspec.structs.replace(found, vhost=HIDDEN, name=HIDDEN, down=())
                facts.leaderless = hidden if facts.hides_queue else found
                return balance.group
        return 0

    async def _confirms_wait(self, account: AccountStatus | None, viewer: Viewer) -> int:
        """Return the queue where most of an account is not confirmed if it is behind, else 0."""
        owed = [each for each in account.balances if each.messages] if account is not None else []
        if not owed:
            return 0
        group = max(owed, key=lambda balance: balance.messages).group
        queue = self._view.queue_by_group(group)
        if queue is None or viewer.hides(self._view, group):
            return 0
        found = await self.queue(queue)
        return group if found is not None and found.behind else 0

    async def why_queue(self, queue: Queue, viewer: Viewer = EVERYBODY) -> Explanation:
        """Explain a queue."""
        facts = Facts()
        await self._learn_of(queue.group, facts)
        held = [row for row in facts.held if viewer.knows(row.user)]
        facts.held = [shown_connection(row, self._view, viewer) for row in held]
        self._show_accounts(facts, viewer)
        if facts.queue is None:  # it was deleted meanwhile
            facts.queue = _silent(queue)
        return explain_queue(facts.queue, facts)

    async def _learn_of(self, group: int, facts: Facts) -> None:
        """Ask all nodes about a queue."""
        found = await self.ask(Flow((ACCOUNT, CONNECTION, GATE, QUEUE, NODE, BROUGHT), group=group))
        facts.missing = tuple(dict.fromkeys((*facts.missing, *found.missing)))
        facts.accounts = of_kind(found.rows, AccountStatus)
        facts.brought = of_kind(found.rows, BroughtStatus)
        facts.gates = of_kind(found.rows, GateFlow)
        facts.nodes = of_kind(found.rows, NodeFlow)
        facts.held = sorted(of_kind(found.rows, ConnectionFlow), key=blocked_rank, reverse=True)
        led = of_kind(found.rows, QueueFlow)
        queue = self._view.queue_by_group(group)
        if led:
            facts.queue = led[0]
            facts.leaderless = None
        elif queue is not None:  # it has no leader, or the leader has not answered
            facts.queue = _silent(queue)
            facts.leaderless = self.facts.leaderless(queue)

    def _show_accounts(self, facts: Facts, viewer: Viewer) -> None:
        """Leave of accounts what may be seen, and name the queues that they have tabs at."""
        facts.accounts = [shown_account(each, self._view, viewer) for each in facts.accounts]
        facts.brought = [shown_brought(each, viewer) for each in facts.brought]
        self._name_queues(facts.accounts, facts)

    def _name_queues(self, accounts: Iterable[AccountStatus], facts: Facts) -> None:
        """Name the queues of balances; hidden queues are removed."""
        for account in accounts:
            for balance in account.balances:
                queue = self._view.queue_by_group(balance.group)
                if queue is not None:
                    facts.queue_names[balance.group] = (queue.vhost, queue.name)

    def _publish_rates(self, user: str, vhost: str) -> tuple[str, ...]:
        found = []
        whose = [(f"user '{user}'", self._view.user_limits(user))]
        if vhost != HIDDEN:
            whose.append((f"vhost '{vhost}'", self._view.vhost_limits(vhost)))
        for who, limits in whose:
            for name, unit in ((PUBLISH_RATE_MESSAGES, "messages"), (PUBLISH_RATE_BYTES, "bytes")):
                if name in limits:
                    found.append(f"{who} may publish {limits[name]:,} {unit} per second")
        return tuple(found)


def _silent(queue: Queue) -> QueueFlow:
    """Return the explanation of a queue without a report of its leader."""
    return QueueFlow(queue.vhost, queue.name, queue.group, "", queue.kind)


def of_kind(rows: Iterable[FlowRow], kind: type[T]) -> list[T]:
    """Return the rows of a kind."""
    return [row for row in rows if isinstance(row, kind)]


def _is_named(row: ConnectionFlow, name: str) -> bool:
    return name in (row.id, row.name, row.client_name, row.name.partition(" -> ")[0])


def _some(names: list[str]) -> list[str]:
    shown = sorted(names)[:FLOW_CANDIDATES_MAX]
    more = len(names) - len(shown)
    return [*shown, f"{more} more"] if more else shown
