"""The API's JSON: paths and fields as in RabbitMQ's management API where it has the thing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from headrace_broker.catalog.argument import unknown_queue_arguments
from headrace_broker.management.view.flow_rendering import render_queue_moves
from headrace_broker.management.view.shard_rows import merge_nodes
from headrace_broker.model.definition import QUEUE_QUORUM
from headrace_broker.model.flow import FLOW, RUNNING
from headrace_broker.model.stats import NodeStats
from headrace_broker.model.status import NodeStatus, QueueStatus


def object_totals(nodes: Collection[NodeStats]) -> dict[str, int]:
    """Return counts of objects: of clients the sum, of the catalog those of one node."""
    every = [node.totals for node in nodes]
    return {
        "connections": sum(each.connections for each in every),
        "channels": sum(each.channels for each in every),
        "consumers": sum(each.consumers for each in every),
        "exchanges": max((each.exchanges for each in every), default=0),
        "queues": max((each.queues for each in every), default=0),
    }


def render_local(shards: Collection[NodeStats], rates: dict[str, float]) -> dict[str, Any]:
    """Return what the processes of the answering node have together, in GET /api/overview."""
    stats: dict[str, Any] = {}
    for name, rate in rates.items():
        stats[name] = sum(getattr(each.counters, name) for each in shards)
        stats[f"{name}_details"] = {"rate": rate}
    ready = sum(each.messages_ready for each in shards)
    unacknowledged = sum(each.messages_unacknowledged for each in shards)
    later, kept = sum(e.messages_later for e in shards), sum(e.messages_dlx for e in shards)
    return {
        "object_totals": object_totals(shards),
        "queue_totals": {
            "messages": ready + unacknowledged + later,
            "messages_ready": ready,
            "messages_unacknowledged": unacknowledged,
            "messages_delayed": later - kept,
            "messages_dlx": kept,
        },
        "message_stats": stats,
    }


def render_nodes(nodes: Iterable[NodeStatus]) -> list[dict[str, Any]]:
    """Return short rows of nodes, by id: those of the overview and of the page."""
    ordered = sorted(nodes, key=lambda node: node.id)
    return merge_nodes(_render_node(node) for node in ordered)


def _render_node(node: NodeStatus) -> dict[str, Any]:
    rendered: dict[str, Any] = msgspec.to_builtins(node)
    return rendered | (rendered.pop("resources") or {})


def render_queue(queue: QueueStatus, now_ms: int) -> dict[str, Any]:
    """Return a row of GET /api/queues, at a Unix time in milliseconds."""
    body: dict[str, Any] = {
        "vhost": queue.vhost,
        "name": queue.name,
        "type": queue.kind,
        "durable": queue.durable,
        "exclusive": queue.exclusive,
        "auto_delete": queue.auto_delete,
        "arguments": queue.arguments,
        "unknown_arguments": unknown_queue_arguments(queue.arguments),
        "node": queue.leader,
        "leader": queue.leader,
        "members": list(queue.members),
        "state": _state(queue),
        "policy": queue.policy or None,
        "operator_policy": queue.operator_policy or None,
        "effective_policy_definition": queue.definition,
        "flow": render_queue_moves(queue.flow),
    }
    if queue.kind == QUEUE_QUORUM:
        body["delivery_limit"] = queue.delivery_limit if queue.delivery_limit >= 0 else "unlimited"
    if (counts := queue.counts) is not None:
        mark = counts.watermark
        body |= {
            "messages": counts.held,
            "messages_ready": counts.ready,
            "messages_unacknowledged": counts.unsettled,
            "messages_delayed": counts.delayed,
            "messages_dlx": counts.dead,
            "message_bytes": mark.byte_count,
            "consumers": counts.consumers,
            "archived_messages": counts.archived,
            "archived_message_bytes": counts.archived_bytes,
            "saturated": mark.saturated,
            "confirms_deferred": mark.deferred,
            "watermarks": {
                "high": mark.high,
                "low": mark.low,
                "high_bytes": mark.high_bytes,
                "low_bytes": mark.low_bytes,
            },
            "oldest_message_age_ms": max(0, now_ms - counts.oldest_ms)
            if counts.oldest_ms
            else None,
            "head_message_timestamp": queue.head_timestamp if queue.head_timestamp >= 0 else None,
        }
        if queue.snapshot_index is not None:
            body["snapshot_index"] = queue.snapshot_index
        if queue.replicas is not None:
            body["replicas"] = msgspec.to_builtins(queue.replicas)
    return body


def _state(queue: QueueStatus) -> str:
    if not queue.leader:
        return "down"
    return FLOW if queue.flow is not None and queue.flow.saturated else RUNNING
