"""The alarms of a cluster as one node knows them: what each node says of its memory and disk.

A report is the whole of what a node says, so that one that is repeated, late or lost does no harm.
It counts for ALARM_LEASE_MS: of a node that died or is cut off nothing is left then.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.model.flow import LIMIT_DISK, LIMIT_MEMORY
from headrace_broker.model.limits import ALARM_LEASE_MS

STAGE_PAGING: Final = 1  # bodies leave memory, and limits shrink; on the node itself
STAGE_ALARM: Final = 2  # publishers are blocked, in the whole cluster

RESOURCES: Final = {LIMIT_MEMORY: "memory", LIMIT_DISK: "disk"}  # as RabbitMQ names them

MIB: Final = 1 << 20


@final
class NodeReport:
    """Report of a node on itself."""

    def __init__(self, node: int, boot: int = 0, number: int = 0) -> None:
        self.node = node  # its id
        self.boot = boot  # its boot count
        self.number = number  # of the report within the boot, from 1
        self.memory_stage = 0  # 0, STAGE_PAGING or STAGE_ALARM
        self.memory_used = 0  # bytes
        self.memory_limit = 0  # bytes at which publishers are blocked
        self.memory_total = 0  # bytes that it may use
        self.disk_alarm = False  # its disk is full, or nearly
        self.disk_full = False  # its log has met a full disk
        self.disk_free = 0  # bytes
        self.disk_limit = 0  # bytes that have to be free

    def limits(self) -> list[int]:
        """Return which LIMITs of `model.flow` block publishers."""
        found = []
        if self.memory_stage >= STAGE_ALARM:
            found.append(LIMIT_MEMORY)
        if self.disk_alarm:
            found.append(LIMIT_DISK)
        return found


@final
class Alarm:
    """One reason for which publishers are blocked."""

    def __init__(self, limit: int, report: NodeReport) -> None:
        self.limit = limit  # LIMIT_MEMORY or LIMIT_DISK
        self.report = report  # of the node whose alarm it is

    @property
    def resource(self) -> str:
        """Name of the resource: "memory" or "disk"."""
        return RESOURCES[self.limit]

    def describe(self, name: str) -> str:
        """Describe which resource is short, and by how much."""
        report = self.report
        if self.limit == LIMIT_MEMORY:
            return (
                f"low on memory: node {name} uses {report.memory_used // MIB} MiB of "
                f"{report.memory_total // MIB} MiB, the mark is {report.memory_limit // MIB} MiB"
            )
        if report.disk_full:
            return f"low on disk: the disk of node {name} is full"
        return (
            f"low on disk: node {name} has {report.disk_free // MIB} MiB free, "
            f"the limit is {report.disk_limit // MIB} MiB"
        )


@final
class ClusterAlarms:
    """The newest report of each node, as long as it counts."""

    def __init__(self, own: int) -> None:
        self.reports: dict[int, NodeReport] = {}  # by node id; this node's own counts for ever
        self._own = own
        self._until_us: dict[int, int] = {}
        self._newest: dict[int, tuple[int, int]] = {}  # also of nodes that report no more

    def receive(self, report: NodeReport, now_us: i64) -> bool:
        """Take a report; return False, and change nothing, when it is not newer than the last."""
        name = (report.boot, report.number)
        if name <= self._newest.get(report.node, (0, 0)):
            return False
        self._newest[report.node] = name
        self.reports[report.node] = report
        if report.node != self._own:
            self._until_us[report.node] = now_us + ALARM_LEASE_MS * 1000
        return True

    def expire(self, now_us: i64) -> list[NodeReport]:
        """Drop what counts no longer, and return it."""
        over = [node for node, until_us in self._until_us.items() if until_us <= now_us]
        for node in over:
            del self._until_us[node]
        return [self.reports.pop(node) for node in over]

    def alarms(self) -> list[Alarm]:
        """Return all alarms, by node and limit; publishers resume when there is none."""
        return [
            Alarm(limit, self.reports[node])
            for node in sorted(self.reports)
            for limit in self.reports[node].limits()
        ]
