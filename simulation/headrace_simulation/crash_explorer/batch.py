"""Explorations of many workloads and seeds, in several processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from headrace_simulation.crash_explorer.crash_point import KILL
from headrace_simulation.crash_explorer.explorer import Bounds, Explorer, Outcome, Place, Violation
from headrace_simulation.crash_explorer.subject import Subject
from headrace_simulation.crash_explorer.workload import WORKLOADS


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over explorations."""

    points: int = 0
    states: int = 0
    nested_states: int = 0
    violations: int = 0

    def plus(self, other: Total) -> Total:
        """Return the sum of two."""
        return Total(
            self.points + other.points,
            self.states + other.states,
            self.nested_states + other.nested_states,
            self.violations + other.violations,
        )

    def __str__(self) -> str:
        return (
            f"{self.points} crash points, {self.states} states after a crash, "
            f"{self.nested_states} after a second one, {self.violations} violations"
        )


@dataclass(frozen=True, slots=True)
class Task:
    """One exploration.

    Attributes:
        workload: its name.
        seed: of its random choices.
        bounds: how much is explored.
        at: the one crash to go to; none for all.
        trace: whether to tell what the log does.
        told: whether to tell what it came to, in any case.
    """

    workload: str
    seed: int
    bounds: Bounds
    at: tuple[Place, ...] = ()
    trace: bool = False
    told: bool = False


def run_tasks(tasks: list[Task], jobs: int) -> Iterator[tuple[Total, str]]:
    """Explore in `jobs` processes; yield what each came to, and what to tell, in order."""
    if jobs == 1:
        yield from map(run_task, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        yield from pool.map(run_task, tasks)


def run_task(task: Task) -> tuple[Total, str]:
    """Explore; return the result, and lines to print."""
    explorer = Explorer(Subject(), WORKLOADS[task.workload], task.seed, task.bounds)
    outcome = explorer.repeat(list(task.at)) if task.at else explorer.run()
    total = _total(outcome)
    lines = list(outcome.calls) if task.trace else []
    if task.told or outcome.violation is not None:
        lines.append(f"{task.workload}, seed {task.seed}: {total}")
    if outcome.violation is not None:
        lines += _report(task.workload, task.seed, outcome.violation)
    return total, "".join(f"{line}\n" for line in lines)


def _total(outcome: Outcome) -> Total:
    violations = int(outcome.violation is not None)
    return Total(outcome.points, outcome.states, outcome.nested_states, violations)


def _report(workload: str, seed: int, violation: Violation) -> list[str]:
    crashes = [f"crash {number} {crash}" for number, crash in enumerate(violation.crashes, 1)]
    return [*crashes, violation.problem, f"again: {repeat_command(workload, seed, violation)}"]


def repeat_command(workload: str, seed: int, violation: Violation) -> str:
    """Return the command that goes to a violation again, with its trace."""
    places = [crash.place() for crash in violation.crashes]
    at = "/".join(f"{number}:{'kill' if mask == KILL else f'{mask:x}'}" for number, mask in places)
    command = (
        "PYTHONPATH=simulation python -m headrace_simulation.crash_explorer "
        f"--workload {workload} --seed {seed}"
    )
    return f"{command} --at {at} --trace" if at else f"{command} --trace"
