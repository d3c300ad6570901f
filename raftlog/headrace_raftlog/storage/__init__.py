"""Shared log of a node: many groups in one sequence of files, one sync for all that gathered."""

from headrace_raftlog.storage.identity import Identity
from headrace_raftlog.storage.options import LogOptions
from headrace_raftlog.storage.shared_log import SharedLog

__all__ = ["Identity", "LogOptions", "SharedLog"]
