"""What a node does about its memory: the rest of the node neither knows nor cares."""

from __future__ import annotations

from typing import Protocol

from headrace_broker.flow.alarm import STAGE_ALARM
from headrace_broker.model.limits import ALARM_CACHE_BYTES, RELIEF_CACHE_PERCENT


class BodyCache(Protocol):
    """What holds bodies that are on disk as well: `headrace_raftlog.node.RaftNode`."""

    def set_cache_bytes(self, count: int) -> None:
        """Keep no more than so many bytes of log entries in memory."""


class Relief:
    """Lets bodies leave memory while it is scarce, and come back after.

    Args:
        cache: entries of the log.
        cache_bytes: of them that may be in memory when nothing is scarce.
    """

    def __init__(self, cache: BodyCache, cache_bytes: int) -> None:
        self._cache = cache
        self._cache_bytes = cache_bytes
        self._stage = 0

    def apply(self, stage: int) -> None:
        """Do what a stage of memory asks for; the same one again changes nothing."""
        if stage == self._stage:
            return
        self._stage = stage
        if stage >= STAGE_ALARM:
            self._cache.set_cache_bytes(min(ALARM_CACHE_BYTES, self._cache_bytes))
        elif stage:
            self._cache.set_cache_bytes(self._cache_bytes * RELIEF_CACHE_PERCENT // 100)
        else:
            self._cache.set_cache_bytes(self._cache_bytes)
