"""What one simulated run is like: drawn from its seed, around a profile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

TICK: Final = 10  # units of simulated time in one tick of an unskewed clock


@dataclass(frozen=True)
class Profile:
    """Which faults a run favours; rates are per run and scaled by the seed.

    Attributes:
        name: as on the command line.
        drop_max, duplicate_max: upper bounds of the per-message probabilities.
        tail: probability bound of a delay many times the usual.
        delay_max: bounds of a usual message's delay in units of time; the seed picks one.
        disk_latency_max: bound of a sync in units of time.
        fault_gap: mean units of time between two faults of the nemesis.
        leader_bias: probability that a crash or cut picks the leader.
        crash_point: probability bound of a crash at each step between a Ready and its end.
        proposal: probability of a proposal per tick of each node.
        small: whether batches and windows are as small as they can be.
        hunt: probability that a new leader is struck within a few message delays.
        election_ticks: base election timeouts in ticks; the seed picks one.
        voters: group sizes; the seed picks one.
        quiesce: ticks after which idle groups fall silent; the seed picks one.
    """

    name: str
    drop_max: float = 0.2
    duplicate_max: float = 0.2
    tail: float = 0.1
    delay_max: tuple[int, ...] = (3, 8, 20)
    disk_latency_max: int = 40
    fault_gap: int = 120
    leader_bias: float = 0.4
    crash_point: float = 0.004
    proposal: float = 0.25
    small: bool = False
    hunt: float = 0.1
    election_ticks: tuple[int, ...] = (3, 5, 10)
    voters: tuple[int, ...] = (1, 2, 3, 3, 3, 3, 4, 5, 5, 7)
    quiesce: tuple[int, ...] = (0, 5, 20)


PROFILES: Final = {
    profile.name: profile
    for profile in (
        Profile("mixed"),
        Profile("leader", leader_bias=0.9, fault_gap=60, crash_point=0.01, hunt=0.5),
        Profile("small", small=True, leader_bias=0.7, fault_gap=80, hunt=0.3),
        Profile(
            "hunt",
            drop_max=0.05,
            tail=0.05,
            delay_max=(20, 30),  # longer than a sync: what a lost leader leaves is on its disk only
            disk_latency_max=6,
            fault_gap=600,
            hunt=0.95,
            proposal=0.1,
            small=True,
            voters=(3, 3, 5),
            quiesce=(0,),
        ),
        Profile("election", duplicate_max=0.5, hunt=0.9, voters=(4, 5, 7), proposal=0.1),
        Profile("disk", disk_latency_max=150, crash_point=0.01, drop_max=0.05),
        Profile("network", drop_max=0.35, duplicate_max=0.4, tail=0.3, crash_point=0.0),
        Profile("quiet", proposal=0.01, quiesce=(3, 6, 10), fault_gap=300, drop_max=0.1),
        Profile("calm", drop_max=0.0, tail=0.0, fault_gap=400, crash_point=0.0, proposal=0.6),
    )
}


@dataclass(frozen=True)
class Parameters:
    """Everything a run draws from its seed before it starts.

    Times are in units (`TICK` units are one tick); probabilities are in [0, 1].
    """

    profile: Profile
    voters: int
    learners: int
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
    disk_latency_max: int
    fault_gap: int
    leader_bias: float
    crash_point: float
    hunt: float
    proposal: float
    first_campaign: bool

    def healed(self) -> Parameters:
        """Return the same run with a network, disks and clocks that do no harm."""
        return replace(
            self,
            drop=0.0,
            duplicate=0.0,
            tail=0.0,
            delay_max=4,
            disk_latency_max=4,
            crash_point=0.0,
            proposal=0.0,
        )


def draw(rng: Random, profile: Profile | None) -> Parameters:
    """Draw a run's parameters; without a profile the seed picks that too."""
    if profile is None:
        profile = rng.choice(list(PROFILES.values()))
    voters = rng.choice(profile.voters)
    learners = rng.choice((0, 0, 0, 1, 2)) if voters <= 5 else 0
    election_ticks = rng.choice(profile.election_ticks)
    small = profile.small
    tight = rng.random() < 0.3
    return Parameters(
        profile=profile,
        voters=voters,
        learners=learners,
        election_ticks=election_ticks,
        heartbeat_ticks=rng.choice((1, 2)) if election_ticks > 3 else 1,
        append_entries_max=rng.choice((1, 2)) if small else rng.choice((1, 2, 64)),
        append_bytes_max=rng.choice((1, 64, 1 << 20)),
        inflight_max=rng.choice((1, 2)) if small else rng.choice((1, 2, 8)),
        inflight_bytes_max=rng.choice((32, 1 << 20)),
        uncommitted_bytes_max=1000 if tight else 1 << 20,
        committed_bytes_max=rng.choice((1, 64, 1 << 20)),
        quiesce_ticks=rng.choice(profile.quiesce),
        tick_units=tuple(rng.randint(7, 13) for _ in range(voters + learners)),
        drop=rng.random() * profile.drop_max,
        duplicate=rng.random() * profile.duplicate_max,
        tail=rng.random() * profile.tail,
        delay_max=rng.choice(profile.delay_max),
        disk_latency_max=rng.randint(3, profile.disk_latency_max),
        fault_gap=profile.fault_gap,
        leader_bias=profile.leader_bias,
        crash_point=rng.random() * profile.crash_point,
        hunt=profile.hunt,
        proposal=profile.proposal,
        first_campaign=rng.random() < 0.7,
    )
