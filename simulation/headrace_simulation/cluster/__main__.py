"""Command: run seeds of whole nodes; a seed that fails says how it is run again."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from pathlib import Path
from typing import Final

from headrace_simulation.cluster import stdlib

stdlib.install()  # before anything of production is imported

from headrace_raftlog.storage.disk import files  # noqa: E402
from headrace_simulation.cluster import disk  # noqa: E402

disk.install(files.Files)

from headrace_simulation.cluster.batch import RELEASES, run_many, run_one  # noqa: E402
from headrace_simulation.cluster.bugs.bug import Mutation  # noqa: E402
from headrace_simulation.cluster.profiles import drawn  # noqa: E402
from headrace_simulation.cluster.release import PACKAGES, load  # noqa: E402
from headrace_simulation.cluster.run import Outcome  # noqa: E402

_NOT_FOUND: Final = (
    255  # how the process of a bug ends that no seed finds; else by that one's place
)


def main() -> int:
    """Run what the arguments say; 1 where a seed fails."""
    parser = argparse.ArgumentParser(prog="headrace_simulation.cluster", description=__doc__)
    parser.add_argument("--seeds", default="0:9", help="first:last+1")
    parser.add_argument("--seed", type=int, help="one seed, in this process")
    parser.add_argument("--profile", default="", help="of all seeds, instead of each one's own")
    parser.add_argument("--runs", action="store_true", help="say which runs there would be")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--trace", action="store_true", help="show all events of one seed")
    parser.add_argument("--log", action="store_true", help="show the nodes' logs too")
    parser.add_argument(
        "--mutation", default="", help="put bugs in place, which must be found: names, all, or list"
    )
    parser.add_argument(
        "--release", type=Path, help="source of the release that nodes run beside the head"
    )
    options = parser.parse_args()
    if options.release is not None:
        if not (options.release / PACKAGES[0]).is_dir():
            parser.error(f"--release: no source of a release is in {str(options.release)!r}")
        RELEASES.append(load(options.release))
    if options.mutation:
        return _mutated(options.mutation, options.jobs)
    if options.seed is not None:
        if options.log:
            logging.basicConfig(level=logging.INFO, format="    %(levelname)s %(message)s")
        outcome = run_one(options.seed, options.profile, _say if options.trace else None)
        _tell(outcome)
        for line in (*outcome.faults, *outcome.ends):
            _say(f"  {line}")
        sys.stdout.flush()
        os._exit(1 if outcome.problem else 0)
    first, _, end = options.seeds.partition(":")
    seeds = range(int(first), int(end or int(first) + 1))
    if options.runs:
        for seed, profile in drawn(seeds, options.profile):
            _say(f"{seed} {profile}")
        return 0
    began, count, failed, confirms = time.monotonic(), 0, 0, 0
    for outcome in run_many(drawn(seeds, options.profile), options.jobs):
        count += 1
        confirms += outcome.confirms
        if outcome.problem:
            failed += 1
            _tell(outcome)
            _say(f"  again: make sim-cluster SEED={outcome.seed} PROFILE={outcome.profile}")
    took = time.monotonic() - began
    _say(f"{count} seeds, {failed} failed, {confirms} confirms, {count / took:.2f} seeds a second")
    return 1 if failed else 0


def _mutated(name: str, jobs: int) -> int:
    """Run seeds until one finds each bug; 1 where none does. With `list`, name them all."""
    from headrace_simulation.cluster import mutations

    if name == "list":
        for mutation in mutations.MUTATIONS:
            _say(f"{mutation.name}: {mutation.text}")
        return 0
    missed = 0
    for mutation in mutations.MUTATIONS:
        if name == "all" and not mutation.is_found:
            _say(f"{mutation.name}: cannot be found yet, and is left out")
            continue
        if name != "all" and mutation.name not in name.split(","):
            continue
        sys.stdout.flush()
        pid = os.fork()  # a bug stays in place
        if pid:
            _, status = os.waitpid(pid, 0)
            found = os.waitstatus_to_exitcode(status)
            missed += found not in range(mutation.seeds) or not _proves(mutation, found)
            continue
        mutation.apply()
        found = _NOT_FOUND
        runs = drawn(mutation.places, mutation.profile)
        for count, outcome in enumerate(run_many(runs, jobs)):
            if _is_own_fault(outcome.problem):
                _say(f"{mutation.name}: raises by itself, which proves nothing: {outcome.problem}")
                break
            if outcome.problem:
                problem = outcome.problem.splitlines()[-1][:160]
                _say(f"{mutation.name}: found by run {count + 1}, seed {outcome.seed}: {problem}")
                found = outcome.seed - mutation.first
                break
        else:
            _say(f"{mutation.name}: not found in {mutation.seeds} seeds")
        sys.stdout.flush()
        os._exit(found)
    return 1 if missed else 0


def _is_own_fault(problem: str) -> bool:
    """Return whether a traceback ends in the bug that was put in place."""
    places = [line for line in problem.splitlines() if line.lstrip().startswith('File "')]
    return bool(places) and "/cluster/bugs/" in places[-1]


def _proves(mutation: Mutation, found: int) -> bool:
    """Return whether the seed at a place among a bug's, which failed with it, is well without."""
    seed = mutation.places[found]
    [outcome] = run_many(iter([(seed, mutation.profile)]), 1)
    if outcome.problem:
        _say(f"{mutation.name}: seed {seed} fails without it, too, which proves nothing")
    return not outcome.problem


def _tell(outcome: Outcome) -> None:
    result = outcome.problem or "well"
    _say(
        f"seed {outcome.seed} ({outcome.profile}): {result}\n  {outcome.confirms} confirms, "
        f"{outcome.deliveries} deliveries, {outcome.seconds:.1f} s in {outcome.turns} turns, "
        f"digest {outcome.digest[:16]}"
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
