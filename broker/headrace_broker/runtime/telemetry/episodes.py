"""Beginnings and ends of states: rows of FLOW_EVENTS, each end with its duration.

A node is looked at once a second. A connection counts as blocked from the look at which something
stops it, or has within the second before, to the first one at which nothing does: it may be stopped
and let go a hundred times in between, and `blocked_ms` says for how long in sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from headrace_broker.flow.activity import SECOND_US, WINDOWS_S
from headrace_broker.model import flow
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import LIMIT_NAMES
from headrace_broker.model.limits import TELEMETRY_EPISODES_MAX
from headrace_broker.runtime.contract.connection_info import ConnectionInfo
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.telemetry.schema import CONNECTION, NODE, QUEUE, FlowEvent
from headrace_broker.runtime.telemetry.sources import Moment, Sources

BLOCKED: Final = "blocked"
UNBLOCKED: Final = "unblocked"
SATURATED: Final = "saturated"
SATURATION_CLEARED: Final = "saturation_cleared"
ALARM_SET: Final = "alarm_set"
ALARM_CLEARED: Final = "alarm_cleared"
REDELIVERED: Final = "redelivered"
DEAD_LETTERED: Final = "dead_lettered"
ENDS: Final = {BLOCKED: UNBLOCKED, SATURATED: SATURATION_CLEARED, ALARM_SET: ALARM_CLEARED}

_WINDOW: Final = 0
assert WINDOWS_S[_WINDOW] == 1


class _Open(msgspec.Struct):
    """A state that began and has not ended."""

    beginning: FlowEvent  # the row that said so
    blocked_us: int = 0  # for how long a connection was stopped since
    seen: bool = True  # it was there at this look


class Episodes:
    """Pairs beginnings and ends."""

    def __init__(self, sources: Sources, boot: Callable[[], int]) -> None:
        self.left_out = 0  # beginnings that there was no room for, at the last look
        self._sources = sources  # what is looked at
        self._recent = sources.recent.reader()
        self._saturated_groups: set[int] = set()
        self._boot = boot  # returns the node's boot count, by which episodes are told apart
        self._number = 0
        self._open: dict[tuple[str, str], _Open] = {}
        self._redelivered = int(sources.traffic.redeliver)
        self._dead: dict[tuple[int, str], int] = {}

    def dead_lettered(self, queue: Queue, reason: str, count: int) -> None:
        """Messages have left a queue for its dead letter exchange; `reason` is "" if not known."""
        key = (queue.group, reason)
        if key in self._dead or len(self._dead) < TELEMETRY_EPISODES_MAX:
            self._dead[key] = self._dead.get(key, 0) + count

    def take(self, moment: Moment) -> list[FlowEvent]:
        """Return what began and what ended since the last look."""
        self.left_out = 0
        for each in self._open.values():
            each.seen = False
        rows: list[FlowEvent] = []
        self._look_at_connections(moment, self._sources.connections().values(), rows)
        self._look_at_queues(moment, rows)
        self._look_at_alarms(moment, rows)
        for key, each in list(self._open.items()):
            if not each.seen:
                del self._open[key]
                rows.append(self._ended(moment, each))
        self._count(moment, rows)
        return rows

    def _begin(self, row: FlowEvent, rows: list[FlowEvent]) -> _Open | None:
        """Note that something is so; tell it when it was not before."""
        key = (row.event, row.id)
        known = self._open.get(key)
        if known is not None:
            known.seen = True
            return known
        if len(self._open) >= TELEMETRY_EPISODES_MAX:
            self.left_out += 1
            return None
        self._number += 1
        row = row._replace(episode=f"{self._sources.node}-{self._boot()}-{self._number}")
        self._open[key] = begun = _Open(row)
        rows.append(row)
        return begun

    def _ended(self, moment: Moment, episode: _Open) -> FlowEvent:
        began = episode.beginning
        started_at = began.started_at or began.at
        return began._replace(
            at=moment.at_ms,
            event=ENDS[began.event],
            duration_ms=max(moment.at_ms - started_at, 0),
            blocked_ms=episode.blocked_us // 1000 if began.event == BLOCKED else None,
        )

    def _row(self, moment: Moment, event: str, kind: str, entity: str, name: str) -> FlowEvent:
        return FlowEvent(moment.at_ms, self._sources.node, event, kind, entity, name)

    # Connections

    def _look_at_connections(
        self, moment: Moment, infos: Iterable[ConnectionInfo], rows: list[FlowEvent]
    ) -> None:
        for info in infos:
            activity = info.flow
            alarmed = info.state in (flow.BLOCKED, flow.BLOCKING)
            if not alarmed and not activity.in_flow(moment.now_us):
                continue
            limits = activity.limits()
            stops = {
                limit: int(activity.stopped_us(limit, _WINDOW, moment.now_us)) for limit in limits
            }
            known = self._open.get((BLOCKED, info.id))
            if known is None:
                known = self._begin(self._blocked(moment, info, stops), rows)
            if known is not None:
                known.seen = True
                known.blocked_us += min(sum(stops.values()), SECOND_US)

    def _blocked(self, moment: Moment, info: ConnectionInfo, stops: dict[int, int]) -> FlowEvent:
        activity = info.flow
        worst = max(stops, key=lambda limit: stops[limit], default=0)
        vhost, queue = self._sources.place(int(activity.latest_group(worst)) if worst else 0)
        since_ms = max(moment.now_us - int(activity.since_us), 0) // 1000
        stopped_ms = since_ms if activity.limit else max(stops.values(), default=0) // 1000
        return self._row(moment, BLOCKED, CONNECTION, info.id, info.name)._replace(
            started_at=moment.at_ms - stopped_ms,
            reason=LIMIT_NAMES[worst] or info.state,
            vhost=vhost if vhost is not None else info.vhost,
            queue=queue,
            user=info.user,
            account=info.id,
        )

    # Queues

    def _look_at_queues(self, moment: Moment, rows: list[FlowEvent]) -> None:
        hosts = self._sources.hosts
        self._saturated_groups.update(self._recent())
        for group in list(self._saturated_groups):
            host = hosts.get(group)
            if host is not None and host.serving and host.machine.saturated:
                self._begin(self._saturated(moment, host), rows)
            else:
                self._saturated_groups.remove(group)

    def _saturated(self, moment: Moment, host: QueueHost) -> FlowEvent:
        queue = host.queue
        row = self._row(moment, SATURATED, QUEUE, str(queue.group), queue.name)
        return row._replace(
            started_at=moment.at_ms,
            reason=LIMIT_NAMES[flow.LIMIT_WATERMARK],
            vhost=queue.vhost,
            queue=queue.name,
            messages=int(host.machine.deferred_count),
        )

    # Alarms

    def _look_at_alarms(self, moment: Moment, rows: list[FlowEvent]) -> None:
        own = self._sources.node
        for alarm in self._sources.alarms():
            if alarm.node == own:
                row = self._row(moment, ALARM_SET, NODE, f"{own}/{alarm.resource}", own)
                since_ms = max(moment.now_us - alarm.since_us, 0) // 1000
                started_at = moment.at_ms - since_ms
                self._begin(row._replace(started_at=started_at, reason=alarm.resource), rows)

    # What is counted and not paired

    def _count(self, moment: Moment, rows: list[FlowEvent]) -> None:
        node = self._sources.node
        redelivered = int(self._sources.traffic.redeliver)
        if redelivered > self._redelivered:
            row = self._row(moment, REDELIVERED, NODE, node, node)
            rows.append(row._replace(messages=redelivered - self._redelivered))
            self._redelivered = redelivered
        for (group, reason), count in self._dead.items():
            vhost, queue = self._sources.place(group)
            row = self._row(moment, DEAD_LETTERED, QUEUE, str(group), queue or "")
            row = row._replace(reason=reason or None, vhost=vhost, queue=queue)
            rows.append(row._replace(messages=count))
        self._dead.clear()
