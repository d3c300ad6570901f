"""Memory and disk of this node: measured, reported, and acted upon."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from headrace_broker.config.configuration import Config
from headrace_broker.config.shards import has_siblings
from headrace_broker.model.flow_parameter import DISK_FREE, MEMORY_HIGH, MEMORY_PAGING, in_bytes
from headrace_broker.runtime.alarm.alarms import AlarmBoard
from headrace_broker.runtime.alarm.disk_watch import DiskWatch
from headrace_broker.runtime.alarm.memory_meter import MemoryMeter
from headrace_broker.runtime.alarm.memory_paging import BodyCache, MemoryPaging, Trimmer
from headrace_broker.runtime.alarm.memory_watch import MemoryWatch
from headrace_broker.runtime.intake.flow_settings import FlowSettings

ROOT: Final = Path("/")

log = logging.getLogger("headrace.node")


class Log(BodyCache, Protocol):
    """The replicated logs."""

    @property
    def disk_full(self) -> bool:
        """True if the log has met a full disk."""

    @property
    def disk_behind(self) -> bool:
        """True while the disk is full, or far behind the appended entries."""


class Resources:
    """Ties the watches to the alarms and to the limits of flow control."""

    def __init__(
        self,
        config: Config,
        logs: Log,
        settings: FlowSettings,
        alarms: AlarmBoard,
        root: Path = ROOT,  # where the kernel's file systems are; another directory for tests
        trim: Callable[[], None] | None = None,  # gives memory back; None for libc's
    ) -> None:
        # of the process, or of its control group
        self.memory = MemoryWatch(_meter(root, has_siblings(config)), self._memory_looked)
        # of the data directory
        self.disk = DiskWatch(config.node.data_dir, lambda: logs.disk_full, self._disk_looked)
        self._logs = logs
        self._settings = settings  # limits of flow control
        self._alarms = alarms  # where the node's own are told
        trim = Trimmer().start if trim is None else trim
        self._paging = MemoryPaging(logs, config.log.cache_bytes, trim)
        settings.watch(self._limits_changed)

    def start(self) -> None:
        """Take a sample now, and periodically from then on."""
        self._limits_changed()
        self.memory.start()  # first: the limit of the disk may be a multiple of the memory
        self.disk.start()

    def stop(self) -> None:
        """Stop sampling."""
        self.memory.stop()
        self.disk.stop()

    def short_of_disk(self) -> str:
        """Return why nothing dead may be kept on disk now, "" when it may."""
        return "the disk of the node is nearly full" if self.disk.alarm else ""

    def unfit(self) -> str:
        """Return why this node should get no more leaders, "" when it may."""
        own = self._alarms.own
        if own.memory_stage:
            return "its memory is scarce"
        if own.disk_alarm:
            return "its disk is nearly full"
        if self._logs.disk_behind:
            return "its disk is far behind"
        return ""

    def _limits_changed(self) -> None:
        settings = self._settings
        self.memory.set_watermarks(settings[MEMORY_PAGING], settings[MEMORY_HIGH])
        self._limit_disk()

    def _limit_disk(self) -> None:
        self.disk.set_limit(in_bytes(self._settings[DISK_FREE], self.memory.total))

    def _memory_looked(self) -> None:
        memory, own = self.memory, self._alarms.own
        own.memory_used, own.memory_total = memory.used, memory.total
        own.memory_limit = memory.limit
        if own.memory_stage != memory.stage:
            own.memory_stage = memory.stage
            self._alarms.announce()
        self._paging.apply(memory.stage, time.monotonic_ns() // 1_000_000)
        self._settings.set_share(memory.share)
        self._limit_disk()

    def _disk_looked(self) -> None:
        disk, own = self.disk, self._alarms.own
        own.disk_free, own.disk_limit, own.disk_full = disk.free, disk.limit, disk.full
        if own.disk_alarm != disk.alarm:
            own.disk_alarm = disk.alarm
            self._alarms.announce()


def _meter(root: Path, siblings: bool) -> MemoryMeter | None:
    try:
        return MemoryMeter(root, siblings)
    except (OSError, ValueError) as error:
        log.warning("memory use cannot be read, memory alarms are off: %s", error)
        return None
