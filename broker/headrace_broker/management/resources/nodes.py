"""/api/nodes."""

from __future__ import annotations

import time
from itertools import chain
from operator import itemgetter
from typing import Any

from aiohttp import web

from headrace_broker.management.http.answer import json_answer, not_found, partial, unavailable
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import COLUMNS, chosen, columns, listing
from headrace_broker.management.http.route import MONITORING, got, listed
from headrace_broker.management.view.figures import NO_AGES
from headrace_broker.management.view.node_rendering import render_node
from headrace_broker.management.view.shard_rows import merge_nodes
from headrace_broker.management.view.view import AttemptsView, NodeMemoryView, NodeView
from headrace_broker.model.shard import node_name
from headrace_broker.model.stats import NodeStats
from headrace_broker.model.status import NodeStatus

Body = dict[str, Any]


class NodeEndpoints(Endpoints):
    """Answers requests about nodes, as they tell of themselves."""

    async def _rendered(self) -> tuple[list[Body], dict[str, str]]:
        """Return rows of processes, by id."""
        found, missing = await self._node.stats.ask(NO_AGES.question(node=True))
        stats = {row.id: row for row in found if isinstance(row, NodeStats)}
        now_ms = time.time_ns() // 1_000_000
        nodes = sorted(self._source.overview().nodes, key=_number)
        headers = partial(missing)
        return [render_node(node, stats.get(node.id), now_ms) for node in nodes], headers

    @listed("/api/nodes", "All nodes.", NodeView, MONITORING)
    async def _list(self, request: web.Request) -> web.Response:
        rows, headers = await self._rendered()
        return await listing(
            request, merge_nodes(rows), dict, name=lambda row: str(row["name"]), headers=headers
        )

    async def _one(self, request: web.Request) -> tuple[Body, dict[str, str]]:
        name = request.match_info["node"]
        rows, headers = await self._rendered()
        for row in [*merge_nodes(rows), *rows]:  # a node, or one of its processes
            if row["name"] == name:
                return row, headers
        raise not_found(f"node '{name}'")

    @got("/api/nodes/{node}", "A node.", NodeView, MONITORING, query=COLUMNS)
    async def _get(self, request: web.Request) -> web.Response:
        row, headers = await self._one(request)
        return json_answer(chosen(row, columns(request)), headers=headers)

    @listed(
        "/api/auth/attempts/{node}", "Log-ins at a node, by protocol.", AttemptsView, MONITORING
    )
    async def _attempts(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        known = {node.name for node in self._source.overview().nodes}
        if name not in known:
            raise not_found(f"node '{name}'")
        rows, _ = await self._node.stats.ask(NO_AGES.question(node=True))
        told = [row for row in rows if isinstance(row, NodeStats)]
        found = [row for row in told if name in (row.name, node_name(row.name))]
        if not found:
            raise unavailable(f"node '{name}' does not answer")
        counts: dict[str, tuple[int, int]] = {}
        for protocol, (succeeded, failed) in chain.from_iterable(r.logins.items() for r in found):
            before = counts.get(protocol, (0, 0))
            counts[protocol] = before[0] + succeeded, before[1] + failed
        shown = [_attempts(*each) for each in counts.items()]
        return await listing(request, shown, dict, name=itemgetter("protocol"))

    @got("/api/nodes/{node}/memory", "Memory of a node.", NodeMemoryView, MONITORING)
    async def _memory(self, request: web.Request) -> web.Response:
        row, headers = await self._one(request)
        used = row.get("mem_used", 0)
        memory = {
            "total": {"rss": used, "allocated": used, "erlang": 0},
            "limit": row.get("mem_limit", 0),
            "available": row.get("mem_total", 0),
            "strategy": "rss",
        }
        return json_answer({"memory": memory}, headers=headers)


def _attempts(protocol: str, counts: tuple[int, int]) -> AttemptsView:
    succeeded, failed = counts
    return {
        "protocol": protocol,
        "auth_attempts": succeeded + failed,
        "auth_attempts_succeeded": succeeded,
        "auth_attempts_failed": failed,
    }


def _number(node: NodeStatus) -> int:
    return node.id
