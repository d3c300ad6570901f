"""`python -m e2e.chaos`: runs with seeds of your choice, one after the other."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from e2e.chaos.linearizability import Reads
from e2e.chaos.run import Options, Run
from e2e.chaos.schedule import KINDS

DIRECTORY: Final = Path("build/chaos")


def run_directory(options: Options) -> Path:
    """Return the folder of a run's results."""
    return DIRECTORY / f"seed-{options.seed}-nodes-{options.nodes}"


def parse(arguments: list[str]) -> tuple[range, Options]:
    """Return the seeds, and the options of the first one."""
    parser = argparse.ArgumentParser(prog="python -m e2e.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1, help="run that many seeds from --seed on")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--kinds", default=",".join(KINDS), help="some of %(default)s")
    parser.add_argument("--reads", type=Reads, default=Reads.OWN_ROUTING, choices=list(Reads))
    parser.add_argument("--interval", type=float, default=0.004)
    given = parser.parse_args(arguments)
    kinds = tuple(given.kinds.split(","))
    options = Options(given.seed, given.nodes, given.steps, kinds, given.reads, given.interval)
    return range(given.seed, given.seed + given.runs), options


def main(arguments: list[str]) -> int:
    """Run all seeds; return 1 when any of them went wrong."""
    seeds, first = parse(arguments)
    failed: list[int] = []
    for seed in seeds:
        options = Options(seed, first.nodes, first.steps, first.kinds, first.reads, first.interval)
        report = Run(
            options, run_directory(options), lambda line: print(line, flush=True)
        ).execute()
        if report.violations:
            failed.append(seed)
    print(f"failed: {failed}" if failed else "nothing was wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
