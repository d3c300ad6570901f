"""A node's flow control, added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from headrace_broker.runtime.explain.flow_facts import FlowFacts
from headrace_broker.runtime.explain.flow_totals import ALARMS, FlowTotals, flow_totals
from headrace_broker.runtime.metrics.metric import Sample

# Figures of the intake (`flow_sources.FlowSources.figures`) by the names of their metrics.
INTAKE: Final = {
    "flow_buffered_bytes": "buffered_bytes",
    "flow_partial_bytes": "partial_bytes",
    "flow_pending_bytes": "pending_bytes",
    "flow_bytes_max": "bytes_max",
    "flow_intake_messages": "intake_messages",
    "flow_intake_bytes": "intake_bytes",
    "flow_waiting_channels": "waiting_channels",
    "flow_unread_connections": "unread_connections",
    "flow_large_publishes": "large_publishes",
    "flow_large_publishes_waiting": "large_publishes_waiting",
}
BYTES: Final = "bytes"  # ends the names of limits in bytes; the others are messages, or batches


def flow_samples(facts: FlowFacts) -> Iterator[Sample]:
    """Return sums over connections, accounts and queues, the intake, limits and alarms."""
    totals = flow_totals(facts)
    yield from _labelled("flow_connections", totals.connections)
    yield from _labelled("flow_stopped_connections", totals.stopped)
    yield from _labelled("flow_stopped_seconds_total", totals.stopped_seconds)
    yield from _labelled("flow_debt_messages", totals.debt_messages)
    yield from _labelled("flow_debt_bytes", totals.debt_bytes)
    yield Sample("flow_accounts_in_debt", totals.in_debt)
    for name, figure in INTAKE.items():
        yield Sample(name, totals.figures.get(figure, 0))
    yield from _limits(totals)
    yield Sample("flow_limit_share_ratio", facts.ledger.limits.share / 100)
    yield from _labelled("flow_alarm", totals.alarms)
    on = Counter(alarm.kind for alarm in facts.alarms())
    yield from _labelled("flow_cluster_alarms", {kind: on[kind] for kind in ALARMS})
    yield Sample("flow_saturated_queues", totals.saturated)
    yield Sample("flow_behind_queues", totals.behind)
    yield Sample("flow_deferred_confirms", totals.deferred)
    yield Sample("flow_dropped_messages_total", totals.dropped)


def _labelled(name: str, values: dict[str, float]) -> Iterator[Sample]:
    return (Sample(name, value, (label,)) for label, value in values.items())


def _limits(totals: FlowTotals) -> Iterator[Sample]:
    """Return limits under the names by which they are changed."""
    for name, value in totals.limits.items():
        unit = "bytes" if name.endswith(BYTES) else "messages"
        yield Sample(f"flow_limit_{unit}", value, (name.replace("_", "-"),))
