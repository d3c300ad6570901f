"""`python -m headrace_simulation.simulator`: run seeds, replay one, or renew golden scripts."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from headrace_simulation.simulator import script
from headrace_simulation.simulator.batch import run_seeds
from headrace_simulation.simulator.cluster import simulate
from headrace_simulation.simulator.plan import Plan
from headrace_simulation.simulator.profiles import PROFILES

JOBS: Final = 2  # processes; a machine for development has at least as many cores


def replay_command(plan: Plan) -> str:
    """Return the command that repeats a run with its trace."""
    words = [
        "PYTHONPATH=simulation python -m headrace_simulation.simulator",
        f"--seed {plan.seed} --trace",
    ]
    if plan.profile is not None:
        words.append(f"--profile {plan.profile}")
    words.append(f"--events {plan.events}")
    return " ".join(words)


def main(arguments: list[str]) -> int:
    """Run the command line; return 1 if any invariant was violated, else 0."""
    options = _parse(arguments)
    if options.rewrite is not None:
        for name in options.rewrite:
            path = Path(name)
            path.write_text(script.replay(path.read_text()))
        return 0
    if options.seed is not None:
        return _replay(
            Plan(options.seed, options.profile, events=options.events, tracing=options.trace)
        )
    first, last = _range(options.seeds)
    plan = Plan(first, options.profile, events=options.events)
    started = time.monotonic()
    tally = run_seeds(plan, first, last, options.jobs)
    elapsed = time.monotonic() - started
    for seed, violation in tally.told:
        _say(f"seed {seed}: {violation}\n  {replay_command(replace(plan, seed=seed))}")
    for name in sorted(tally.coverage):
        _say(f"{tally.coverage[name]:>9} {name}")
    _say(
        f"{tally.seeds} seeds, {tally.violations} violations, {tally.events} events, "
        f"{tally.seeds / elapsed:.0f} seeds/s in {options.jobs} processes"
    )
    return 1 if tally.violations else 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m headrace_simulation.simulator")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seeds", metavar="A:B", help="run seeds A to B-1")
    which.add_argument("--rewrite", metavar="FILE", nargs="+", help="renew golden scripts' outputs")
    which.add_argument("--seed", type=int, metavar="N", help="run one seed")
    parser.add_argument("--trace", action="store_true", help="with --seed: print what happens")
    parser.add_argument("--profile", choices=sorted(PROFILES), help="default: the seed chooses")
    parser.add_argument(
        "--events", type=int, default=Plan(0).events, help="events under faults (%(default)s)"
    )
    parser.add_argument(
        "--jobs", type=int, default=JOBS, help="processes for --seeds (%(default)s)"
    )
    return parser.parse_args(arguments)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _range(text: str) -> tuple[int, int]:
    first, separator, last = text.partition(":")
    if not separator or not first.isdigit() or not last.isdigit() or int(first) >= int(last):
        raise SystemExit(f"--seeds: expected A:B with A < B, got {text!r}")
    return int(first), int(last)


def _replay(plan: Plan) -> int:
    outcome = simulate(plan)
    for line in outcome.trace:
        _say(line)
    for name in sorted(outcome.coverage):
        _say(f"{outcome.coverage[name]:>9} {name}")
    _say(f"seed {outcome.seed}: {outcome.violation or 'all invariants held'}")
    return 1 if outcome.violation is not None else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
