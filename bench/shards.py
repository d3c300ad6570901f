"""Messages a second of three nodes by their number of shards, with and without processor quotas.

python bench/shards.py [--shards 1,2,4] [--quota 0.1] [--rounds 3] [--seconds 8] [--write]

With a quota each process may use so much of a processor, by a control group of its own with a
period of 10 ms, which needs root and a kernel with the controller `cpu` of version 1 or 2. The sum
grows with the number of processes then: *linear* is that of one shard times their number. Without,
all share this machine's processors, and what more processes cost shows as less of the same sum.
32 publishers and consumers, 32 queues, window 2,000, 100 bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from compare import build_load_generator
from peers import Headrace, PeerError, node_processes
from replication.figures import processor_seconds, replace_section

PERIOD_US: Final = 10_000  # of a quota
GROUPS_V1: Final = Path("/sys/fs/cgroup/cpu")
GROUPS_V2: Final = Path("/sys/fs/cgroup")
LOAD: Final = (
    *("--publishers", "32", "--consumers", "32", "--queues", "32", "--size", "100"),
    *("--window", "2000", "--prefetch", "2000", "--ack-every", "100", "--warmup", "2"),
)
SECTION: Final = "shards"


class Sample(NamedTuple):
    """Figures of one load."""

    received: float  # messages a second
    processor_us: float  # of all processes, for each message
    confirm_ms: float  # median


class ProcessorQuota:
    """Control groups that give each of some processes a part of a processor."""

    def __init__(self, pids: list[int], share: float) -> None:
        self._groups: list[Path] = []
        is_v1 = (GROUPS_V1 / "cpu.cfs_quota_us").exists()
        quota = round(share * PERIOD_US)
        limits = (
            {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": quota}
            if is_v1
            else {"cpu.max": f"{quota} {PERIOD_US}"}
        )
        for pid in pids:
            group = (GROUPS_V1 if is_v1 else GROUPS_V2) / f"headrace-bench-{pid}"
            group.mkdir()
            self._groups.append(group)
            for name, value in limits.items():
                (group / name).write_text(str(value))
            (group / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove the groups, whose processes have ended."""
        for group in self._groups:
            with contextlib.suppress(OSError):  # one is still there
                group.rmdir()


@contextlib.contextmanager
def cluster_of(directory: Path, shards: int) -> Iterator[Headrace]:
    """Run three nodes with so many shards each."""
    cluster = Headrace(directory / f"shards-{shards}", shards=shards)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


def load(program: Path, cluster: Headrace, pids: list[int], seconds: int) -> Sample:
    """Return what one load gives.

    Raises:
        PeerError: it could not be carried out.
    """
    ports = ",".join(str(port) for port in cluster.ports)
    before = sum(processor_seconds(pid) for pid in pids)
    command = [str(program), "--ports", ports, "--seconds", str(seconds), *LOAD]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise PeerError(f"amqpload: {done.stderr}")
    told: dict[str, Any] = json.loads(done.stdout)
    spent = sum(processor_seconds(pid) for pid in pids) - before
    return Sample(told["received_s"], 1e6 * spent / told["received"], told["confirm_ms_p50"])


def measure(program: Path, work: Path, shards: int, quota: float, seconds: int) -> Sample:
    """Run one cluster and one load."""
    with cluster_of(work, shards) as cluster:
        pids = [each for pid in cluster.pids() for each in node_processes(pid)]
        limit = ProcessorQuota(pids, quota) if quota else None
        found = load(program, cluster, pids, seconds)
    if limit is not None:
        limit.remove()
    return found


def table(found: dict[tuple[int, float], list[Sample]]) -> list[str]:
    """Return the report's lines; figures are medians of rounds."""
    lines = [
        "| quota of a process | shards of a node | messages/s | of one shard's | of linear | "
        "processor time a message, us | confirm p50, ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    fewest = min(shards for shards, _ in found)
    for (shards, quota), samples in found.items():
        middle = Sample(*(statistics.median(each) for each in zip(*samples, strict=True)))
        base = statistics.median(each.received for each in found[fewest, quota])
        ratio = middle.received / base
        linear = f"{ratio * fewest / shards:.2f}" if quota else ""
        lines.append(
            f"| {quota or 'none'} | {shards} | {middle.received:,.0f} | {ratio:.2f} | {linear} | "
            f"{middle.processor_us:.1f} | {middle.confirm_ms:.1f} |"
        )
    return lines


def main() -> int:
    """Run the loads; exit code 1 when a cluster could not be driven."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", default="1,2,4", help="numbers of shards")
    parser.add_argument("--quota", type=float, default=0.1, help="part of a processor; 0 for none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--write", action="store_true", help="into bench/RESULTS.md")
    options = parser.parse_args()
    numbers = [int(each) for each in options.shards.split(",")]
    cases = [(each, quota) for quota in dict.fromkeys((options.quota, 0.0)) for each in numbers]
    found: dict[tuple[int, float], list[Sample]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory(prefix="headrace-shards-") as place:
        try:
            program = build_load_generator(Path(place))
            for _ in range(options.rounds):
                for case in cases:
                    found[case].append(measure(program, Path(place), *case, options.seconds))
                    print(*case, found[case][-1], file=sys.stderr)
        except PeerError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    text = "\n".join(table(found))
    print(text)
    if options.write:
        replace_section(SECTION, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
