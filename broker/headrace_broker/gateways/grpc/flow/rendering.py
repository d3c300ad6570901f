"""Flow control as messages."""

from __future__ import annotations

from collections.abc import Sequence

from headrace_broker.catalog.view import CatalogView
from headrace_broker.catalog.viewer import Viewer
from headrace_broker.flow.explanation import binding_group, binding_limit
from headrace_broker.model.flow_parameter import PARAMETERS, Value, shown_value
from headrace_broker.model.flow_status import CauseStatus, ConnectionFlow, Explanation, QueueFlow
from headrace_broker.runtime.intake.flow_settings import Setting
from headrace_protos.broker.v1 import flow_pb2 as messages


def render_windows(figures: Sequence[float]) -> messages.Windows:
    """Return figures over the last 1, 10 and 60 s."""
    one, ten, sixty = (round(each, 4) for each in figures)
    return messages.Windows(last_1s=one, last_10s=ten, last_60s=sixty)


def queue_name(group: int, view: CatalogView, viewer: Viewer) -> str:
    """Return the name of a queue, "" for none and for one that may not be seen."""
    queue = view.queue_by_group(group) if group else None
    return queue.name if queue is not None and viewer.sees_vhost(queue.vhost) else ""


def render_connection(
    row: ConnectionFlow, view: CatalogView, viewer: Viewer
) -> messages.StoppedConnection:
    """Return a connection."""
    flow = row.flow
    return messages.StoppedConnection(
        id=row.id,
        name=row.name,
        client_name=row.client_name,
        node=row.node,
        user=row.user,
        vhost=row.vhost,
        state=row.state,
        limit=binding_limit(flow),
        queue=queue_name(binding_group(flow, None), view, viewer),
        since_ms=flow.since_ms if flow.limit else 0,
        stopped=render_windows(flow.shares),
        messages_held=row.buffered_messages,
        octets_held=row.buffered_bytes,
        messages_owed=row.owed_messages,
        octets_owed=row.owed_bytes,
    )


def render_queue(row: QueueFlow, stopped: int = 0) -> messages.StoppingQueue:
    """Return a queue.

    Args:
        row: the queue.
        stopped: connections that wait for it.
    """
    return messages.StoppingQueue(
        vhost=row.vhost,
        name=row.name,
        node=row.node,
        saturated=row.saturated,
        messages_withheld=row.deferred,
        behind=row.behind,
        messages_ready=row.ready,
        octets_ready=row.ready_bytes,
        messages_unacknowledged=row.unsettled,
        octets_unacknowledged=row.unsettled_bytes,
        consumers=row.consumers,
        consumers_busy=row.busy,
        arrived=render_windows(row.arrived),
        delivered=render_windows(row.delivered),
        settled=render_windows(row.settled),
        connections_stopped=stopped,
    )


def render_cause(cause: CauseStatus, viewer: Viewer) -> messages.Cause:
    """Return a cause, without another user's identity."""
    known = viewer.knows(cause.user) or not cause.user
    return messages.Cause(
        kind=cause.kind,
        account=cause.account if known else "",
        name=cause.name if known else "",
        node=cause.node if known else "",
        user=cause.user if known else "",
        vhost=cause.vhost if viewer.sees_vhost(cause.vhost) else "",
        queue=cause.queue if viewer.sees_vhost(cause.vhost) else "",
        messages_owed=cause.messages,
        octets_owed=cause.byte_count,
        message_rate=round(cause.message_rate, 4),
        octet_rate=round(cause.byte_rate, 4),
        share=round(cause.share, 4),
        gone=cause.gone,
        messages_queued=cause.queued_messages,
        octets_queued=cause.queued_bytes,
        last_brought_ms=cause.last_ms,
    )


def render_explanation(
    found: Explanation, view: CatalogView, viewer: Viewer
) -> messages.WhyResponse:
    """Return why something is slow."""
    return messages.WhyResponse(
        sentence=found.sentence,
        hint=found.hint,
        kind=found.kind,
        name=found.name,
        node=found.node,
        user=found.user,
        vhost=found.vhost,
        state=found.state,
        limit=found.limit,
        queue=found.queue,
        leader=found.leader,
        since_ms=found.since_ms,
        stopped=render_windows(found.shares),
        stopped_by_limit={name: render_windows(each) for name, each in found.by_limit.items()},
        causes=[render_cause(cause, viewer) for cause in found.causes],
        held=[render_connection(row, view, viewer) for row in found.held],
        missing_nodes=found.missing,
        shares_of=found.shares_of,
    )


def render_limit(name: str, setting: Setting) -> messages.Limit:
    """Return a limit of flow control."""
    parameter = PARAMETERS[name]
    return messages.Limit(
        name=name,
        value=_value(setting.value),
        otherwise=_value(setting.otherwise),
        unit=parameter.unit,
        description=parameter.reason,
        rule=parameter.rule,
        source=setting.source,
    )


def _value(stored: Value) -> messages.LimitValue:
    shown = shown_value(stored)
    if isinstance(shown, float):
        return messages.LimitValue(fraction=shown)
    return messages.LimitValue(number=shown)
