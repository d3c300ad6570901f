"""The alarms of all nodes: told to the others, heard of them, and what follows here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from headrace_broker.flow.alarm import RESOURCES, Alarm, ClusterAlarms, NodeReport
from headrace_broker.flow.blocked import NOT_BLOCKED, Blocked, BlockedState
from headrace_broker.logs.log_event import (
    ALARM,
    ALARM_CLEARED,
    ALARM_LOST,
    ALARM_SET,
    PUBLISHERS_RESUMED,
    log_event,
)
from headrace_broker.model.limits import ALARM_LEASE_MS, ALARM_RENEW_MS
from headrace_broker.model.shard import SHARD_IDS, node_name
from headrace_broker.runtime.cluster.cluster_clock import ClusterClock, WireReading
from headrace_broker.runtime.contract.payload import Payload, encode

_FIELDS: Final = (
    *("memory_stage", "memory_used", "memory_limit", "memory_total"),
    *("disk_alarm", "disk_full", "disk_free", "disk_limit"),
)


class AlarmReport(Payload, tag="alarm"):
    """From any node to all others, now and then and when its alarms change; see `NodeReport`.

    Reports are numbered within a boot; one that is not newer than the last is passed over.
    """

    boot: int
    number: int
    memory_stage: int
    memory_used: int
    memory_limit: int
    memory_total: int
    disk_alarm: bool
    disk_full: bool
    disk_free: int
    disk_limit: int
    clock: WireReading | None = None  # None where the sender does not measure clocks


class AlarmStatus(NamedTuple):
    """An alarm for people."""

    node: str  # name
    resource: str  # "memory" or "disk"
    reason: str  # with figures of the moment
    since_us: int  # of this node's monotonic clock


class AlarmBoard:
    """Keeps the node's `BlockedState`, which everything that adds data asks."""

    def __init__(
        self,
        node: int,
        names: Mapping[int, str],
        boot: Callable[[], int],
        send: Callable[[int, bytes], bool],
        clock_ns: Callable[[], int] = time.monotonic_ns,
        clocks: ClusterClock | None = None,
    ) -> None:
        self.clocks = clocks  # measures the nodes' clocks by the reports; None for not
        # what this node says of itself; its owner changes it and calls `tell`
        self.own = NodeReport(node, number=1)
        # by the alarm that is on for longest. Its watchers are called as well when a stage of
        # memory or a warning of clocks has changed.
        self.blocked = BlockedState()
        self._names = names  # of all nodes by id; they may change
        self._node = node  # this node's id
        self._boot = boot  # returns this node's boot count
        self._send = send  # carries a payload to a node; False when it did not leave
        self._clock_ns = clock_ns
        self._cluster = ClusterAlarms(node)
        self._cluster.receive(self.own, 0)
        self._number = 0
        self._since_us: dict[tuple[int, int], int] = {}  # by node and limit, the oldest first
        self._stages: dict[int, int] = {}  # of memory, by node, where it is not 0
        self._handle: asyncio.TimerHandle | None = None

    @property
    def reports(self) -> Mapping[int, NodeReport]:
        """Reports of the nodes that are heard, by id, this one's included."""
        return self._cluster.reports

    def listing(self) -> list[AlarmStatus]:
        """Return the alarms that are on, the oldest first."""
        alarms = self._alarms()
        return [
            AlarmStatus(self._name(node), alarm.resource, alarm.describe(self._name(node)), since)
            for (node, limit), since in self._since_us.items()
            if (alarm := alarms.get((node, limit))) is not None
        ]

    def start(self) -> None:
        """Report to the others now and from then on, and drop what counts no longer."""
        for peer in self._peers():
            self._report(peer)
        for report in self._cluster.expire(self._now_us()):
            name = self._name(report.node)
            if report.limits():
                log_event(ALARM, ALARM_LOST, node=name, ms=ALARM_LEASE_MS)
        self._look()
        if self.clocks is not None and self.clocks.poll():
            self.blocked.change(self.blocked.now)
        self._handle = asyncio.get_running_loop().call_later(ALARM_RENEW_MS / 1000, self.start)

    def stop(self) -> None:
        """Report no more; the others do not wait for alarms of a node that stops."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self.own.memory_stage = 0
        self.own.disk_alarm = False
        self.announce()

    def announce(self) -> None:
        """Report changed alarms of this node to the others at once."""
        for peer in self._peers():
            self._report(peer)
        self._look()

    def peer_up(self, peer: int) -> None:
        """Report this node's state to a node that can be reached again."""
        if self.clocks is not None:
            self.clocks.peer_up(peer)
        self._report(peer)

    def receive(self, peer: int, message: AlarmReport) -> None:
        """Take another node's report; one that is late or repeated changes nothing."""
        report = NodeReport(peer, message.boot, message.number)
        for field in _FIELDS:
            setattr(report, field, getattr(message, field))
        if not self._cluster.receive(report, self._now_us()):
            return
        clocks, reading = self.clocks, message.clock
        if clocks is not None and reading is not None and clocks.receive(peer, reading):
            self._report(peer)
        self._look()

    def _peers(self) -> list[int]:
        return [peer for peer in self._names if peer != self._node]

    def _report(self, peer: int) -> None:
        self._number += 1
        clock = None if self.clocks is None else self.clocks.reading(peer)
        fields = {field: getattr(self.own, field) for field in _FIELDS}
        report = AlarmReport(boot=self._boot(), number=self._number, clock=clock, **fields)
        self._send(peer, encode(report))

    def _look(self) -> None:
        """Compare with the previous state, and notify listeners."""
        alarms = self._alarms()
        before = list(self._since_us)
        for key in before:
            if key not in alarms:
                del self._since_us[key]
                name, resource = self._name(key[0]), RESOURCES[key[1]]
                log_event(ALARM, ALARM_CLEARED, node=name, resource=resource)
        for key, alarm in alarms.items():
            if key not in self._since_us:
                self._since_us[key] = self._now_us()
                name, resource = self._name(key[0]), RESOURCES[key[1]]
                reason = alarm.describe(name)
                log_event(ALARM, ALARM_SET, node=name, resource=resource, reason=reason)
        changed = list(self._since_us) != before
        stages = {
            node: each.memory_stage
            for node, each in self._cluster.reports.items()
            if each.memory_stage != 0
        }
        if changed or stages != self._stages:
            self._stages = stages
            self.blocked.change(self._longest(alarms) if changed else self.blocked.now)

    def _longest(self, alarms: Mapping[tuple[int, int], Alarm]) -> Blocked:
        """Return the alarm that is on for longest."""
        if not self._since_us:
            log_event(ALARM, PUBLISHERS_RESUMED, node=self._name(self._node))
            return NOT_BLOCKED
        (node, limit), since_us = next(iter(self._since_us.items()))
        name = self._name(node)
        more = len(self._since_us) - 1
        reason = alarms[node, limit].describe(name) + (f" (and {more} more)" if more else "")
        return Blocked(reason, limit, 0, since_us, name)

    def _alarms(self) -> dict[tuple[int, int], Alarm]:
        """Return the alarms by node and limit; processes of a node have theirs together."""
        found = self._cluster.alarms()
        return {(self._first(each.report.node), each.limit): each for each in found}

    def _first(self, node: int) -> int:
        further = self._name(node) != node_name(self._name(node))
        return node % SHARD_IDS if further else node

    def _name(self, node: int) -> str:
        return self._names.get(node, str(node))

    def _now_us(self) -> int:
        return self._clock_ns() // 1000
