"""Workloads: operations on a log under observation."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from headrace_raftlog.crash_explorer import (
    collection_workload,
    fault_workload,
    mixed_workload,
    plain_workload,
    sliced_workload,
    snapshot_workload,
)
from headrace_raftlog.crash_explorer.driver import Driver
from headrace_raftlog.model.limits import WRITE_JOB_BYTES_MAX

Dice = random.Random


@dataclass(frozen=True, slots=True)
class Workload:
    """A run of a log.

    Attributes:
        name: for the command line.
        run: does it; the dice are seeded and decide what a directed workload leaves open.
        segment_bytes: length of the log's files.
        job_bytes_max: records that stay together in one batch.
        with_identity: whether starts are counted in the data directory.
        slice_bytes: what is longer is written in slices of this length; 0: nothing is.
        resume: what is done after a crash besides appending and restarting.
    """

    name: str
    run: Callable[[Driver, Dice], None]
    segment_bytes: int = 4096
    job_bytes_max: int = WRITE_JOB_BYTES_MAX
    with_identity: bool = False
    slice_bytes: int = 0
    resume: Callable[[Driver, Dice], None] = mixed_workload.nothing


PLAIN = (
    Workload("batches", plain_workload.batches, 8192),
    Workload("hard_states", plain_workload.hard_states, 8192),
    Workload("truncations", plain_workload.truncations, 8192),
    Workload("rotations", plain_workload.rotations),
    Workload("long_appends", plain_workload.long_appends),
    Workload("removals", plain_workload.removals, 8192),
    Workload("restarts", plain_workload.restarts, with_identity=True),
)
FAULTS = (
    Workload("short_writes", fault_workload.short_writes, 8192),
    Workload("full_disk", fault_workload.full_disk),
    Workload("failed_calls", fault_workload.failed_calls, with_identity=True),
)
SNAPSHOTS = (
    Workload("snapshots", snapshot_workload.snapshots, 8192),
    Workload("long_snapshots", snapshot_workload.long_snapshots),
    Workload("installs", snapshot_workload.installs, resume=snapshot_workload.fetch_and_install),
    Workload("rebirths", snapshot_workload.rebirths),
)
COLLECTION = (
    Workload("deletions", collection_workload.deletions, resume=collection_workload.settle),
    Workload("moves", collection_workload.moves, resume=collection_workload.settle),
    Workload(
        "moves_and_truncations",
        collection_workload.moves_and_truncations,
        resume=collection_workload.settle,
    ),
    Workload("replaced_and_collected", collection_workload.replaced_and_collected),
    Workload(
        "moves_of_parts",
        collection_workload.moves_of_parts,
        job_bytes_max=600,
        resume=collection_workload.settle,
    ),
    Workload("moves_and_rebirths", collection_workload.moves_and_rebirths),
    Workload(
        "moves_of_tombstones",
        collection_workload.moves_of_tombstones,
        resume=collection_workload.settle,
    ),
    Workload("hints_of_death", collection_workload.hints_of_death),
    Workload(
        "removed_and_collected",
        collection_workload.removed_and_collected,
        resume=collection_workload.settle,
    ),
    Workload("collected_on_a_full_disk", collection_workload.collected_on_a_full_disk),
)
SLICED = (
    Workload("slices", sliced_workload.slices, 16384, slice_bytes=512),
    Workload("slices_replaced", sliced_workload.replaced, 16384, slice_bytes=512),
    Workload("slices_removed", sliced_workload.removed, 16384, slice_bytes=512),
    Workload("slices_in_files", sliced_workload.in_files, 8192, slice_bytes=1024),
    Workload("slices_in_own_files", sliced_workload.in_own_files, 4096, slice_bytes=1024),
    Workload("slices_restarted", sliced_workload.restarted, 16384, slice_bytes=1024),
    Workload(
        "slices_collected",
        sliced_workload.collected,
        8192,
        slice_bytes=512,
        resume=collection_workload.settle,
    ),
    Workload("slices_filled", sliced_workload.filled, 8192, slice_bytes=512),
    Workload("slices_freed", sliced_workload.freed, 8192, slice_bytes=512),
    Workload("slices_on_a_bad_disk", sliced_workload.on_a_bad_disk, 8192, slice_bytes=512),
    Workload("slices_mixed", sliced_workload.mixed, 8192, slice_bytes=512),
    Workload("slices_mixed_collection", mixed_workload.mixed_collection, 8192, slice_bytes=512),
    Workload("slices_mixed_faults", mixed_workload.mixed_faults, 8192, slice_bytes=512),
)
MIXED = (
    Workload("mixed", mixed_workload.mixed),
    Workload("mixed_small_jobs", mixed_workload.mixed, 8192, job_bytes_max=512),
    Workload("mixed_collection", mixed_workload.mixed_collection),
    Workload("mixed_faults", mixed_workload.mixed_faults),
)
WORKLOADS = {each.name: each for each in PLAIN + FAULTS + SNAPSHOTS + COLLECTION + SLICED + MIXED}
