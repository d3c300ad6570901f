"""Runs a workload, crashes it everywhere, and looks at what each crash left."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from headrace_raftlog.crash_explorer.crash_point import KILL, CrashPoint
from headrace_raftlog.crash_explorer.driver import Driver, ViolationError
from headrace_raftlog.crash_explorer.history import History, Legal
from headrace_raftlog.crash_explorer.observed_files import ObservedFiles
from headrace_raftlog.crash_explorer.subject import Subject
from headrace_raftlog.crash_explorer.workload import Workload

Place = tuple[int, int]  # number of a crash point, mask of what survived or KILL


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of an exploration.

    Attributes:
        states_max: disks opened in one run of a workload, those after second crashes included.
        samples: of each crash point, besides the extremes, where not everything is tried.
        nested_alike_max: disks whose repair makes the same calls and which get a second crash.
        nested_samples: as `samples`, for second crashes.
    """

    states_max: int = 1 << 60
    samples: int = 16
    nested_alike_max: int = 1
    nested_samples: int = 4


@dataclass(frozen=True, slots=True)
class Crash:
    """One crash on the way to a state.

    Attributes:
        point: where.
        mask: which of the choices there fell to survival, or KILL.
    """

    point: CrashPoint
    mask: int

    def place(self) -> Place:
        """Return what stands for it on the command line."""
        return self.point.number, self.mask

    def __str__(self) -> str:
        before = f"at {self.point.number}, before '{self.point.call}'"
        return f"{before}: {self.point.describe(self.mask)}"


@dataclass(frozen=True, slots=True)
class Violation:
    """Violation, and the place where it was found.

    Attributes:
        crashes: the crash, and the second one if there was one; none when it went wrong without.
        problem: what is wrong with the log.
    """

    crashes: tuple[Crash, ...]
    problem: str


@dataclass(slots=True)
class Outcome:
    """Result of a run of a workload.

    Attributes:
        points: crash points of the first life.
        states: disks opened after one crash.
        nested_states: disks opened after two.
        repeats: disks left out because the same was opened before.
        violation: the first one, or None.
        calls: what the workload made the log do, by crash point.
    """

    points: int = 0
    states: int = 0
    nested_states: int = 0
    repeats: int = 0
    violation: Violation | None = None
    calls: list[str] = field(default_factory=list)


class ViolationFoundError(Exception):
    """Ends an exploration."""

    def __init__(self, crashes: tuple[Crash, ...], error: Exception) -> None:
        known = isinstance(error, ViolationError)
        problem = str(error) if known else f"{type(error).__name__}: {error}"
        super().__init__(problem)
        self.violation = Violation(crashes, problem)


class Explorer:
    """One exploration of one workload."""

    def __init__(self, subject: Subject, workload: Workload, seed: int, bounds: Bounds) -> None:
        self.subject = replace(
            subject,
            segment_bytes=workload.segment_bytes,
            job_bytes_max=workload.job_bytes_max,
            with_identity=workload.with_identity,
            slice_bytes=workload.slice_bytes,
        )
        self.workload = workload
        self.seed = seed
        self.bounds = bounds
        self.outcome = Outcome()
        self._seen: dict[bytes, Legal] = {}
        self._lived: set[bytes] = set()
        self._repairs: dict[tuple[str, ...], int] = {}
        self._nested: list[Crash] = []

    def run(self) -> Outcome:
        """Explore until everything within the bounds was seen, or something is wrong."""
        outcome = self.outcome
        try:
            for crash in rounds(self._first_life(), self.bounds.samples, self.seed):
                self._check((crash,))
                if self._exhausted():
                    return outcome
            for first in self._nested:
                life = self._open((first,), watched=True)
                self._use(life, (first,))
                for second in rounds(life.points, self.bounds.nested_samples, self.seed):
                    self._check((first, second))
                    if self._exhausted():
                        return outcome
        except ViolationFoundError as found:
            outcome.violation = found.violation
        return outcome

    def _exhausted(self) -> bool:
        return self.outcome.states + self.outcome.nested_states >= self.bounds.states_max

    def repeat(self, places: list[Place]) -> Outcome:
        """Go to one place only."""
        try:
            points = self._first_life()
            crashes: tuple[Crash, ...] = ()
            for number, mask in places:
                crashes = (*crashes, Crash(points[number - 1], mask))
                life = self._open(crashes, watched=True)
                points = life.points
                self._use(life, crashes)
                self._trace(points, f"after crash {len(crashes)}, ")
        except ViolationFoundError as found:
            self.outcome.violation = found.violation
        return self.outcome

    def _first_life(self) -> list[CrashPoint]:
        dice = random.Random(f"{self.workload.name}/{self.seed}")  # noqa: S311 - sampling
        try:
            driver = Driver(self.subject, ObservedFiles(), History({}).legal(), 0, watched=True)
            self.workload.run(driver, dice)
            driver.end()
        except Exception as error:
            raise ViolationFoundError((), error) from error
        self.outcome.points = len(driver.points)
        self._trace(driver.points, "")
        return driver.points

    def _trace(self, points: list[CrashPoint], where: str) -> None:
        self.outcome.calls += [f"{where}{point.number}: {point.call}" for point in points]

    def _check(self, crashes: tuple[Crash, ...]) -> None:
        """Open what a crash left and use it, unless the same was seen before."""
        point, mask = crashes[-1].point, crashes[-1].mask
        if mask != KILL:
            _, digest = point.disk(mask)
            seen = self._seen.get(digest)
            if seen is not None and point.legal.implied_by(seen):
                self.outcome.repeats += 1
                return
            self._seen[digest] = point.legal
        if len(crashes) > 1:
            self.outcome.nested_states += 1
        else:
            self.outcome.states += 1
        life = self._open(crashes, watched=False)
        repair = tuple(life.files.trace)
        alike = self._repairs.get(repair, 0)
        if len(crashes) == 1 and alike < self.bounds.nested_alike_max:
            self._repairs[repair] = alike + 1
            self._nested.append(crashes[0])
        digest = life.files.digest()
        if digest not in self._lived:
            self._lived.add(digest)
            self._use(life, crashes)

    def _open(self, crashes: tuple[Crash, ...], watched: bool) -> Driver:
        point, mask = crashes[-1].point, crashes[-1].mask
        files = ObservedFiles()
        if mask == KILL:
            point.copy_to(files)
        else:
            for path, data in point.disk(mask)[0].items():
                files.put(path, data)
        try:
            return Driver(self.subject, files, point.legal, len(crashes), watched)
        except Exception as error:
            raise ViolationFoundError(crashes, error) from error

    def _use(self, life: Driver, crashes: tuple[Crash, ...]) -> None:
        """Write to a log that survived a crash, and open it once more."""
        try:
            for group in range(1, self.subject.universe + 1):
                if not life.image(group).removed:
                    life.append(group, [600 // group], back=group % 2, vote=group)
                if group % 2:
                    life.commit()
            life.commit()
            if life.history.waiting():
                raise ViolationError("what was appended after the crash does not become durable")
            self.workload.resume(life, random.Random(self.seed))  # noqa: S311 - as above
            life.restart()
            life.end()
        except Exception as error:
            raise ViolationFoundError(crashes, error) from error


def rounds(points: list[CrashPoint], samples: int, seed: int) -> Iterator[Crash]:
    """Yield every crash to look at, one of each crash point in turn."""
    waiting = [(point, point.masks(samples, seed)) for point in points]
    while waiting:
        later = []
        for point, masks in waiting:
            mask = next(masks, None)
            if mask is not None:
                yield Crash(point, mask)
                later.append((point, masks))
        waiting = later
