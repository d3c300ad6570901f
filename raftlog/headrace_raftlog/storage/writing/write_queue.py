"""Jobs that wait for the writer, and which of them may pass which.

A long job is written in slices, between which other groups' jobs pass it. Jobs of one group stay in
their order. What dies with a job dies only with all jobs before it: where a job passes others, they
take that over.
"""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from headrace_raftlog.storage.segment.record import HEADER_BYTES, sector_end
from headrace_raftlog.storage.writing.sliced_write import placing_bytes
from headrace_raftlog.storage.writing.write_job import WriteJob


@final
class WriteQueue:
    """Jobs in the order they were handed over. Belongs to the writer's thread."""

    def __init__(self, whole_bytes_max: i64) -> None:
        """Make an empty one, of which a job of up to `whole_bytes_max` is written in one piece."""
        # whether long jobs are written in slices; else all jobs are taken in order
        self.slicing = False
        # the job of which slices are being written, or None; it is not in the queue
        self.under_way: WriteJob | None = None
        self._whole_bytes_max = whole_bytes_max
        self._jobs: deque[WriteJob] = deque()
        self._long: i64 = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._jobs)

    def push(self, job: WriteJob) -> None:
        """Put a job behind the others."""
        self._jobs.append(job)
        if self._is_long(job):
            self._long += 1

    def first(self) -> WriteJob | None:
        """Return the job that waits longest, None if there is none."""
        return self._jobs[0] if self._jobs else None

    def is_sliced(self, job: WriteJob) -> bool:
        """Return whether a job is written in slices."""
        return self.slicing and self._is_long(job)

    def has_sliced(self) -> bool:
        """Return whether a job that is written in slices is under way or waits."""
        return self.under_way is not None or (self.slicing and self._long > 0)

    def need(self, job: WriteJob) -> i64:
        """Return how much room the records of one more batch need for a job to go on with."""
        return self.need_in_new(job) if self.slicing else job.cost

    def need_in_new(self, job: WriteJob) -> i64:
        """Return the same for a segment of the newest version, in which there are slices."""
        if not self._is_long(job):
            return job.cost
        return HEADER_BYTES + sector_end(job.size) + placing_bytes(job)

    def begin(self, room: i64) -> WriteJob | None:
        """Take the first job if it is to be written in slices from now on; else return None."""
        job = self.first()
        if self.under_way is not None or job is None or not self.is_sliced(job):
            return None
        if self.need(job) > room:
            return None
        self._jobs.popleft()
        self._long -= 1
        self.under_way = job
        return job

    def take(self, room: i64, bytes_max: i64) -> list[WriteJob]:
        """Take jobs for one batch, in order.

        Args:
            room: bytes that they take at most.
            bytes_max: likewise, unless one alone takes more.
        """
        if self.has_sliced():
            return self._take_passing(room, bytes_max)
        queue = self._jobs
        out: list[WriteJob] = []
        cost: i64 = 0
        while queue:
            taken: i64 = queue[0].cost
            if cost + taken > room or (out and cost + taken > bytes_max):
                break
            cost += taken
            job = queue.popleft()
            if self._long > 0 and self._is_long(job):
                self._long -= 1
            out.append(job)
        return out

    def _take_passing(self, room: i64, bytes_max: i64) -> list[WriteJob]:
        """Take jobs of groups of which no earlier one is or has to be written in slices."""
        queue = self._jobs
        out: list[WriteJob] = []
        passed: list[WriteJob] = []
        behind = self.under_way
        held: set[int] = set(behind.ordered) if behind is not None else set()
        cost: i64 = 0
        while queue:
            job = queue[0]
            if self._is_long(job) or not held.isdisjoint(job.ordered):
                held.update(job.ordered)
                behind = job
                passed.append(queue.popleft())
                continue
            taken: i64 = job.cost
            if cost + taken > room or (out and cost + taken > bytes_max):
                break
            cost += taken
            out.append(queue.popleft())
            if behind is not None and job.dying is not None:
                _hand_on(job, behind)
        queue.extendleft(reversed(passed))
        return out

    def _is_long(self, job: WriteJob) -> bool:
        return job.size > self._whole_bytes_max


def _hand_on(job: WriteJob, behind: WriteJob) -> None:
    """Pass on what would die with a job to one that is durable later, and was before it."""
    dying = job.dying
    assert dying is not None
    if behind.dying is None:
        behind.dying = dying
    else:
        for sequence, size in dying.items():
            behind.dying[sequence] = behind.dying.get(sequence, 0) + size
    job.dying = None
