"""Founding members of a group, and the tunables of its core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.membership import Membership

CATALOG_GROUP: Final = 0  # id of the group of the catalog, without which no other is found

FOLLOWER: Final = 0
PRE_CANDIDATE: Final = 1
CANDIDATE: Final = 2
LEADER: Final = 3

ROLE_NAMES: Final = ("follower", "pre_candidate", "candidate", "leader")

QUEUED: Final = 0  # propose: taken, and appended as soon as the window of uncommitted bytes opens
NOT_LEADER: Final = -1  # propose: this member is not the leader
BUSY: Final = -2  # propose: a bound is reached, or the leadership is being handed over; try later
NOT_CAUGHT_UP: Final = -3  # propose_membership: a new voter is no learner that has the log

QUEUED_BYTES_MAX: Final = 48 << 20  # of proposals of a group that wait, unless more is said


@final
class GroupConfig:
    """One group incarnation as one member finds it when it starts."""

    def __init__(
        self,
        group: i64,
        member: i64,
        voters: tuple[int, ...],
        learners: tuple[int, ...] = (),
        outgoing: tuple[int, ...] = (),
    ) -> None:
        self.group = group  # incarnation id, from 0 (0 is the catalog), unique for ever
        self.member = member  # this member's id
        # who belonged to the group at the snapshot, or when it was founded; nobody for a member
        # that waits to be admitted
        self.membership = Membership(voters, learners, outgoing)


@final
@dataclass(eq=False)
class CoreOptions:
    """Tunables of a group's core."""

    # base election timeout in ticks; drawn anew per term in [n, 2n)
    election_ticks: i64 = 10
    # ticks between a leader's heartbeats, less than election_ticks
    heartbeat_ticks: i64 = 1
    append_entries_max: i64 = 1024
    # bytes of entry data in one APPEND (one entry always fits)
    append_bytes_max: i64 = 1 << 20
    inflight_max: i64 = 64  # APPENDs sent and not answered, per follower
    inflight_bytes_max: i64 = 16 << 20  # their bytes, per follower
    # bytes appended and not committed, beyond which proposals wait
    uncommitted_bytes_max: i64 = 16 << 20
    # bytes of proposals that wait, beyond which propose is BUSY; one may be longer
    queued_bytes_max: i64 = QUEUED_BYTES_MAX
    urgent_bytes_max: i64 = 16 << 20  # bytes that urgent proposals may add to those
    # entries that a learner may lack of the committed ones to become a voter, where it does not
    # keep pace: see `core.reconfiguration.is_caught_up`
    promote_lag_max: i64 = 256
    # bytes handed out for application in one Ready (one entry always fits)
    committed_bytes_max: i64 = 4 << 20
    # idle ticks after which a leader lets its group fall silent; 0 never
    quiesce_ticks: i64 = 20
