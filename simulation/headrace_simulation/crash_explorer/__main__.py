"""`python -m headrace_simulation.crash_explorer`: crash the log everywhere, or repeat one crash."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from headrace_simulation.crash_explorer.batch import Task, Total, run_tasks
from headrace_simulation.crash_explorer.crash_point import KILL
from headrace_simulation.crash_explorer.explorer import Bounds, Place
from headrace_simulation.crash_explorer.workload import WORKLOADS

JOBS: Final = 2  # processes; a machine for development has at least as many cores


def main(arguments: list[str]) -> int:
    """Run the command line; return 1 if there was any violation, else 0."""
    options = _parse(arguments)
    workloads = [options.workload] if options.workload else list(WORKLOADS)
    bounds = Bounds(
        states_max=options.states, samples=options.samples, nested_alike_max=options.nested
    )
    single = len(workloads) < len(WORKLOADS)
    tasks = [
        Task(workload, seed, bounds, tuple(options.at or ()), options.trace, single)
        for seed in _seeds(options.seed)
        for workload in workloads
    ]
    total = Total()
    started = time.monotonic()
    for found, told in run_tasks(tasks, 1 if len(tasks) == 1 else options.jobs):
        total = total.plus(found)
        sys.stdout.write(told)
    sys.stdout.write(f"{total}, {time.monotonic() - started:.1f} s\n")
    return 1 if total.violations else 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m headrace_simulation.crash_explorer")
    parser.add_argument("--workload", choices=sorted(WORKLOADS), help="default: all of them")
    parser.add_argument(
        "--seed", default="0", metavar="N|A:B", help="one, or A to B-1 (%(default)s)"
    )
    parser.add_argument(
        "--states", type=int, default=Bounds().states_max, metavar="MAX", help="per workload, seed"
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=Bounds().samples,
        help="of each crash point where not everything can be tried (%(default)s)",
    )
    parser.add_argument(
        "--nested",
        type=int,
        default=Bounds().nested_alike_max,
        help="second crashes in how many repairs of the same shape (%(default)s)",
    )
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes (%(default)s)")
    parser.add_argument("--trace", action="store_true", help="print what the log does")
    parser.add_argument("--at", type=_places, metavar="PLACE", help="go to one crash only")
    options = parser.parse_args(arguments)
    if options.at and not options.workload:
        parser.error("--at needs --workload")
    return options


def _places(text: str) -> list[Place]:
    places = []
    for word in text.split("/"):
        number, _, mask = word.partition(":")
        places.append((int(number), KILL if mask == "kill" else int(mask, 16)))
    return places


def _seeds(text: str) -> range:
    first, separator, last = text.partition(":")
    try:
        return range(int(first), int(last) if separator else int(first) + 1)
    except ValueError:
        raise SystemExit(f"--seed: expected N or A:B, got {text!r}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
