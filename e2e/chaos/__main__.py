"""`python -m e2e.chaos`: runs with seeds of your choice, one after the other."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

import msgspec
from e2e.chaos.linearizability import Reads
from e2e.chaos.run import Options, Run
from e2e.chaos.schedule import KINDS, SHARD_KINDS, kinds_of

DIRECTORY: Final = Path("build/chaos")


def run_directory(options: Options) -> Path:
    """Return the folder of a run's results."""
    shards = f"-shards-{options.shards}" if options.shards > 1 else ""
    return DIRECTORY / f"seed-{options.seed}-nodes-{options.nodes}{shards}"


def parse(arguments: list[str]) -> tuple[range, Options]:
    """Return the seeds, and the options of the first one."""
    parser = argparse.ArgumentParser(prog="python -m e2e.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1, help="run that many seeds from --seed on")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--shards", type=int, default=1, help="processes of each node")
    own = ",".join(SHARD_KINDS)
    parser.add_argument(
        "--kinds", default="", help=f"some of {','.join(KINDS)}, and with --shards of {own}"
    )
    parser.add_argument("--reads", type=Reads, default=Reads.OWN_ROUTING, choices=list(Reads))
    parser.add_argument("--interval", type=float, default=0.004)
    given = parser.parse_args(arguments)
    options = Options(
        given.seed,
        given.nodes,
        given.steps,
        tuple(given.kinds.split(",")) if given.kinds else kinds_of(given.shards),
        given.reads,
        given.interval,
        given.shards,
    )
    return range(given.seed, given.seed + given.runs), options


def main(arguments: list[str]) -> int:
    """Run all seeds; return 1 when any of them went wrong."""
    seeds, first = parse(arguments)
    failed: list[int] = []
    for seed in seeds:
        options = msgspec.structs.replace(first, seed=seed)
        report = Run(
            options, run_directory(options), lambda line: print(line, flush=True)
        ).execute()
        if report.violations:
            failed.append(seed)
    print(f"failed: {failed}" if failed else "nothing was wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
