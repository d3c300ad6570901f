"""Life cycle of queues: rows of QUEUE_EVENTS.

What the catalog decides is noted by the node that leads it, so that it is noted once; while the
lead changes, something may be noted twice, or not at all. Who leads a queue is noted by the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from headrace_broker.catalog.event import (
    Event,
    PolicyChanged,
    QueueAdded,
    QueueChanged,
    QueueRemoved,
)
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import TELEMETRY_QUEUE_EVENTS_MAX
from headrace_broker.runtime.telemetry.schema import QueueEvent

DECLARED: Final = "declared"
DELETED: Final = "deleted"
LEADER_ELECTED: Final = "leader_elected"
MEMBER_ADDED: Final = "member_added"
MEMBER_REMOVED: Final = "member_removed"
POLICY_CHANGED: Final = "policy_changed"
PURGED: Final = "purged"


class QueueNotes:
    """Rows of queue events, gathered until they are taken.

    Args:
        node: name of this node.
        records: whether this node is the one that notes what the catalog decides.
        name_of: returns the name of a node.
        clock_ms: Unix time.

    Attributes:
        left_out: rows that there was no room for, since they were last taken.
    """

    def __init__(
        self,
        node: str,
        records: Callable[[], bool],
        name_of: Callable[[int], str],
        clock_ms: Callable[[], int],
    ) -> None:
        self.left_out = 0
        self._node = node
        self._records = records
        self._name_of = name_of
        self._clock_ms = clock_ms
        self._members: dict[int, tuple[int, ...]] = {}
        self._rows: list[QueueEvent] = []

    def take(self) -> list[QueueEvent]:
        """Return the rows since the last call."""
        rows, self._rows = self._rows, []
        return rows

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow the catalog."""
        records = self._records()
        for event in events:
            if isinstance(event, QueueAdded):
                self._members[event.queue.group] = event.queue.members
                if records:
                    self._note(DECLARED, event.queue, detail=_names(event.queue, self._name_of))
            elif isinstance(event, QueueRemoved):
                self._members.pop(event.queue.group, None)
                if records:
                    self._note(DELETED, event.queue)
            elif isinstance(event, QueueChanged):
                self._changed(event.queue, records)
            elif isinstance(event, PolicyChanged) and records:
                self._policy(event)

    def _changed(self, queue: Queue, records: bool) -> None:
        before = self._members.get(queue.group, ())
        self._members[queue.group] = queue.members
        if not records:
            return
        for member in queue.members:
            if member not in before:
                self._note(MEMBER_ADDED, queue, member=self._name_of(member))
        for member in before:
            if member not in queue.members:
                self._note(MEMBER_REMOVED, queue, member=self._name_of(member))

    def _policy(self, event: PolicyChanged) -> None:
        done = "set" if event.policy is not None else "deleted"
        kind = "operator policy" if event.operator else "policy"
        row = QueueEvent(
            *(self._clock_ms(), self._node, POLICY_CHANGED, event.vhost, "", 0, ""),
            detail=f"{kind} '{event.name}' {done}",
        )
        self._add(row)

    def led(self, queue: Queue) -> None:
        """A queue is led here now."""
        self._note(LEADER_ELECTED, queue, leader=self._node)

    def purged(self, queue: Queue, count: int) -> None:
        """All messages of a queue were dropped through this node."""
        self._note(PURGED, queue, detail=str(count))

    def _note(
        self,
        event: str,
        queue: Queue,
        leader: str | None = None,
        member: str | None = None,
        detail: str | None = None,
    ) -> None:
        at = (self._clock_ms(), self._node, event, queue.vhost, queue.name, queue.group)
        self._add(QueueEvent(*at, queue.kind, leader, member, detail))

    def _add(self, row: QueueEvent) -> None:
        if len(self._rows) >= TELEMETRY_QUEUE_EVENTS_MAX:
            self.left_out += 1
        else:
            self._rows.append(row)


def _names(queue: Queue, name_of: Callable[[int], str]) -> str:
    return ",".join(name_of(member) for member in queue.members)
