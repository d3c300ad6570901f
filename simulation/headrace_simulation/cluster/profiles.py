"""Kinds of runs: how many nodes, what goes wrong, and how much work there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from headrace_simulation.cluster.drains import DRAINS, FORGETS
from headrace_simulation.cluster.faults import (
    BLACKOUTS,
    CLOCKS,
    CLONES,
    DISKS,
    LOSSES,
    NETWORK,
    OLD,
    PROCESSES,
    ROLLS,
    Kind,
)
from headrace_simulation.cluster.shard_faults import LOST_SHARDS, SHARDS
from headrace_simulation.cluster.unsynced import UNSYNCED


@dataclass(frozen=True)
class Profile:
    """One kind of run."""

    name: str
    kinds: tuple[Kind, ...]  # of faults
    nodes: int = 3
    shards: int = 1  # processes of each node
    at_once: int = 1  # faults under way
    gap_s: float = 1.2  # between the beginnings of two of them, on average
    seconds: float = 20.0  # for which there are faults
    limits: bool = False  # there are queues with limits of time and length
    large: float = 0.0  # share of large messages
    leases: bool = False  # there are queues with delayed messages, and such that jobs lease
    backups: bool = False  # queues are backed up, again and again
    drains: bool = False  # nodes are drained, so that they know of their clients
    moves: bool = False  # leaders and members are moved, and queues come and go
    consume_s: float = 10.0  # for which a consumer lives at most
    publish_s: float = 10.0  # for which a publisher lives at most
    pause_s: float = 0.9  # of a publisher between two batches, on average
    snapshot_bytes: int = 64 << 10  # of a log, after which there is one
    versions: bool = False  # nodes are of a release first, and later of the head, or back


PROFILES: Final = (
    Profile("calm", (), seconds=15.0),
    Profile("moves", PROCESSES, moves=True, gap_s=4.0),
    Profile("process", (*PROCESSES, *CLOCKS)),
    Profile("network", (*NETWORK, *NETWORK, *PROCESSES[2:])),
    Profile("disk", DISKS, seconds=30.0),
    Profile("loss", (*LOSSES, *CLONES, *PROCESSES), gap_s=3.0, seconds=30.0),
    Profile("blackout", (*BLACKOUTS, *PROCESSES[1:2]), gap_s=2.0),
    Profile("old", OLD, seconds=30.0),
    Profile("errors", (*DISKS[2:], PROCESSES[1]), gap_s=0.5, seconds=30.0),
    Profile("unsynced", UNSYNCED, gap_s=10.0, seconds=45.0),
    Profile("steady", (*PROCESSES, *NETWORK), gap_s=8.0, seconds=60.0, consume_s=80.0),
    Profile("churn", NETWORK, gap_s=8.0, seconds=40.0, consume_s=1.0, publish_s=1.0),
    Profile("limits", PROCESSES[:2], gap_s=4.0, seconds=15.0, limits=True),
    Profile("leases", (*PROCESSES, *NETWORK), gap_s=3.0, leases=True),
    Profile("large", (*NETWORK, *NETWORK, *PROCESSES), gap_s=3.0, large=0.03),
    Profile("clocks", (*CLOCKS[:1], *CLOCKS, *PROCESSES[:1]), gap_s=0.5, seconds=30.0),
    Profile("one", (*PROCESSES, *NETWORK, *DISKS, *CLOCKS)),
    Profile("several", (*PROCESSES, *NETWORK, *DISKS, *CLOCKS), at_once=3, gap_s=0.8),
    Profile("everything", (*PROCESSES, *NETWORK, *DISKS, *LOSSES, *CLONES, *CLOCKS), at_once=2),
    Profile(
        "five", (*PROCESSES, *NETWORK, *DISKS, *LOSSES), nodes=5, at_once=2, moves=True, pause_s=1.5
    ),
    Profile("returns", PROCESSES[:1], nodes=4, gap_s=2.0, seconds=40.0, moves=True),
    Profile("backups", (*PROCESSES, *NETWORK), gap_s=4.0, backups=True, snapshot_bytes=8 << 10),
    Profile(
        "versions",
        (*ROLLS * 5, *PROCESSES, *NETWORK),
        gap_s=1.5,
        seconds=30.0,
        snapshot_bytes=4 << 10,
        versions=True,
    ),
)
# Profiles that no seed's number chooses, so that it goes on choosing the one that it did. Batches
# run them beside those, each as often as any of those.
BESIDE: Final = (
    Profile(
        "shards",
        (*PROCESSES, *SHARDS, *NETWORK, *DISKS, *BLACKOUTS, *LOSSES, *LOST_SHARDS),
        shards=2,
        moves=True,
        pause_s=1.8,
    ),
    Profile(
        "drains",
        (*DRAINS, *FORGETS, *PROCESSES[:1], *SHARDS),
        nodes=4,
        shards=2,
        at_once=2,
        gap_s=2.0,
        seconds=40.0,
        drains=True,
        moves=True,
        pause_s=3.0,
    ),
)


def drawn(seeds: Iterable[int], name: str = "") -> Iterator[tuple[int, str]]:
    """Return the runs of a batch: seeds, and the profiles that they are run with.

    Args:
        seeds: that are asked for.
        name: of a profile for all of them; "" for each one's own, and those in BESIDE.
    """
    for seed in seeds:
        yield seed, profile_of(seed, name).name
        if not name and seed % len(PROFILES) == 0:
            yield from ((seed, each.name) for each in BESIDE)


def profile_of(seed: int, name: str = "") -> Profile:
    """Return the profile of a name, or else that of a seed."""
    for profile in (*PROFILES, *BESIDE):
        if profile.name == name:
            return profile
    assert not name, f"profiles are {', '.join(p.name for p in (*PROFILES, *BESIDE))}"
    return PROFILES[seed % len(PROFILES)]
