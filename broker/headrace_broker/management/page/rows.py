"""Rows of the page's views, by key; fields are those of the HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from headrace_broker.catalog.view import CatalogView
from headrace_broker.catalog.viewer import shown_connection, shown_vhost, viewer_of
from headrace_broker.management.http.access import Caller
from headrace_broker.management.resources.clients import render_channel, shown_client
from headrace_broker.management.view.flow_rendering import (
    render_connection,
    render_explanation,
    render_queue,
)
from headrace_broker.management.view.rendering import object_totals, render_nodes
from headrace_broker.management.view.rendering import render_queue as render_listed
from headrace_broker.model import build_info
from headrace_broker.model.flow_status import ConnectionFlow, Explanation, NodeFlow, QueueFlow
from headrace_broker.model.limits import PAGE_TABLE_ROWS_MAX
from headrace_broker.model.stats import NodeStats
from headrace_broker.model.status import NodeStatus, Overview, QueueStatus
from headrace_broker.runtime.alarm.alarms import AlarmStatus
from headrace_broker.runtime.clients.client_list import ClientListing
from headrace_broker.runtime.explain.flow_facts import blocked_rank
from headrace_broker.runtime.explain.flow_report import Edge, Listing

TOP: Final = 8  # rows of the overview's short lists
MORE: Final = "more"  # key of what a list lacks

_PLAIN: Final = "!'()*~"

Values = dict[str, Any]


def key_of(vhost: str, name: str) -> str:
    """Return the key of a queue: as browsers write it into an address (encodeURIComponent)."""
    return f"{quote(vhost, safe=_PLAIN)}/{quote(name, safe=_PLAIN)}"


def cluster(overview: Overview, alarms: Sequence[AlarmStatus], missing: tuple[str, ...]) -> Values:
    """Return what stands in the page's head."""
    clocks = [each.clock for each in overview.nodes if each.clock is not None]
    return {
        "warnings": [clock.warning for clock in clocks if clock.warning],
        "about": {
            "cluster": overview.cluster_name,
            "node": overview.node,
            "leader": overview.leader,
            "version": build_info.VERSION,
            "compiled": build_info.compiled(),
            "missing": list(missing),
        },
        "alarms": [
            {"node": each.node, "resource": each.resource, "reason": each.reason} for each in alarms
        ],
    }


def totals(nodes: Collection[NodeStats], rates: dict[str, float]) -> Values:
    """Return the overview's sums over all nodes that answer."""
    return {
        **object_totals(nodes),
        "messages_ready": sum(node.messages_ready for node in nodes),
        "messages_unacknowledged": sum(node.messages_unacknowledged for node in nodes),
        "messages_later": sum(node.messages_later for node in nodes),
        "rates": rates,
    }


def nodes(
    known: Iterable[NodeStatus], stats: Mapping[str, NodeStats], flows: Mapping[str, NodeFlow]
) -> Values:
    """Return the nodes of the cluster; what a process that runs does not tell is not known."""
    found: Values = {}
    for node in render_nodes(known):
        names = [each["name"] for each in node["shards"] if each["running"]]
        told = [stats[name] for name in names if name in stats]
        node["started_ms"] = min((each.started_ms for each in told), default=None)
        node["connections"], node["figures"] = None, None
        if names and len(told) == len(names):
            node["connections"] = sum(each.totals.connections for each in told)
        if names and flows.keys() >= set(names):
            node["figures"] = _summed([flows[name].figures for name in names])
        found[f"node/{node['name']}"] = node
    return found


def _summed(figures: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {name: sum(each.get(name, 0) for each in figures) for name in figures[0]}


def stopped_most(found: Listing, who: Caller, view: CatalogView) -> list[Any]:
    """Return the connections that are stopped the most, if any is."""
    stopped = [
        row
        for row in found.connections()
        if (row.flow.limit or row.flow.shares[2] > 0) and (who.monitors or row.user == who.name)
    ]
    stopped.sort(key=blocked_rank, reverse=True)
    return [_connection(row, who, view) for row in stopped[:TOP]]


def fullest(found: Listing, who: Caller, view: CatalogView) -> list[Any]:
    """Return the queues that defer confirms, and the largest ones."""
    seen = [row for row in found.queues() if who.sees(view, row.vhost)]
    seen.sort(key=_fullest)
    return [
        render_queue(row) for row in seen[:TOP] if row.ready or row.unsettled or any(row.arrived)
    ]


def queues(
    found: Listing,
    wanted: str,  # in any case of letters; "" for all
    who: Caller,
    view: CatalogView,
    status: Callable[[str, str], QueueStatus | None],
    now_ms: int,
) -> Values:
    """Return queues whose names hold a text: those that leaders call the largest, then others."""
    flows = {(row.vhost, row.name): row for row in found.queues()}
    fits = [
        (queue.vhost, queue.name)
        for queue in view.queues()
        if _holds(wanted, queue.name, queue.vhost) and who.sees(view, queue.vhost)
    ]
    fits.sort(key=lambda name: (_fullest(flows.get(name)), name))
    values: Values = {}
    for vhost, name in fits[:PAGE_TABLE_ROWS_MAX]:
        known = status(vhost, name)
        if known is None:
            continue
        flow = flows.get((vhost, name))
        row = render_listed(msgspec.structs.replace(known, flow=flow), now_ms)
        values[key_of(vhost, name)] = _queue_row(row, flow)
    return _with_more(values, len(fits), found.missing)


def queue(
    status: QueueStatus | None, found: Explanation | None, view: CatalogView, now_ms: int
) -> Values:
    """Return the details of one queue, at that time of queues."""
    values: Values = {}
    if status is None:
        return values
    flow = found.details.get("queue") if found is not None else None
    flow = flow if isinstance(flow, QueueFlow) and flow.node else None
    row = render_listed(msgspec.structs.replace(status, flow=flow), now_ms)
    values["queue"] = {**row, **_queue_row(row, flow)}
    if found is not None:
        values["why"] = render_explanation(found, view)
    return values


def connections(found: Listing, wanted: str, who: Caller, view: CatalogView) -> Values:
    """Return connections in which a text occurs, those first that are stopped the most."""
    viewer = viewer_of(who, view)
    seen = [
        row
        for row in found.connections()
        if viewer.knows(row.user)
        and _holds(wanted, row.name, row.client_name, row.user, shown_vhost(row.vhost, viewer))
    ]
    seen.sort(key=blocked_rank, reverse=True)
    values: Values = {row.id: _connection(row, who, view) for row in seen[:PAGE_TABLE_ROWS_MAX]}
    return _with_more(values, len(seen) + found.left_out, found.missing)


def explained(found: Explanation, view: CatalogView) -> Values:
    """Return why a connection is slow, and the connection."""
    why = render_explanation(found, view)
    return {"connection": why["details"].get("connection"), "why": why}


def channels(found: ClientListing, wanted: str, who: Caller, view: CatalogView) -> Values:
    """Return channels in which a text occurs."""
    values: Values = {}
    viewer = viewer_of(who, view)
    seen = [
        row
        for row in (shown_client(each, view, viewer) for each in found.rows)
        if viewer.knows(row.connection.user)
        and _holds(wanted, row.connection.name, row.connection.user, row.connection.vhost)
    ]
    for row in seen[:PAGE_TABLE_ROWS_MAX]:
        rendered = render_channel(row, view)
        values[rendered["id"]] = rendered
    return _with_more(values, len(seen) + found.left_out, found.missing)


def _with_more(values: Values, total: int, missing: Sequence[str]) -> Values:
    return values | {MORE: {"shown": len(values), "total": total, "missing": list(missing)}}


def graph(
    edges: Sequence[Edge], debts: Listing, queues: Listing, who: Caller, view: CatalogView
) -> Values:
    """Return charges by account, with the state of connections and queues."""
    named = {edge.account for edge in edges}
    clients = {
        row.id: _connection(row, who, view)
        for row in debts.connections()
        if row.id in named or (row.flow.limit and (who.monitors or row.user == who.name))
    }
    reached = {(edge.vhost, edge.queue) for edge in edges}
    found = {
        key_of(row.vhost, row.name): render_queue(row)
        for row in queues.queues()
        if (row.vhost, row.name) in reached and who.sees(view, row.vhost)
    }
    return {
        "edges": [msgspec.to_builtins(edge) for edge in edges],
        "connections": clients,
        "queues": found,
        "missing": list(dict.fromkeys((*debts.missing, *queues.missing))),
    }


def _connection(row: ConnectionFlow, who: Caller, view: CatalogView) -> dict[str, Any]:
    """Return a connection as a user may see it."""
    return render_connection(shown_connection(row, view, viewer_of(who, view)), view)


def _fullest(row: QueueFlow | None) -> tuple[bool, int, int]:
    """Return what queues are sorted by; one of which its leader has told nothing is empty."""
    return (not row.saturated, -row.byte_count, -row.ready) if row is not None else (True, 0, 0)


def _holds(wanted: str, *texts: str) -> bool:
    return not wanted or any(wanted.casefold() in text.casefold() for text in texts)


def _queue_row(row: dict[str, Any], flow: QueueFlow | None) -> dict[str, Any]:
    """Return a queue's row: counts of its leader where it has told them, else of the replica."""
    shown = {
        name: row.get(name)
        for name in (
            *("vhost", "name", "type", "durable", "exclusive", "leader", "members", "state"),
            *("policy", "messages_ready", "messages_unacknowledged", "message_bytes", "consumers"),
            *("saturated", "confirms_deferred", "watermarks", "flow"),
        )
    }
    if flow is None:
        return shown
    return shown | {
        "messages_ready": flow.ready,
        "messages_unacknowledged": flow.unsettled,
        "message_bytes": flow.held_bytes,
        "messages_held": flow.held_messages,
        "consumers": flow.consumers,
        "consumers_busy": flow.busy,
        "saturated": flow.saturated,
        "confirms_deferred": flow.deferred,
        "watermarks": {
            "high": flow.high_messages,
            "low": flow.low_messages,
            "high_bytes": flow.high_bytes,
            "low_bytes": flow.low_bytes,
        },
    }
