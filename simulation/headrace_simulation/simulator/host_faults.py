"""Bugs of a host that the simulator must notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HostFaults:
    """Bugs a host can have; the simulator must notice each of them.

    Attributes:
        ack_before_sync: what must wait for the disk leaves at once, and is reported durable.
        vote_not_persisted: votes are not written.
        commit_ahead: the commit index of a hard state is written as newest known.
        never_wake: changes of other nodes' liveness are not told to the core.
        snapshot_of_newest_membership: a snapshot carries a membership that may be rolled back.
        bodies_not_fetched: a snapshot is installed without the bodies of its live entries.
        leads_without_disk: a node whose disk hangs goes on leading.
        wiped_keeps_id: a node that lost its data comes back under its old member id.
    """

    ack_before_sync: bool = False
    vote_not_persisted: bool = False
    commit_ahead: bool = False
    never_wake: bool = False
    snapshot_of_newest_membership: bool = False
    bodies_not_fetched: bool = False
    wiped_keeps_id: bool = False
    leads_without_disk: bool = False
