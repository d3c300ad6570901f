"""Speed of the replicated log on this machine: three nodes, three processes, one disk.

    python bench/raftlog_bench.py [--rounds 3] [--only latency,...] [--write]

Everything is measured through the public face of `headrace_raftlog`, with real syncs. Figures are
reported beside what is required of them; nothing here fails because a machine is slow.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from replication import recovery
from replication.disk import fdatasync_seconds, synced_mb_s
from replication.figures import (
    Latency,
    latency,
    machine,
    processor_seconds,
    replace_section,
    resident_bytes,
    table,
)
from replication.load import Load, Outcome
from replication.raftlog_worker import run
from replication.trio import Trio, WorkerError

BASE_PORT: Final = 21100
GROUPS: Final = 100
IDLE_GROUPS: Final = 10_000
IDLE_SECONDS: Final = 15
QUIET_SECONDS_MAX: Final = 60  # until idle groups must have fallen silent

SEQUENTIAL: Final = Load(size=1024, window=1, seconds=4)
PIPELINED: Final = Load(size=1024, window=512, seconds=4)
BULK: Final = Load(size=64 << 10, window=4, seconds=5)


class Row(NamedTuple):
    """One line of the report."""

    what: str
    best: str
    every_round: str
    required: str


def measure_latency(rounds: int, directory: Path) -> list[Row]:
    """Commits one after the other, each pair of figures from the same few seconds."""
    disk: list[Latency] = []
    commits: list[Latency] = []
    with Trio(run, BASE_PORT, directory) as trio:
        leader = trio.find("lead", 1, 1)
        for _ in range(rounds):
            probe = fdatasync_seconds(directory, 1.0)
            outcome: Outcome = trio.ask(leader, "load", 1, 1, SEQUENTIAL)
            probe += fdatasync_seconds(directory, 1.0)
            disk.append(latency(probe))
            commits.append(outcome.latency)
    bounds = [2 * sync.p50_ms + 1 for sync in disk]
    best = min(range(rounds), key=lambda index: disk[index].p50_ms)  # when the disk was quietest
    return [
        Row("fdatasync of 4 KiB, p50 / p99 ms", str(disk[best]), ", ".join(map(str, disk)), ""),
        Row(
            "sequential commit of 1 KiB, p50 / p99 ms",
            str(commits[best]),
            ", ".join(map(str, commits)),
            f"p50 < 2 x fdatasync + 1 = {bounds[best]:.2f}",
        ),
    ]


def measure_pipelined(rounds: int, directory: Path) -> list[Row]:
    """One group with many commands in flight."""
    outcomes: list[Outcome] = []
    with Trio(run, BASE_PORT + 10, directory) as trio:
        leader = trio.find("lead", 1, 1)
        outcomes += [trio.ask(leader, "load", 1, 1, PIPELINED) for _ in range(rounds)]
    rates = [outcome.commits_s for outcome in outcomes]
    return [
        Row(
            f"1 KiB, {PIPELINED.window} in flight, commits/s",
            f"{max(rates):,.0f}",
            ", ".join(f"{rate:,.0f}" for rate in rates),
            "",
        )
    ]


def measure_bulk(rounds: int, directory: Path) -> list[Row]:
    """Many groups, led by all nodes alike, with large entries."""
    rates: list[float] = []
    disk: list[float] = []
    with Trio(run, BASE_PORT + 20, directory) as trio:
        trio.ask_all("lead", 1, GROUPS)
        for _ in range(rounds):
            disk.append(synced_mb_s(directory, 1.0))
            answers: dict[int, Outcome | None] = trio.ask_all("load", 1, GROUPS, BULK)
            commits_s = sum(outcome.commits_s for outcome in answers.values() if outcome)
            rates.append(commits_s * BULK.size / 1e6)
    return [
        Row(
            "the disk alone, synced writes of 1 MiB, MB/s (three nodes share it)",
            f"{max(disk):,.0f}",
            ", ".join(f"{rate:,.0f}" for rate in disk),
            "",
        ),
        Row(
            f"64 KiB over {GROUPS} groups, {BULK.window} in flight each, MB/s",
            f"{max(rates):,.0f}",
            ", ".join(f"{rate:,.0f}" for rate in rates),
            ">= 100",
        ),
    ]


def measure_recovery(rounds: int, directory: Path) -> list[Row]:
    """A log of 1 GiB is opened again."""
    rows: list[Row] = []
    for size, name in ((64 << 10, "64 KiB"), (1 << 10, "1 KiB")):
        cold, warm, log_bytes = recovery.measure(directory / name[:2].strip(), size, rounds)
        rows.append(
            Row(
                f"start with {log_bytes / (1 << 30):.2f} GiB of {name} entries, not cached, s",
                f"{min(cold):.1f}",
                ", ".join(f"{took:.1f}" for took in cold),
                "< 10",
            )
        )
        rows.append(
            Row("the same, cached", f"{min(warm):.1f}", ", ".join(f"{t:.1f}" for t in warm), "")
        )
    return rows


def measure_idle(rounds: int, directory: Path) -> list[Row]:
    """Many groups of which nothing is asked."""
    with Trio(run, BASE_PORT + 30, directory) as trio:
        trio.ask_all("lead", 1, 1)
        empty = [resident_bytes(pid) for pid in trio.pids]
        began = time.monotonic()
        trio.ask_all("idle", 2, IDLE_GROUPS)
        created = time.monotonic() - began
        _wait_silence(trio)
        grown = [resident_bytes(pid) - size for pid, size in zip(trio.pids, empty, strict=True)]
        shares: list[float] = []
        for _ in range(rounds):
            before = [processor_seconds(pid) for pid in trio.pids]
            time.sleep(IDLE_SECONDS)
            used = [processor_seconds(p) - b for p, b in zip(trio.pids, before, strict=True)]
            shares.append(100 * max(used) / IDLE_SECONDS)
    memory = [size / IDLE_GROUPS / 1024 for size in grown]
    return [
        Row(
            f"{IDLE_GROUPS:,} idle groups on each node: busiest node, % of a core",
            f"{min(shares):.1f}",
            ", ".join(f"{share:.1f}" for share in shares),
            "< 5",
        ),
        Row(
            "memory of each node for each of them, KiB",
            f"{median(memory):.2f}",
            ", ".join(f"{size:.2f}" for size in memory) + " (by node)",
            "< 4",
        ),
        Row("creating and electing them, s", f"{created:.1f}", "", ""),
    ]


def _wait_silence(trio: Trio) -> None:
    end = time.monotonic() + QUIET_SECONDS_MAX
    before: dict[int, int] = {}
    while time.monotonic() < end:
        now: dict[int, int] = trio.ask_all("messages")
        if now == before:
            return
        before = now
        time.sleep(2)
    raise WorkerError(f"the groups did not fall silent in {QUIET_SECONDS_MAX} s")


PARTS: Final[dict[str, Callable[[int, Path], list[Row]]]] = {
    "latency": measure_latency,
    "pipelined": measure_pipelined,
    "bulk": measure_bulk,
    "recovery": measure_recovery,
    "idle": measure_idle,
}


def main() -> int:
    """Run the benchmark; exit code 1 when a node failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {','.join(PARTS)}")
    parser.add_argument("--directory", help="where the logs are; the disk that is measured")
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    options = parser.parse_args()
    rows: list[Row] = []
    for part in options.only.split(","):
        with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=options.directory) as work:
            try:
                found = PARTS[part](options.rounds, Path(work))
            except WorkerError as error:
                print(f"bench: {part}: {error}", file=sys.stderr)
                return 1
        for row in found:
            print(
                f"{row.what}: {row.best}  (rounds: {row.every_round})  {row.required}", flush=True
            )
        rows += found
    heads = ["measured", f"best of {options.rounds}", "every round", "required"]
    text = f"Three nodes on {machine()}.\n\n{table(heads, rows)}"
    print(text)
    if options.write:
        replace_section("raftlog", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
