"""Tunables of the shared log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace_raftlog.model.limits import (
    COLLECT_SPARE_FILES,
    COLLECT_SPARE_FILES_MAX,
    ENTRY_BYTES_MAX,
    ENTRY_CACHE_BYTES_DEFAULT,
    SEGMENT_BYTES_DEFAULT,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    WRITE_BACKLOG_BYTES_MAX,
    WRITE_BATCH_BYTES_MAX,
    WRITE_JOB_BYTES_MAX,
    WRITE_SLICE_BYTES,
    WRITE_WHOLE_BYTES_MAX,
)

JOB_BYTES_MIN: Final = 512  # bytes; room for a record and a little in it


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Options of a node's log: its use of disk and memory."""

    # length of each new file; existing files keep theirs. A record for which such a file has no
    # room gets a longer one of its own.
    segment_bytes: int = SEGMENT_BYTES_DEFAULT
    entry_bytes_max: int = ENTRY_BYTES_MAX  # length of the longest entry that is taken
    # bytes not yet durable, past which the log counts as backlogged; more than the longest entry
    # that is usual, or each of these keeps all others waiting
    backlog_bytes_max: int = WRITE_BACKLOG_BYTES_MAX
    # entries kept in memory over all groups, besides those not yet durable
    cache_bytes: int = ENTRY_CACHE_BYTES_DEFAULT
    full_retry_seconds: float = 1.0  # pause between attempts to write while the disk is full
    # idle time after which an empty batch is written behind the last one, as proof that the last
    # one was synced
    seal_seconds: float = 1.0
    # records that stay together in one batch; what is longer is split where it can be. Snapshots
    # are written in parts of this length.
    job_bytes_max: int = WRITE_JOB_BYTES_MAX
    # records that stay together are written and synced at once up to this length; beyond, in
    # slices, between which other groups' records are
    whole_bytes_max: int = WRITE_WHOLE_BYTES_MAX
    slice_bytes: int = WRITE_SLICE_BYTES  # length of a slice
    # files of dead bytes that may stand besides as many as what is live takes, so that what lives
    # for seconds dies where it is written instead of being copied
    spare_files: int = COLLECT_SPARE_FILES
    # start no writer thread; `SharedLog.step` does its work. For tests that decide when, and in
    # which order, things reach the disk.
    stepped: bool = False

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises ValueError: names the option and its range.
        """
        if not SEGMENT_BYTES_MIN <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise ValueError(
                f"segment_bytes is {self.segment_bytes}, allowed are "
                f"{SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
            )
        if self.segment_bytes % 512:
            raise ValueError(f"segment_bytes is {self.segment_bytes}, not a multiple of 512")
        if not JOB_BYTES_MIN <= self.entry_bytes_max <= ENTRY_BYTES_MAX:
            raise ValueError(
                f"entry_bytes_max is {self.entry_bytes_max}, allowed are "
                f"{JOB_BYTES_MIN} to {ENTRY_BYTES_MAX}"
            )
        if self.backlog_bytes_max <= 0:
            raise ValueError(f"backlog_bytes_max is {self.backlog_bytes_max}, must be positive")
        if not JOB_BYTES_MIN <= self.job_bytes_max <= WRITE_JOB_BYTES_MAX:
            raise ValueError(
                f"job_bytes_max is {self.job_bytes_max}, allowed are "
                f"{JOB_BYTES_MIN} to {WRITE_JOB_BYTES_MAX}"
            )
        if not JOB_BYTES_MIN <= self.whole_bytes_max <= WRITE_BATCH_BYTES_MAX:
            raise ValueError(
                f"whole_bytes_max is {self.whole_bytes_max}, allowed are "
                f"{JOB_BYTES_MIN} to {WRITE_BATCH_BYTES_MAX}"
            )
        if not 512 <= self.slice_bytes <= WRITE_BATCH_BYTES_MAX or self.slice_bytes % 512:
            raise ValueError(
                f"slice_bytes is {self.slice_bytes}, allowed are multiples of 512 up to "
                f"{WRITE_BATCH_BYTES_MAX}"
            )
        if not 0 <= self.spare_files <= COLLECT_SPARE_FILES_MAX:
            raise ValueError(
                f"spare_files is {self.spare_files}, allowed are 0 to {COLLECT_SPARE_FILES_MAX}"
            )
        if self.cache_bytes < 0:
            raise ValueError(f"cache_bytes is {self.cache_bytes}, must not be negative")
        if self.full_retry_seconds <= 0 or self.seal_seconds <= 0:
            raise ValueError("full_retry_seconds and seal_seconds must be positive")
