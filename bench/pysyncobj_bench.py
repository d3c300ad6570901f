"""Replicated writes with Headrace's raftlog and with PySyncObj, in turn, at the same work.

    python bench/pysyncobj_bench.py [--rounds 2] [--seconds 3] [--only 100,...] [--write]

Three processes on loopback, one group, commands proposed at the leader and timed until the leader
has applied them. raftlog makes every entry durable on a majority before that; PySyncObj writes its
journal through memory that is mapped from a file and makes no sync call while it runs, so that its
figures are those of a log that a power cut may take.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from replication import pysyncobj_worker, raftlog_worker
from replication.figures import Latency, machine, replace_section, table
from replication.load import Load, Outcome
from replication.trio import Trio, Worker, WorkerError


class System(NamedTuple):
    """One of those that are compared.

    Attributes:
        name: for the report.
        worker: its node.
        port: its nodes' ports follow this one.
        arguments: what its workers must be told to lead and to load: the group and a count of one.
    """

    name: str
    worker: Worker
    port: int
    arguments: tuple[int, ...]


RAFTLOG: Final = System("raftlog", raftlog_worker.run, 21300, (1, 1))
SYSTEMS: Final = (
    RAFTLOG,
    System("PySyncObj", pysyncobj_worker.run_batched, 21310, ()),
    System("PySyncObj unbatched", pysyncobj_worker.run_unbatched, 21320, ()),
)

SIZES: Final = {100: "100 B", 1 << 10: "1 KiB", 64 << 10: "64 KiB"}
WINDOW: Final = 512
IN_FLIGHT_BYTES_MAX: Final = 4 << 20  # with more, PySyncObj loses its leader on most machines
FAILED: Final = Outcome(0, 1.0, Latency(inf, inf))

Samples = dict[tuple[str, Load], list[Outcome]]


class Collected(NamedTuple):
    """Results of all rounds.

    Attributes:
        samples: outcomes by system and load, one a round.
        truncations: how often PySyncObj's nodes said that they removed entries they had applied.
    """

    samples: Samples
    truncations: list[int]


def loads(size: int, seconds: float) -> list[Load]:
    """Return the measurements with commands of one size: one in flight, then many."""
    return [Load(size, 1, seconds), Load(size, min(WINDOW, IN_FLIGHT_BYTES_MAX // size), seconds)]


def name_of(load: Load) -> str:
    """Return a load's name in the report."""
    many = f"{load.window} in flight" if load.window > 1 else "one after the other"
    return f"{SIZES[load.size]}, {many}"


def collect(rounds: int, seconds: float, sizes: list[int], work: Path) -> Collected:
    """Run every load on every system `rounds` times, on fresh nodes each time."""
    samples: Samples = {}
    truncations: list[int] = []
    for number in range(rounds):
        for system in SYSTEMS:
            for size in sizes:
                directory = work / f"{number}-{system.port}-{size}"
                for load, outcome in measure(system, loads(size, seconds), directory, truncations):
                    samples.setdefault((system.name, load), []).append(outcome)
                    print(
                        f"round {number + 1} {system.name:20} {name_of(load):27} "
                        f"{outcome.commits_s:9,.0f}/s  p50 / p99 {outcome.latency} ms",
                        flush=True,
                    )
    return Collected(samples, truncations)


def measure(
    system: System, some: list[Load], directory: Path, truncations: list[int]
) -> Iterator[tuple[Load, Outcome]]:
    """Put one load after the other on fresh nodes; a load that fails is the last one.

    Raises:
        WorkerError: raftlog failed, or PySyncObj did not come up.
    """
    with Trio(system.worker, system.port, directory) as trio:
        leader = trio.find("lead", *system.arguments)
        for load in some:
            try:
                yield load, trio.ask(leader, "load", *system.arguments, load)
            except WorkerError as error:
                if system is RAFTLOG:
                    raise
                print(f"{system.name} {name_of(load)}: {error}", file=sys.stderr)
                yield load, FAILED
                break
        if system is not RAFTLOG:
            truncations.append(sum(trio.ask_all("truncations").values()))


def report(collected: Collected, rounds: int) -> str:
    """Return the table: the best round of each, and ratios to the better PySyncObj figure."""
    samples = collected.samples
    rows: list[list[str]] = []
    for load in dict.fromkeys(load for _, load in samples):
        found = [samples[system.name, load] for system in SYSTEMS]
        rates = [max(outcome.commits_s for outcome in some) for some in found]
        p50s = [min(outcome.latency.p50_ms for outcome in some) for some in found]
        rows.append(
            [
                name_of(load),
                *(f"{rate:,.0f}" if rate else "failed" for rate in rates),
                f"{rates[0] / max(rates[1:]):.1f}" if any(rates[1:]) else "",
                *(f"{p50:.2f}" if p50 < inf else "failed" for p50 in p50s),
                f"{p50s[0] / min(p50s[1:]):.3f}" if min(p50s[1:]) < inf else "",
            ]
        )
    names = [system.name for system in SYSTEMS]
    heads = ["commands", *(f"{name}, commits/s" for name in names), "ratio"]
    heads += [*(f"{name}, p50 ms" for name in names), "p50 ratio"]
    return (
        f"raftlog, synced, against PySyncObj {version('pysyncobj')}, never synced; three nodes\n"
        f"each on {machine()};\n"
        f"best of {rounds} rounds; ratios to the better PySyncObj figure.\n\n"
        f"{table(heads, rows)}\n\n"
        f"In these {len(collected.truncations)} runs PySyncObj's nodes logged "
        f"{sum(collected.truncations):,} times that they removed\n"
        "entries from their logs which they had already applied."
    )


def main() -> int:
    """Run the comparison; exit code 1 when a node failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--only", default="", help="comma-separated sizes in bytes")
    parser.add_argument("--directory", help="where the logs are; the disk that is measured")
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    options = parser.parse_args()
    sizes = [int(size) for size in options.only.split(",") if size] or list(SIZES)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=options.directory) as work:
        try:
            collected = collect(options.rounds, options.seconds, sizes, Path(work))
        except WorkerError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    text = report(collected, options.rounds)
    print(text)
    if options.write:
        replace_section("pysyncobj", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
