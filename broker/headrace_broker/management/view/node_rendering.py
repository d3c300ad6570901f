"""Nodes as JSON, with the names that RabbitMQ's API gives their parts."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace_broker.management.view.figures import details
from headrace_broker.model.definition import EXCHANGE_TYPES
from headrace_broker.model.stats import NODE_FIGURES, NODE_OWN_FIGURES, NodeStats
from headrace_broker.model.status import NodeStatus

AUTH_MECHANISMS: Final = (
    {"name": "PLAIN", "description": "User and password.", "enabled": True},
    {"name": "AMQPLAIN", "description": "The same in a field table.", "enabled": True},
    {"name": "EXTERNAL", "description": "By the client's certificate.", "enabled": True},
)


def exchange_types() -> list[dict[str, Any]]:
    """Return the kinds of exchanges that there are."""
    return [
        {"name": name, "description": f"{name} exchange", "enabled": True}
        for name in EXCHANGE_TYPES
    ]


def render_node(status: NodeStatus, stats: NodeStats | None, now_ms: int) -> dict[str, Any]:
    """Return a row of GET /api/nodes at a Unix time; `stats` is None without an answer."""
    body: dict[str, Any] = {
        "name": status.name,
        "id": status.id,
        "type": "disc",
        "running": status.running,
        "address": status.address,
        "boot": status.boot,
        "being_drained": status.being_drained,
        "partitions": [],
        "cluster_links": [],
        "rates_mode": "basic",
        "catalog": msgspec.to_builtins(status.catalog),
    }
    if stats is not None:
        body |= _render_stats(stats, now_ms)
    clock = status.clock
    if clock is not None:
        body |= {
            "clock_skew_ms": clock.skew_ms,
            "clock_skew_bound_ms": clock.bound_ms,
            "queue_clock_lead_ms": clock.lead_ms,
            "clock_warning": clock.warning,
        }
    if status.resources is not None:
        body |= msgspec.structs.asdict(status.resources)
    return body


def _render_stats(stats: NodeStats, now_ms: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "os_pid": str(stats.os_pid),
        "version": stats.version,
        "uptime": max(0, now_ms - stats.started_ms),
        "processors": stats.processors,
        "run_queue": stats.run_queue,
        "loop_lag_ms": stats.lag_ms,
        "fd_total": stats.fd_total,
        "sockets_total": stats.sockets_total,
        "proc_total": stats.proc_total,
        "gc_num": stats.gc_num,
        "context_switches": stats.context_switches,
        "db_dir": stats.data_dir,
        "quarantined": msgspec.to_builtins(stats.quarantined),
        "exchange_types": exchange_types(),
        "auth_mechanisms": list(AUTH_MECHANISMS),
        "enabled_plugins": [],
        "applications": [{"name": "headrace", "description": "Headrace", "version": stats.version}],
        "contexts": [
            {
                "description": "Headrace management",
                "path": "/",
                "ip": each.host,
                "port": str(each.port),
            }
            for each in stats.listeners
            if each.protocol in ("http", "https")
        ],
    }
    for at, name in enumerate(NODE_FIGURES):
        if name in NODE_OWN_FIGURES:
            found[name] = stats.last[-1][at + 1] if stats.last else 0
            found[f"{name}_details"] = details(stats.last, [], at, 0)
    return found
