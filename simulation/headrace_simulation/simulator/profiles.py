"""Which faults a run favours: a table of profiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Profile:
    """Which faults a run favours; rates are per run and scaled by the seed.

    Attributes:
        name: as on the command line.
        share: how often the seed picks it, relative to the others.
        drop_max, duplicate_max: upper bounds of the per-message probabilities.
        tail: probability bound of a delay many times the usual.
        delay_max: bounds of a usual message's delay in units of time; the seed picks one.
        disk_latency_max: bound of a sync in units of time.
        fault_gap: mean units of time between two faults of the nemesis.
        leader_bias: probability that a crash or cut picks the leader.
        crash_point: probability bound of a crash at each step between a Ready and its end.
        proposal: probability of a proposal per tick of each node.
        read: probability of a read per tick of each node and group.
        small: whether batches and windows are as small as they can be.
        hunt: probability that a new leader is struck within a few message delays.
        hunt_changes: probability that a leader is struck that just began to change the membership.
        figure_8: whether new leaders are struck so that old entries stay on minorities.
        outdate: whether leaders are struck so that they do not notice another election.
        election_ticks: base election timeouts in ticks; the seed picks one.
        voters: group sizes; the seed picks one.
        spares: nodes that are in no group at first; the seed picks one.
        groups: groups that share each node's disk; the seed picks one.
        quiesce: ticks after which idle groups fall silent; the seed picks one.
        snapshot_every: entries applied between two snapshots, 0 never; the seed picks one.
        churn: probability bound of a wanted or wild change of membership per tick of a leader.
        transfer: probability bound of a transfer per tick of a leader.
        data_loss: share of faults that destroy the data of a minority (wiped node, bit flip).
        disk_fault: share of faults that are a failed sync or a full disk.
        clock_jump: share of faults that are a burst of ticks or none for a while.
        link_fault: share of faults that break a session or let a link flap.
        regroup: share of faults that delete a group and create another in its place.
        link_cut: share of faults that cut one link both ways until it is healed with all others.
        real_storage: probability that the real log stands under the cores.
    """

    name: str
    share: int = 2
    drop_max: float = 0.2
    duplicate_max: float = 0.2
    tail: float = 0.1
    delay_max: tuple[int, ...] = (3, 8, 20)
    disk_latency_max: int = 40
    fault_gap: int = 120
    leader_bias: float = 0.4
    crash_point: float = 0.004
    proposal: float = 0.25
    read: float = 0.05
    small: bool = False
    hunt: float = 0.1
    hunt_changes: float = 0.1
    figure_8: bool = False
    outdate: bool = False
    election_ticks: tuple[int, ...] = (3, 5, 10)
    voters: tuple[int, ...] = (1, 2, 3, 3, 3, 3, 4, 5, 5, 7)
    spares: tuple[int, ...] = (0, 0, 0, 1)
    groups: tuple[int, ...] = (1, 1, 1, 1, 2)
    quiesce: tuple[int, ...] = (0, 5, 20)
    snapshot_every: tuple[int, ...] = (0, 2, 10, 1000)
    churn: float = 0.02
    transfer: float = 0.01
    data_loss: float = 0.03
    disk_fault: float = 0.05
    clock_jump: float = 0.05
    link_fault: float = 0.08
    regroup: float = 0.01
    link_cut: float = 0.0
    real_storage: float = 0.0


PROFILES: Final = {
    profile.name: profile
    for profile in (
        Profile("mixed", share=4),
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
        Profile(
            "figure_8",
            drop_max=0.0,
            duplicate_max=0.0,
            tail=0.0,
            delay_max=(20, 30),
            disk_latency_max=4,
            fault_gap=100_000,
            crash_point=0.0,
            hunt=0.9,
            hunt_changes=0.0,
            figure_8=True,
            small=True,
            proposal=0.0,
            read=0.0,
            election_ticks=(10,),
            voters=(3,),
            spares=(0,),
            groups=(1,),
            quiesce=(0,),
            snapshot_every=(0,),
            churn=0.0,
            transfer=0.0,
        ),
        Profile("election", duplicate_max=0.5, hunt=0.9, voters=(4, 5, 7), proposal=0.1),
        Profile("disk", disk_latency_max=100, crash_point=0.01, drop_max=0.05, disk_fault=0.3),
        Profile(
            "network", drop_max=0.3, duplicate_max=0.4, tail=0.3, crash_point=0.0, link_fault=0.5
        ),
        Profile("quiet", proposal=0.01, quiesce=(3, 6, 10), fault_gap=300, drop_max=0.1, read=0.01),
        Profile(
            "links",
            share=0,  # seeds that choose their profile go on choosing the same; run it by its name
            drop_max=0.0,
            duplicate_max=0.1,
            tail=0.0,
            delay_max=(3, 8),
            disk_latency_max=20,
            fault_gap=250,
            crash_point=0.0,
            proposal=0.02,
            read=0.005,
            hunt=0.0,
            hunt_changes=0.0,
            election_ticks=(3, 5, 10),
            voters=(3, 3, 5, 7),
            quiesce=(0, 3, 6, 10),
            churn=0.002,
            transfer=0.0,
            data_loss=0.0,
            disk_fault=0.0,
            clock_jump=0.02,
            link_fault=0.05,
            regroup=0.0,
            link_cut=0.6,
        ),
        Profile("calm", drop_max=0.0, tail=0.0, fault_gap=400, crash_point=0.0, proposal=0.6),
        Profile(
            "membership",
            voters=(1, 2, 3, 3, 4, 5),
            spares=(1, 2, 3),
            churn=0.2,
            transfer=0.02,
            hunt=0.4,
            hunt_changes=0.4,
            data_loss=0.1,
            snapshot_every=(0, 2, 10),
        ),
        Profile(
            "overlap",
            drop_max=0.05,
            tail=0.05,
            delay_max=(8, 20),
            fault_gap=100,
            voters=(2, 3, 4),
            spares=(1, 2),
            groups=(1,),
            churn=0.6,
            hunt=0.6,
            hunt_changes=0.7,
            proposal=0.02,
            quiesce=(0,),
            snapshot_every=(0, 10),
            data_loss=0.0,
        ),
        Profile(
            "snapshot",
            snapshot_every=(2, 2, 5, 10),
            proposal=0.5,
            fault_gap=100,
            spares=(0, 1),
            churn=0.05,
            data_loss=0.08,
            crash_point=0.01,
        ),
        Profile("reads", read=0.5, proposal=0.4, hunt=0.5, leader_bias=0.8, fault_gap=80),
        Profile(
            "stale_reads",
            share=1,
            drop_max=0.0,
            tail=0.4,
            delay_max=(3, 8),
            disk_latency_max=8,
            fault_gap=3000,
            crash_point=0.0,
            proposal=0.5,
            read=0.5,
            hunt=0.9,
            outdate=True,
            election_ticks=(3, 5),
            voters=(3,),
            spares=(0,),
            groups=(1,),
            quiesce=(0,),
            snapshot_every=(0,),
            churn=0.0,
            transfer=0.0,
        ),
        Profile("groups", groups=(2, 3, 4, 5), regroup=0.15, spares=(0, 1), fault_gap=100),
        Profile(
            "bytes",
            share=2,
            real_storage=1.0,
            snapshot_every=(2, 5, 10),
            groups=(1, 1, 2, 3),
            disk_fault=0.15,
            data_loss=0.2,
            crash_point=0.01,
        ),
    )
}
