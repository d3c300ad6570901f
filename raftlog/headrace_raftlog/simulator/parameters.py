"""Parameters of one simulated run: drawn from its seed, around a profile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from headrace_raftlog.model.group import CoreOptions
from headrace_raftlog.simulator.profiles import PROFILES, Profile

TICK: Final = 10  # units of simulated time in one tick of an unskewed clock
_SHARES: Final = tuple(profile for profile in PROFILES.values() for _ in range(profile.share))


@dataclass(frozen=True)
class Parameters:
    """Everything a run draws from its seed before it starts.

    Times are in units (`TICK` units are one tick); probabilities are in [0, 1].
    """

    profile: Profile
    voters: int
    learners: int
    spares: int
    groups: int
    election_ticks: int
    heartbeat_ticks: int
    append_entries_max: int
    append_bytes_max: int
    inflight_max: int
    inflight_bytes_max: int
    uncommitted_bytes_max: int
    committed_bytes_max: int
    quiesce_ticks: int
    tick_units: tuple[int, ...]
    drop: float
    duplicate: float
    tail: float
    delay_max: int
    disk_latency_min: int
    disk_latency_max: int
    sync_error: float
    fault_gap: int
    leader_bias: float
    crash_point: float
    hunt: float
    proposal: float
    read: float
    churn: float
    transfer: float
    snapshot_every: int
    polite: bool
    late_turn: float
    carries_over: bool
    first_campaign: bool
    real_storage: bool

    @property
    def nodes(self) -> int:
        """Number of nodes, members of a group or not."""
        return self.voters + self.learners + self.spares

    def healed(self) -> Parameters:
        """Return the same run with a network, disks and clocks that do no harm."""
        return replace(
            self,
            drop=0.0,
            duplicate=0.0,
            tail=0.0,
            delay_max=4,
            disk_latency_min=1,
            disk_latency_max=4,
            sync_error=0.0,
            crash_point=0.0,
            proposal=0.0,
            read=0.0,
            churn=0.0,
            transfer=0.0,
        )

    def core_options(self) -> CoreOptions:
        """Return the core's tunables."""
        return CoreOptions(
            election_ticks=self.election_ticks,
            heartbeat_ticks=self.heartbeat_ticks,
            append_entries_max=self.append_entries_max,
            append_bytes_max=self.append_bytes_max,
            inflight_max=self.inflight_max,
            inflight_bytes_max=self.inflight_bytes_max,
            uncommitted_bytes_max=self.uncommitted_bytes_max,
            committed_bytes_max=self.committed_bytes_max,
            quiesce_ticks=self.quiesce_ticks,
        )


def draw(rng: Random, profile: Profile | None) -> Parameters:
    """Draw a run's parameters; without a profile the seed picks that too."""
    if profile is None:
        profile = rng.choice(_SHARES)
    voters = rng.choice(profile.voters)
    learners = rng.choice((0, 0, 0, 1, 2)) if voters <= 5 and not profile.figure_8 else 0
    spares = rng.choice(profile.spares) if voters <= 5 else 0
    election_ticks = rng.choice(profile.election_ticks)
    small = profile.small
    tight = rng.random() < 0.3
    return Parameters(
        profile=profile,
        voters=voters,
        learners=learners,
        spares=spares,
        groups=rng.choice(profile.groups),
        election_ticks=election_ticks,
        heartbeat_ticks=rng.choice((1, 2)) if election_ticks > 3 else 1,
        append_entries_max=rng.choice((1, 2)) if small else rng.choice((1, 2, 64)),
        append_bytes_max=rng.choice((1, 64, 1 << 20)),
        inflight_max=rng.choice((1, 2)) if small else rng.choice((1, 2, 8)),
        inflight_bytes_max=rng.choice((32, 1 << 20)),
        uncommitted_bytes_max=1000 if tight else 1 << 20,
        committed_bytes_max=rng.choice((1, 64, 1 << 20)),
        quiesce_ticks=rng.choice(profile.quiesce),
        tick_units=tuple(rng.randint(7, 13) for _ in range(voters + learners + spares)),
        drop=rng.random() * profile.drop_max,
        duplicate=rng.random() * profile.duplicate_max,
        tail=rng.random() * profile.tail,
        delay_max=rng.choice(profile.delay_max),
        disk_latency_min=rng.choice((1, 1, 3)),
        disk_latency_max=rng.randint(3, profile.disk_latency_max),
        sync_error=rng.choice((0.0, profile.disk_fault * 0.02)),
        fault_gap=profile.fault_gap,
        leader_bias=profile.leader_bias,
        crash_point=rng.random() * profile.crash_point,
        hunt=profile.hunt,
        proposal=profile.proposal,
        read=profile.read,
        churn=rng.choice((0.0, rng.random() * profile.churn, profile.churn)),
        transfer=rng.choice((0.0, rng.random() * profile.transfer)),
        snapshot_every=rng.choice(profile.snapshot_every),
        polite=rng.random() < 0.5,
        late_turn=rng.choice((0.0, 0.3, 0.9)),
        carries_over=rng.random() < 0.5,
        first_campaign=rng.random() < 0.7,
        real_storage=rng.random() < profile.real_storage,
    )
