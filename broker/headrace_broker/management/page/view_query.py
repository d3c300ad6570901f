"""One look at the cluster, for all views of the page: each question is asked once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from headrace_broker.catalog.view import CatalogView
from headrace_broker.catalog.viewer import viewer_of
from headrace_broker.management.http.access import Caller
from headrace_broker.management.page import rows
from headrace_broker.management.page.feed import View
from headrace_broker.management.view.pace import Pace
from headrace_broker.model.flow_status import NodeFlow
from headrace_broker.model.limits import PAGE_TABLE_ROWS_MAX
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.model.stats import NodeStats
from headrace_broker.runtime.administration.administration import NodeAdministration
from headrace_broker.runtime.administration.status import NodeStatusSource
from headrace_broker.runtime.clients.client_list import ClientListing
from headrace_broker.runtime.explain.flow_facts import CONNECTION, NODE, QUEUE
from headrace_broker.runtime.explain.flow_report import (
    DEBTS,
    AmbiguousNameError,
    FlowReport,
    Listing,
    UnknownNameError,
    of_kind,
)
from headrace_broker.runtime.rpc.question import Flow, Stats

T = TypeVar("T")
Values = Mapping[str, Any]
Maker = Callable[[], Values]

ASK_SECONDS_MAX: Final = 1.0  # for which a node that does not answer holds the page up
EXPLAIN_SECONDS_MAX: Final = 3.0  # for questions that lead to others

KINDS: Final = frozenset(
    {"overview", "queues", "queue", "connections", "connection", "channels", "graph", "quiet"}
)


class ViewQuery:
    """Finds what views show; see `feed.ViewData`."""

    def __init__(
        self,
        node: NodeAdministration,
        status: NodeStatusSource,
        pace: Pace,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node  # what is looked at
        self._status = status
        self._pace = pace  # remembers what nodes had counted before
        self._clock = clock  # seconds of a clock that never goes back
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self._finders: dict[str, Callable[[View, Caller], Awaitable[Maker]]] = {
            "cluster": self._cluster,
            "overview": self._overview,
            "queues": self._queues,
            "queue": self._queue,
            "connections": self._connections,
            "connection": self._connection,
            "channels": self._channels,
            "graph": self._graph,
            "quiet": self._nothing,
        }

    async def find(self, view: View, who: Caller) -> Maker:
        """Collect a view's data; return a function that makes its values for a user."""
        return await self._finders[view.kind](view, who)

    @property
    def _view(self) -> CatalogView:
        return self._node.view

    @property
    def _report(self) -> FlowReport:
        return self._node.flow_report

    async def _once(self, name: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask at the first need; later users share the answer."""
        if name not in self._asked:
            self._asked[name] = asyncio.ensure_future(ask())
        found: T = await asyncio.shield(self._asked[name])
        return found

    async def _flow(self, part: str) -> Listing:
        question = Flow((part,), rows_max=PAGE_TABLE_ROWS_MAX)
        return await self._once(part, lambda: self._report.ask(question, ASK_SECONDS_MAX))

    # What stands in the page's head, and the overview

    async def _cluster(self, view: View, who: Caller) -> Maker:
        found, (stats, totals) = await asyncio.gather(
            self._flow(NODE), self._once("stats", self._stats)
        )
        flows = {row.name: row for row in of_kind(found.rows, NodeFlow)}
        overview, alarms = self._status.overview(), self._status.alarms()
        nodes = rows.nodes(overview.nodes, stats, flows)
        return lambda: {
            **rows.cluster(overview, alarms, found.missing),
            "totals": totals,
            **(nodes if who.monitors else {}),
        }

    async def _stats(self) -> tuple[dict[str, NodeStats], rows.Values]:
        """Return what nodes say of themselves by name, and that of all together."""
        found, _ = await self._node.stats.ask(Stats(node=True, groups=()), ASK_SECONDS_MAX)
        nodes = {row.name: row for row in found if isinstance(row, NodeStats)}
        rates = self._pace.rates(self._clock(), nodes.values())
        return nodes, rows.totals(nodes.values(), rates)

    async def _overview(self, view: View, who: Caller) -> Maker:
        connections, queues = await asyncio.gather(self._flow(CONNECTION), self._flow(QUEUE))
        return lambda: {
            "connections": rows.stopped_most(connections, who, self._view),
            "queues": rows.fullest(queues, who, self._view),
        }

    async def _nothing(self, view: View, who: Caller) -> Maker:
        return dict

    # Queues

    async def _queues(self, view: View, who: Caller) -> Maker:
        found = await self._flow(QUEUE)
        return lambda: rows.queues(
            found, view.name, who, self._view, self._status.queue, int(self._node.clock.queue_ms())
        )

    async def _queue(self, view: View, who: Caller) -> Maker:
        queue = self._view.queue(view.vhost, view.name)
        if queue is None or not who.sees(self._view, view.vhost):
            return dict
        try:
            async with asyncio.timeout(EXPLAIN_SECONDS_MAX):
                found = await self._report.why_queue(queue, viewer_of(who, self._view))
        except TimeoutError:
            found = None
        status = self._status.queue(view.vhost, view.name)
        now_ms = int(self._node.clock.queue_ms())
        return lambda: rows.queue(status, found, self._view, now_ms)

    # Clients

    async def _connections(self, view: View, who: Caller) -> Maker:
        found = await self._flow(CONNECTION)
        return lambda: rows.connections(found, view.name, who, self._view)

    async def _connection(self, view: View, who: Caller) -> Maker:
        try:
            async with asyncio.timeout(EXPLAIN_SECONDS_MAX):
                found = await self._report.why_connection(view.name, viewer_of(who, self._view))
        except (UnknownNameError, AmbiguousNameError) as error:
            reason = str(error)
            return lambda: {"gone": reason}
        except TimeoutError:
            return lambda: {"gone": "the other nodes do not answer in time"}
        return lambda: rows.explained(found, self._view)

    async def _channels(self, view: View, who: Caller) -> Maker:
        try:
            async with asyncio.timeout(EXPLAIN_SECONDS_MAX):
                found = await self._once("channels", self._channel_rows)
        except (TimeoutError, AmqpError):
            return lambda: {"more": {"problem": "the other nodes do not answer in time"}}
        return lambda: rows.channels(found, view.name, who, self._view)

    async def _channel_rows(self) -> ClientListing:
        return await self._node.clients(channels=True, rows_max=PAGE_TABLE_ROWS_MAX)

    # Who is charged for what

    async def _graph(self, view: View, who: Caller) -> Maker:
        debts, queues, chosen = await asyncio.gather(
            self._once("debts", lambda: self._report.ask(DEBTS, ASK_SECONDS_MAX)),
            self._flow(QUEUE),
            self._chosen(view, who),
        )
        edges = self._report.edges(debts, viewer_of(who, self._view))

        def make() -> Values:
            told = rows.graph(edges, debts, queues, who, self._view)
            return {"graph": told, **chosen()}

        return make

    async def _chosen(self, view: View, who: Caller) -> Maker:
        """Explain the object chosen in the graph."""
        if not view.name:
            return dict
        find = self._queue if view.vhost else self._connection
        found = (await find(view, who))()
        reason = found.get("gone", "there is nothing to explain")
        return lambda: {"why": found["why"]} if "why" in found else {"problem": reason}
