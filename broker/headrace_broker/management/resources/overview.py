"""/api/overview, and what else is about the cluster as a whole."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from aiohttp import web

from headrace_broker.management.http.access import caller
from headrace_broker.management.http.answer import json_answer, partial
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import COLUMNS, chosen, columns, listing
from headrace_broker.management.http.route import got, listed
from headrace_broker.management.view.feature_flag import FEATURE_FLAGS, FeatureFlagView
from headrace_broker.management.view.figures import (
    AGES,
    RETENTION,
    Ages,
    asked_ages,
    lengths,
    named,
    summed,
    summed_last,
)
from headrace_broker.management.view.node_rendering import AUTH_MECHANISMS, exchange_types
from headrace_broker.management.view.pace import Pace
from headrace_broker.management.view.rendering import object_totals, render_local, render_nodes
from headrace_broker.management.view.view import OverviewView
from headrace_broker.model import build_info
from headrace_broker.model.shard import node_name
from headrace_broker.model.stats import (
    CLIENT_FIGURES,
    NODE_FIGURES,
    VHOST_FIGURES,
    NodeStats,
    Samples,
    VhostStats,
)
from headrace_broker.model.status import Overview
from headrace_broker.runtime.administration.administration import NodeAdministration
from headrace_broker.runtime.administration.status import NodeStatusSource

CHURN: Final = NODE_FIGURES[7:14]
MESSAGES: Final = ("publish", "confirm", "deliver_get", "redeliver", "ack")
OUTCOMES: Final = tuple(name for name in CLIENT_FIGURES if name not in MESSAGES)

Body = dict[str, Any]


class OverviewEndpoints(Endpoints):
    """Answers requests about the cluster."""

    def __init__(self, node: NodeAdministration, source: NodeStatusSource) -> None:
        super().__init__(node, source)
        self._pace = Pace()  # remembers what this node's processes had counted before

    def _local(self, overview: Overview, told: Iterable[NodeStats]) -> Body | None:
        """Return what this node has; None where a process of it that runs does not tell."""
        own = node_name(overview.node)
        running = {each.name for each in overview.nodes if each.running}
        names = {name for name in running if node_name(name) == own} | {overview.node}
        shards = [row for row in told if row.name in names]
        if len(shards) < len(names):
            return None
        return render_local(shards, self._pace.rates(time.monotonic(), shards))

    @got("/api/overview", "The cluster in short.", OverviewView, query=(*AGES, *COLUMNS))
    async def _overview(self, request: web.Request) -> web.Response:
        ages = asked_ages(request)
        rows, missing = await self._node.stats.ask(ages.question(node=True, vhosts=True))
        nodes = [row for row in rows if isinstance(row, NodeStats)]
        overview = self._source.overview()
        body: Body = {
            "product_name": "Headrace",
            "product_version": build_info.VERSION,
            "headrace_version": build_info.VERSION,
            "management_version": build_info.RABBITMQ_VERSION,
            "rabbitmq_version": build_info.RABBITMQ_VERSION,
            "compiled": build_info.compiled(),
            "rates_mode": "basic",
            "sample_retention_policies": RETENTION,
            "exchange_types": exchange_types(),
            "auth_mechanisms": list(AUTH_MECHANISMS),
            "cluster_name": overview.cluster_name,
            "node": overview.node,
            "leader": overview.leader,
            "nodes": render_nodes(overview.nodes),
            "disable_stats": False,
            "enable_queue_totals": False,
            "statistics_db_event_queue": 0,
            "object_totals": object_totals(nodes),
            "local": self._local(overview, nodes),
            **_totals(nodes, [row for row in rows if isinstance(row, VhostStats)], ages),
        }
        if caller().monitors:
            body["listeners"] = _unique(row for node in nodes for row in render_listeners(node))
            body["contexts"] = [row for node in nodes for row in render_contexts(node)]
        return json_answer(chosen(body, columns(request)), headers=partial(missing))

    @got("/api/cluster-name", "Name of the cluster.", dict[str, str])
    async def _name(self, request: web.Request) -> web.Response:
        return json_answer({"name": self._source.overview().cluster_name})

    @got("/api/extensions", "Extensions of the page; none.", list[Body])
    async def _extensions(self, request: web.Request) -> web.Response:
        return json_answer([])

    @listed(
        "/api/feature-flags",
        "What clients ask RabbitMQ for by a flag, and is there.",
        FeatureFlagView,
    )
    async def _feature_flags(self, request: web.Request) -> web.Response:
        return await listing(request, list(FEATURE_FLAGS), _render_flag)

    @listed("/api/deprecated-features", "What will go; nothing.", Body)
    @listed("/api/deprecated-features/used", "Likewise, in use.", Body)
    async def _nothing(self, request: web.Request) -> web.Response:
        return await listing(request, [], dict)

    @got("/api/auth", "Ways to log in beside a password.", Body)
    async def _auth(self, request: web.Request) -> web.Response:
        return json_answer({"oauth_enabled": False})


def _render_flag(flag: FeatureFlagView) -> Body:
    return {**flag}


def _totals(nodes: list[NodeStats], vhosts: list[VhostStats], ages: Ages) -> Body:
    samples = summed(node.samples for node in nodes)
    last = summed_last(node.last for node in nodes)
    if not last:
        last = summed([node.last for node in nodes])[:1]
    return {
        "queue_totals": lengths(NODE_FIGURES, last, samples, ages),
        "message_stats": {
            **_figures(MESSAGES, last, samples, ages.rates_ms),
            **_clients(vhosts, ages),
        },
        "churn_rates": _figures(CHURN, last, samples, ages.rates_ms),
    }


def _clients(vhosts: list[VhostStats], ages: Ages) -> Body:
    """Return what became of messages at the clients of all vhosts, beside MESSAGES."""
    last = summed_last(each.last for each in vhosts)
    return _figures(
        OUTCOMES, last, summed(each.samples for each in vhosts), ages.rates_ms, VHOST_FIGURES
    )


def _figures(
    names: tuple[str, ...],
    last: Samples,
    samples: Samples,
    age_ms: int,
    every: tuple[str, ...] = NODE_FIGURES,
) -> Body:
    at = [every.index(name) + 1 for name in names]
    cut = [[(row[0], *(row[i] for i in at)) for row in each] for each in (last, samples)]
    return named(names, cut[0], cut[1], age_ms)


def _unique(rows: Iterable[Body]) -> list[Body]:
    """Return listeners without those that processes of a node share."""
    return list({(row["node"], row["ip_address"], row["port"]): row for row in rows}.values())


def render_listeners(node: NodeStats) -> list[Body]:
    """Return where a node listens."""
    return [
        {
            "node": node_name(node.name),
            "protocol": each.protocol,
            "ip_address": each.host,
            "port": each.port,
            "tls": each.tls,
            "socket_opts": {},
        }
        for each in node.listeners
    ]


def render_contexts(node: NodeStats) -> list[Body]:
    """Return where a node answers HTTP."""
    return [
        {
            "node": node_name(node.name),
            "description": "Headrace management",
            "path": "/",
            "ip": each.host,
            "port": str(each.port),
            "protocol": each.protocol,
        }
        for each in node.listeners
        if each.protocol in ("http", "https")
    ]
