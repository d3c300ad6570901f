"""Shared log of a node: many groups in one sequence of files, one sync for all that gathered."""

from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.writing.identity import Identity

__all__ = ["Identity", "LogOptions", "SharedLog"]
