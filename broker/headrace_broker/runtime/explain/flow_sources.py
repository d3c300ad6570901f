"""Sources of a node's flow facts: gates, intake, alarms, debts across nodes."""

from __future__ import annotations

from typing import Final

from headrace_broker.flow.intake import Intake
from headrace_broker.model.flow_status import AlarmStatus, GateFlow
from headrace_broker.runtime.alarm.alarms import AlarmBoard
from headrace_broker.runtime.intake.queue_gates import QueueGates

ALARM_SUFFIX: Final = "-alarm"  # of the names of alarms' limits


class FlowSources:
    """Asks the parts of a node."""

    def __init__(self, name: str, gates: QueueGates, intake: Intake, alarms: AlarmBoard) -> None:
        self._name = name
        self._gates = gates  # of queues
        self._intake = intake
        self._alarms = alarms  # of the cluster

    def gate(self, group: int) -> GateFlow | None:
        """Return the gate of a queue, None if no session here publishes to it."""
        pending = self._gates.by_group.get(group)
        if pending is None:
            return None
        gate = pending.gate
        counts = (int(pending.byte_count), int(pending.bound()), int(gate.waiting_count))
        return GateFlow(self._name, group, *counts, bool(gate.room), int(pending.outflow))

    def figures(self) -> dict[str, int]:
        """Return what the node's intake holds, and may hold."""
        figures = self._intake.figures()
        return {
            "buffered_bytes": figures.held,
            "partial_bytes": figures.partial,
            "pending_bytes": figures.pending,
            "bytes_max": figures.bound,
            "intake_messages": figures.intake_messages,
            "intake_bytes": figures.intake_bytes,
            "waiting_channels": figures.waiting,
            "unread_connections": figures.unread,
            "large_publishes": figures.large,
            "large_publishes_waiting": figures.large_waiting,
        }

    def alarms(self) -> list[AlarmStatus]:
        """Return the alarms that are on in the cluster."""
        return [
            AlarmStatus(alarm.node, f"{alarm.resource}{ALARM_SUFFIX}", alarm.reason)
            for alarm in self._alarms.listing()
        ]
