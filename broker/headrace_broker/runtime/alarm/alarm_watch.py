"""Memory and disk state of all nodes for watchers: alarms, and the stages before them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from headrace_broker.flow.alarm import MIB, RESOURCES, STAGE_ALARM, STAGE_PAGING, Alarm, NodeReport
from headrace_broker.flow.blocked import Blocked
from headrace_broker.model.flow import LIMIT_DISK, LIMIT_MEMORY
from headrace_broker.runtime.alarm.alarms import AlarmBoard

CLEAR: Final = 0
CLOCK: Final = "clock"  # the resource of warnings of clocks, which block no publisher

Key = tuple[str, str]  # node and resource


class ResourceState(NamedTuple):
    """State of one resource of a node."""

    node: str  # name
    resource: str  # "memory", "disk" or CLOCK, whose stage is STAGE_PAGING and which has no figures
    stage: int  # CLEAR, STAGE_PAGING or STAGE_ALARM of `flow.alarm`
    since_ms: int  # Unix time at which this node saw the stage
    used: int  # bytes of memory
    total: int  # bytes of memory that it may use
    free: int  # bytes of disk
    mark: int  # bytes of used memory, or of free disk, at which publishers are blocked
    reason: str  # for people, "" when it is clear


class AlarmWatch:
    """Alarm states, and notification of their changes."""

    def __init__(
        self,
        board: AlarmBoard,
        name: Callable[[int], str],
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._board = board  # knows what the nodes report
        self._name = name  # returns a node's name by its id
        self._clock_ms = clock_ms  # Unix time
        self._since: dict[Key, tuple[int, int]] = {}  # stage, and when it was first seen
        self._news = asyncio.Event()
        board.blocked.watch(self._tell)

    @property
    def news(self) -> asyncio.Event:
        """Event that is set when a stage changes from now on."""
        return self._news

    def _tell(self, before: Blocked, now: Blocked) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def alarms_on(self) -> Mapping[Key, ResourceState]:
        """Return the resources that are not clear, of all nodes that are heard."""
        now = self._clock_ms()
        found: dict[Key, ResourceState] = {}
        for report in self._board.reports.values():
            name = self._name(report.node)
            for limit, resource in RESOURCES.items():
                stage = _stage(report, limit)
                if stage == CLEAR:
                    continue
                key = (name, resource)
                known = self._since.get(key)
                since = known[1] if known is not None and known[0] == stage else now
                figures = _figures(report, limit)
                reason = _reason(report, limit, stage, name)
                found[key] = ResourceState(name, resource, stage, since, *figures, reason)
        found.update(self._clocks(now))
        self._since = {key: (each.stage, each.since_ms) for key, each in found.items()}
        return found

    def _clocks(self, now: int) -> dict[Key, ResourceState]:
        """Return the warnings of clocks."""
        if self._board.clocks is None:
            return {}
        found: dict[Key, ResourceState] = {}
        for node, reason in self._board.clocks.warnings.items():
            key = (self._name(node), CLOCK)
            since = self._since[key][1] if key in self._since else now
            found[key] = ResourceState(*key, STAGE_PAGING, since, 0, 0, 0, 0, reason)
        return found

    def clear(self, key: Key) -> ResourceState:
        """Return that a resource of a node is not scarce, with figures where there are some."""
        name, resource = key
        now = self._clock_ms()
        for report in self._board.reports.values():
            for limit, each in RESOURCES.items():
                if (self._name(report.node), each) == key:
                    return ResourceState(name, resource, CLEAR, now, *_figures(report, limit), "")
        return ResourceState(name, resource, CLEAR, now, 0, 0, 0, 0, "")


def _stage(report: NodeReport, limit: int) -> int:
    if limit == LIMIT_MEMORY:
        return min(int(report.memory_stage), STAGE_ALARM)
    return STAGE_ALARM if report.disk_alarm else CLEAR


def _figures(report: NodeReport, limit: int) -> tuple[int, int, int, int]:
    """Return used, total, free and mark."""
    if limit == LIMIT_DISK:
        return 0, 0, int(report.disk_free), int(report.disk_limit)
    return int(report.memory_used), int(report.memory_total), 0, int(report.memory_limit)


def _reason(report: NodeReport, limit: int, stage: int, name: str) -> str:
    if stage >= STAGE_ALARM:
        return Alarm(limit, report).describe(name)
    assert stage == STAGE_PAGING
    return (
        f"paging: node {name} uses {report.memory_used // MIB} MiB of "
        f"{report.memory_total // MIB} MiB; publishers are blocked from "
        f"{report.memory_limit // MIB} MiB on"
    )
