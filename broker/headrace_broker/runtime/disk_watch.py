"""Stops publishers before the disk is full, and says so."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from typing import Final

SAMPLE_SECONDS: Final = 1.0  # between looks at the free space
RESUME_FACTOR: Final = 1.1  # of the limit must be free again, so that the state does not flap

log = logging.getLogger(__name__)


class DiskWatch:
    """Looks at the free space of the data directory once a second.

    Args:
        directory: data directory.
        free_bytes_min: below this publishers are blocked; 0 leaves it to the log running full.
        log_is_full: whether the log has met a full disk.
        changed: called with the new reason, "" when publishers may go on.

    Attributes:
        reason: why publishers are blocked, "" when they are not.
    """

    def __init__(
        self,
        directory: str,
        free_bytes_min: int,
        log_is_full: Callable[[], bool],
        changed: Callable[[str], None],
    ) -> None:
        self.reason = ""
        self._directory = directory
        self._free_bytes_min = free_bytes_min
        self._log_is_full = log_is_full
        self._changed = changed
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look now and from then on every second."""
        self._look()

    def stop(self) -> None:
        """Look no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(SAMPLE_SECONDS, self._look)
        try:
            free = shutil.disk_usage(self._directory).free
        except OSError as error:  # what is written there fails or not, and the log says so
            log.warning("free space in %s is not known: %s", self._directory, error)
            return
        reason = self._judge(free)
        if bool(reason) != bool(self.reason):
            if reason:
                log.warning("publishers are blocked: %s", reason)
            else:
                log.warning("publishers may go on: there is room on the disk again")
            self.reason = reason
            self._changed(reason)

    def _judge(self, free: int) -> str:
        if self._log_is_full():
            return f"disk full: no room for the log in {self._directory}"
        factor = RESUME_FACTOR if self.reason else 1.0
        if free < self._free_bytes_min * factor:
            return (
                f"low on disk: {free >> 20} MiB free in {self._directory}, "
                f"{self._free_bytes_min >> 20} MiB wanted (limits.disk_free_bytes_min)"
            )
        return ""
