"""Many seeds, in several processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from headrace_raftlog.simulator.cluster import simulate
from headrace_raftlog.simulator.plan import Outcome, Plan

CHUNK: Final = 25  # seeds that a process runs at a time
SHOWN_MAX: Final = 20  # violations that are told one by one


@dataclass
class Tally:
    """Results of many runs.

    Attributes:
        seeds, events: how many.
        violations: how many seeds violated an invariant.
        told: seed and text of the first few violations.
        coverage: sums of what was reached.
    """

    seeds: int = 0
    events: int = 0
    violations: int = 0
    told: list[tuple[int, str]] = field(default_factory=list)
    coverage: dict[str, int] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Count one run."""
        self.seeds += 1
        self.events += outcome.events
        if outcome.violation is not None:
            self.violations += 1
            if len(self.told) < SHOWN_MAX:
                self.told.append((outcome.seed, outcome.violation))
        self._count(outcome.coverage)

    def merge(self, other: Tally) -> None:
        """Add what another process counted."""
        self.seeds += other.seeds
        self.events += other.events
        self.violations += other.violations
        self.told = (self.told + other.told)[:SHOWN_MAX]
        self._count(other.coverage)

    def _count(self, coverage: dict[str, int]) -> None:
        for name, count in coverage.items():
            self.coverage[name] = self.coverage.get(name, 0) + count


def run_chunk(plan: Plan, first: int, last: int) -> Tally:
    """Run seeds `first` to `last` - 1 of a plan."""
    tally = Tally()
    for seed in range(first, last):
        tally.add(simulate(replace(plan, seed=seed)))
    return tally


def run_seeds(plan: Plan, first: int, last: int, jobs: int) -> Tally:
    """Run seeds in `jobs` processes; the result does not depend on how many there are."""
    total = Tally()
    if jobs == 1:
        return run_chunk(plan, first, last)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        futures = [pool.submit(run_chunk, plan, low, high) for low, high in _chunks(first, last)]
        for future in futures:
            total.merge(future.result())
    return total


def _chunks(first: int, last: int) -> Iterator[tuple[int, int]]:
    for low in range(first, last, CHUNK):
        yield low, min(low + CHUNK, last)
