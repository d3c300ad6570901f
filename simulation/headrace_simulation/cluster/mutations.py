"""Bugs put into production code, each of which runs should find: they test the simulation.

simulation/README.md says which of them are found.
"""

from __future__ import annotations

from typing import Final

from headrace_simulation.cluster.bugs import (
    backup,
    catalog,
    disk,
    lease,
    queue,
    raft,
    session,
    shard,
    transport,
    versions,
)
from headrace_simulation.cluster.bugs.bug import Mutation

MUTATIONS: Final[tuple[Mutation, ...]] = (
    *catalog.MUTATIONS,
    *queue.MUTATIONS,
    *lease.MUTATIONS,
    *session.MUTATIONS,
    *raft.MUTATIONS,
    *disk.MUTATIONS,
    *transport.MUTATIONS,
    *versions.MUTATIONS,
    *backup.MUTATIONS,
    *shard.MUTATIONS,
)
