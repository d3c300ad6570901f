"""`python -m headrace_raftlog.crash_explorer`: crash the log everywhere, or repeat one crash."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from headrace_raftlog.crash_explorer.crash_point import KILL
from headrace_raftlog.crash_explorer.explorer import (
    Bounds,
    Explorer,
    Outcome,
    Place,
    Violation,
)
from headrace_raftlog.crash_explorer.subject import Subject
from headrace_raftlog.crash_explorer.workload import WORKLOADS, Workload


@dataclass(frozen=True, slots=True)
class _Total:
    points: int = 0
    states: int = 0
    nested_states: int = 0
    violations: int = 0

    def plus(self, outcome: Outcome) -> _Total:
        return _Total(
            self.points + outcome.points,
            self.states + outcome.states,
            self.nested_states + outcome.nested_states,
            self.violations + (outcome.violation is not None),
        )

    def __str__(self) -> str:
        return (
            f"{self.points} crash points, {self.states} states after a crash, "
            f"{self.nested_states} after a second one, {self.violations} violations"
        )


def repeat_command(workload: Workload, seed: int, violation: Violation) -> str:
    """Return the command that goes to a violation again, with its trace."""
    places = [crash.place() for crash in violation.crashes]
    at = "/".join(f"{number}:{'kill' if mask == KILL else f'{mask:x}'}" for number, mask in places)
    command = f"python -m headrace_raftlog.crash_explorer --workload {workload.name} --seed {seed}"
    return f"{command} --at {at} --trace" if at else f"{command} --trace"


def main(arguments: list[str]) -> int:
    """Run the command line; return 1 if there was any violation, else 0."""
    options = _parse(arguments)
    workloads = [WORKLOADS[options.workload]] if options.workload else list(WORKLOADS.values())
    bounds = Bounds(
        states_max=options.states, samples=options.samples, nested_alike_max=options.nested
    )
    total = _Total()
    started = time.monotonic()
    for seed in _seeds(options.seed):
        for workload in workloads:
            explorer = Explorer(Subject(), workload, seed, bounds)
            outcome = explorer.repeat(options.at) if options.at else explorer.run()
            total = total.plus(outcome)
            if options.trace:
                _say("\n".join(outcome.calls))
            if len(workloads) < len(WORKLOADS) or outcome.violation is not None:
                _say(f"{workload.name}, seed {seed}: {_Total().plus(outcome)}")
            if outcome.violation is not None:
                _report(workload, seed, outcome.violation)
    _say(f"{total}, {time.monotonic() - started:.1f} s")
    return 1 if total.violations else 0


def _report(workload: Workload, seed: int, violation: Violation) -> None:
    for number, crash in enumerate(violation.crashes):
        _say(f"crash {number + 1} {crash}")
    _say(violation.problem)
    _say(f"again: {repeat_command(workload, seed, violation)}")


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m headrace_raftlog.crash_explorer")
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


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
