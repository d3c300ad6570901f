"""The watch over a hanging disk, and reports of the log's threads to the host."""

from __future__ import annotations

import asyncio
from typing import Final

from headrace_raftlog.log_event import (
    DISK_ANSWERS,
    DISK_FULL,
    DISK_HAS_SPACE,
    DISK_STALLED,
    RAFT,
    log_event,
)
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.limits import HANDOVERS_PER_TICK
from headrace_raftlog.node.health import NodeHealth
from headrace_raftlog.node.host import Host
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.node.lock_yield import LockYield
from headrace_raftlog.node.options import NodeOptions
from headrace_raftlog.storage.disk.disk_watch import DiskWatch
from headrace_raftlog.storage.log.shared_log import SharedLog

STILL_TICKS: Final = 3  # ticks that count at most between two: the process itself stood still


class DiskSupervisor:
    """Gives up leading while the disk hangs, and tells the host what the log's threads report.

    Each report comes in a turn of the event loop.
    """

    def __init__(
        self,
        log: SharedLog,
        host: Host,
        loop: asyncio.AbstractEventLoop,
        options: NodeOptions,  # of the node: how often `tick` is called, and when a disk hangs
        health: NodeHealth,
    ) -> None:
        self._log = log
        self._host = host  # of all groups
        self._loop = loop
        self._passed_s_max = options.tick_ms / 1000 * STILL_TICKS
        self._stall_s = options.disk_stall_s
        self._health = health  # is told when it does
        self._watch = DiskWatch(options.disk_stall_s)
        self._ticked_at = loop.time()
        log.writer.on_durable = self._durable
        log.writer.on_full = self._full
        log.writer.on_failed = self._failed
        reads = log.recovery.reader.reads
        reads.start(loop.call_soon_threadsafe)
        if not options.log.stepped:  # else there are no threads
            lock_yield = LockYield(loop, self._step)
            log.writer.on_submitted = reads.on_handed_out = lock_yield.begin

    def full(self, full: bool) -> None:
        """Refuse proposals while the disk is full."""
        self._host.disk_full = full
        event = DISK_FULL if full else DISK_HAS_SPACE
        log_event(RAFT, event, directory=self._log.directory)

    def tick(self) -> None:
        """Check whether the disk hangs; while it does, give up the groups that are led here."""
        now = self._loop.time()
        passed_s = min(now - self._ticked_at, self._passed_s_max)
        self._ticked_at = now
        _, _, step = self._log.writes()
        if self._watch.tick(passed_s, step):
            self._tell(self._watch.stalled)
            self._host.set_disk_stalled(self._watch.stalled)
            self._health.set_stalled(self._watch.stalled)
        if self._watch.stalled and not self._host.stopped:
            self._hand_over()

    def _tell(self, stalled: bool) -> None:
        groups = self._host.groups()
        event = DISK_STALLED if stalled else DISK_ANSWERS
        led = sum(hosted.core.role == LEADER for hosted in groups)
        log_event(
            RAFT,
            event,
            directory=self._log.directory,
            seconds=self._watch.stalled_s,
            limit_seconds=self._stall_s,
            groups=len(groups),
            **({"led": led} if stalled else {}),
        )

    def _hand_over(self) -> None:
        """Hand groups over to the member that lacks least, or else have the others elect."""
        nodes_up = frozenset(self._host.nodes_up())
        begun = 0
        for hosted in self._host.groups():
            if hosted.core.role == LEADER and not hosted.core.transferee:
                self._leave(hosted, nodes_up)
                begun += 1
                if begun == HANDOVERS_PER_TICK:
                    return

    def _leave(self, hosted: HostedGroup, nodes_up: frozenset[int]) -> None:
        if not hosted.handing_over:
            hosted.handing_over = True
            target = hosted.successor(nodes_up)
            if target and self._host.transfer(hosted, target):
                return
        self._host.resign(hosted)

    def _step(self) -> tuple[int, ...] | None:
        """Return numbers that change with each step of the log's threads, None without work."""
        writer, reads = self._log.writer, self._log.recovery.reader.reads
        if not writer.has_work and not reads.has_work:
            return None
        return *(writer.under_way or ()), reads.fetched

    def _durable(self, tokens: list[object]) -> None:
        self._loop.call_soon_threadsafe(self._host.durable, tokens)

    def _full(self, full: bool) -> None:
        self._loop.call_soon_threadsafe(self.full, full)

    def _failed(self, error: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._host.fail, error)
