"""Subject of an exploration: the code under test and its setup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace_raftlog.crash_explorer.observed_files import ObservedFiles
from headrace_raftlog.model.limits import (
    WRITE_JOB_BYTES_MAX,
    WRITE_SLICE_BYTES,
    WRITE_WHOLE_BYTES_MAX,
)
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.writing.identity import Identity

DIRECTORY: Final = "/data"  # the log and node.json stand side by side
CLUSTER: Final = "explored"
NODE: Final = 1


@dataclass(frozen=True, slots=True)
class Subject:
    """Subject of an exploration.

    Attributes:
        log_type: the log; tests put one with a bug in its place.
        identity_type: what counts the starts of a data directory, likewise.
        segment_bytes: length of its files.
        job_bytes_max: records that stay together in one batch.
        slice_bytes: what is longer is written in slices of this length; 0: nothing is.
        cache_bytes: entries it keeps in memory; 0 makes every read go to the disk.
        universe: groups are 1 to this.
        with_identity: whether each start is counted in the data directory before the log is opened.
    """

    log_type: type[SharedLog] = SharedLog
    identity_type: type[Identity] = Identity
    segment_bytes: int = 4096
    job_bytes_max: int = WRITE_JOB_BYTES_MAX
    slice_bytes: int = 0
    cache_bytes: int = 0
    universe: int = 4
    with_identity: bool = False

    def boot(self, files: ObservedFiles) -> Identity:
        """Count a start of the node."""
        return self.identity_type.open(DIRECTORY, CLUSTER, NODE, files)

    def open(self, files: ObservedFiles) -> SharedLog:
        """Open the log of a disk, without a writer thread."""
        options = LogOptions(
            segment_bytes=self.segment_bytes,
            cache_bytes=self.cache_bytes,
            job_bytes_max=self.job_bytes_max,
            whole_bytes_max=self.slice_bytes or WRITE_WHOLE_BYTES_MAX,
            slice_bytes=self.slice_bytes or WRITE_SLICE_BYTES,
            spare_files=0,
            stepped=True,
        )
        return self.log_type.open(DIRECTORY, options, None, files)
