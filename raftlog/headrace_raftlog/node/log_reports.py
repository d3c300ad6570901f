"""Reports of the log's threads, on their way to the host on the event loop."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from headrace_raftlog.node.host import Host
from headrace_raftlog.storage.shared_log import SharedLog

LOG: Final = logging.getLogger(__name__)


class LogReports:
    """Takes the log's callbacks and passes them on, each in a turn of the event loop."""

    def __init__(self, log: SharedLog, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._loop = loop
        self._directory = log.directory
        log.on_durable = self._durable
        log.on_full = self._full
        log.on_failed = self._failed
        log.recovery.reader.reads.start(loop.call_soon_threadsafe)

    def full(self, full: bool) -> None:
        """Refuse proposals while the disk is full."""
        self._host.disk_full = full
        if full:
            LOG.error(
                "the disk of %s is full: proposals are refused until there is space; what was "
                "accepted stays",
                self._directory,
            )
        else:
            LOG.warning("the disk of %s has space again", self._directory)

    def _durable(self, tokens: list[object]) -> None:
        self._loop.call_soon_threadsafe(self._host.durable, tokens)

    def _full(self, full: bool) -> None:
        self._loop.call_soon_threadsafe(self.full, full)

    def _failed(self, error: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._host.fail, error)
