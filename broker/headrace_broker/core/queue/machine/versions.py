"""Versions of the queue machine: which commands they know."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from headrace_broker.core.queue.command.archive_command import ArchiveCommand
from headrace_broker.core.queue.command.command import Command, Enqueue, Remove, SetPrefetch
from headrace_broker.core.queue.command.leader_command import Acquire, Forget, Tick
from headrace_broker.core.queue.command.lease_command import LeaseCommand

LEASES_VERSION: Final = 3  # from which on there are leases and publishers with ids
ARCHIVE_VERSION: Final = 4  # from which on there are archives
PREFETCH_VERSION: Final = 5  # from which on the prefetch of an attached consumer can be changed

_LATER: Final = (Tick, Acquire, Forget, Remove)  # commands that version 1 does not know


def knows(version: i64, command: Command) -> bool:
    """Return whether a machine of this version carries out such a command."""
    if version >= PREFETCH_VERSION:  # the newest
        return True
    if isinstance(command, SetPrefetch):
        return False
    if isinstance(command, ArchiveCommand):
        return version >= ARCHIVE_VERSION
    if isinstance(command, LeaseCommand):
        return version >= LEASES_VERSION
    if isinstance(command, Enqueue):
        return command.named is None or version >= LEASES_VERSION
    return version > 1 or not isinstance(command, _LATER)
