"""Flow control as JSON.

`stopped` objects tell for which part of the last 1, 10 and 60 s something was stopped, from 0 to 1;
`rate` objects messages per second over the same times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.flow import FLOW, RUNNING
from headrace_broker.model.flow_status import (
    NEVER,
    AccountStatus,
    ActivityStatus,
    CauseStatus,
    ConnectionFlow,
    Explanation,
    GateFlow,
    QueueFlow,
)

WINDOWS = ("last_1s", "last_10s", "last_60s")


def render_windows(figures: tuple[float, ...]) -> dict[str, float]:
    """Return figures over the last 1, 10 and 60 s."""
    return {name: round(each, 4) for name, each in zip(WINDOWS, figures, strict=False)}


def render_activity(flow: ActivityStatus, view: CatalogView) -> dict[str, Any]:
    """Return what stops a connection or channel: the field `flow` in listings."""
    return {
        "limit": flow.limit or None,
        "queue": _queue_name(flow.group, view),
        "since_ms": flow.since_ms if flow.limit else None,
        "stopped": render_windows(flow.shares),
        "by_limit": {
            name: {**render_windows(each[:3]), "queue": _queue_name(each[3], view)}
            for name, each in flow.by_limit.items()
        },
    }


def render_connection(row: ConnectionFlow, view: CatalogView) -> dict[str, Any]:
    """Return a row of GET /api/flow/connections."""
    return {
        "id": row.id,
        "name": row.name,
        "user_provided_name": row.client_name or None,
        "node": row.node,
        "user": row.user,
        "vhost": row.vhost,
        "state": row.state,
        "flow": render_activity(row.flow, view),
        "buffered_messages": row.buffered_messages,
        "buffered_bytes": row.buffered_bytes,
        "owed_messages": row.owed_messages,
        "owed_bytes": row.owed_bytes,
    }


def render_queue(row: QueueFlow) -> dict[str, Any]:
    """Return a row of GET /api/flow/queues."""
    return {"vhost": row.vhost, "name": row.name, "leader": row.node, **render_queue_flow(row)}


def render_queue_flow(row: QueueFlow) -> dict[str, Any]:
    """Return all that is known of a queue's flow control."""
    return {
        **render_queue_moves(row),
        "messages_ready": row.ready,
        "message_bytes_ready": row.ready_bytes,
        "messages_unacknowledged": row.unsettled,
        "message_bytes_unacknowledged": row.unsettled_bytes,
        "messages_held": row.held_messages,
        "message_bytes_held": row.held_bytes,
        "consumers": row.consumers,
        "consumers_busy": row.busy,
        "high_watermark": row.high_messages or None,
        "low_watermark": row.low_messages or None,
        "high_watermark_bytes": row.high_bytes or None,
        "low_watermark_bytes": row.low_bytes or None,
        "fairness": msgspec.to_builtins(row.fairness),
    }


def render_queue_moves(row: QueueFlow | None) -> dict[str, Any]:
    """Return the field `flow` of a queue in listings; None for one in which nothing moves."""
    return {
        "state": FLOW if row is not None and row.saturated else RUNNING,
        "saturated": row is not None and row.saturated,
        "messages_deferred": row.deferred if row is not None else 0,
        "behind": row is not None and row.behind,
        "arrived": render_windows(row.arrived if row is not None else NEVER),
        "delivered": render_windows(row.delivered if row is not None else NEVER),
        "settled": render_windows(row.settled if row is not None else NEVER),
    }


def render_explanation(found: Explanation, view: CatalogView) -> dict[str, Any]:
    """Return the body of GET /api/flow/why."""
    return {
        "kind": found.kind,
        "name": found.name,
        "node": found.node,
        "user": found.user or None,
        "vhost": found.vhost,
        "state": found.state,
        "limit": found.limit or None,
        "queue": found.queue or None,
        "leader": found.leader or None,
        "since_ms": found.since_ms or None,
        "stopped": render_windows(found.shares),
        "by_limit": {name: render_windows(each) for name, each in found.by_limit.items()},
        "sentence": found.sentence,
        "hint": found.hint or None,
        "causes": [_render_cause(cause) for cause in found.causes],
        "held": [render_connection(row, view) for row in found.held],
        "details": {name: _render_detail(value, view) for name, value in found.details.items()},
        "missing": list(found.missing),
        "shares_of": found.shares_of,
    }


def _render_cause(cause: CauseStatus) -> dict[str, Any]:
    rendered: dict[str, Any] = msgspec.to_builtins(cause)
    for name in ("account", "name", "user_provided_name", "node", "user"):
        rendered[name] = rendered[name] or None
    for name in ("message_rate", "byte_rate", "share"):
        rendered[name] = round(rendered[name], 4)
    return rendered


def _render_detail(value: Any, view: CatalogView) -> Any:
    if isinstance(value, list):
        return [_render_detail(each, view) for each in value]
    if isinstance(value, ConnectionFlow):
        return render_connection(value, view)
    if isinstance(value, QueueFlow):
        return render_queue(value)
    if isinstance(value, GateFlow):
        gate: dict[str, Any] = msgspec.to_builtins(value)
        return {name: gate[name] for name in gate if name not in ("type", "group")}
    if isinstance(value, AccountStatus):
        return _render_account(value, view)
    return msgspec.to_builtins(value)


def _render_account(account: AccountStatus, view: CatalogView) -> Mapping[str, Any]:
    rendered: dict[str, Any] = msgspec.to_builtins(account)
    del rendered["type"]
    for balance in rendered["balances"]:
        balance["queue"] = _queue_name(balance.pop("group"), view)
    return rendered


def _queue_name(group: int, view: CatalogView) -> str | None:
    queue = view.queue_by_group(group) if group else None
    return queue.name if queue is not None else None
