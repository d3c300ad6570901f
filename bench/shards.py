"""Messages a second of three nodes by their number of shards, with and without processor quotas.

python bench/shards.py [--shards 2,4] [--quota 0.1] [--rounds 3] [--seconds 8] [--write]

With a quota each process may use so much of a processor, by a control group of its own with a
period of 10 ms, which needs root and a kernel with the controller `cpu` of version 1 or 2. The sum
grows with the number of processes then: *linear* is that of one shard times their number. Without,
all share this machine's processors, and what more processes cost shows as less of the same sum.
32 publishers and consumers, 32 queues, window 2,000, 100 bytes.

So many processes on few processors slow each other down, whatever they are. The same load on as
many clusters of one shard a node, which know nothing of each other, tells by how much: *apart*.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from compare import build_load_generator
from peers import HEADRACE_PORT, Headrace, PeerError, node_processes
from replication.figures import processor_seconds, replace_section

PERIOD_US: Final = 10_000  # of a quota
GROUPS_V1: Final = Path("/sys/fs/cgroup/cpu")
GROUPS_V2: Final = Path("/sys/fs/cgroup")
LOAD: Final = (
    *("--size", "100", "--window", "2000", "--prefetch", "2000"),
    *("--ack-every", "100", "--warmup", "2"),
)
QUEUES: Final = 32  # and as many publishers and consumers
CLUSTER_PORTS: Final = 100  # between the ports of two clusters
WARM_SECONDS: Final = 2
SETTLED_SHARE: Final = 0.03  # of a processor that an idle process takes at most
SECTION: Final = "shards"


class Case(NamedTuple):
    """Processes that carry a load."""

    quota: float  # part of a processor that each may use, 0 for any
    clusters: int  # which share the load
    shards: int  # of each of their three nodes


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
def clusters_of(directory: Path, count: int, shards: int) -> Iterator[list[Headrace]]:
    """Run clusters of three nodes with so many shards each."""
    clusters = [
        Headrace(directory / f"cluster-{at}", HEADRACE_PORT + CLUSTER_PORTS * at, shards=shards)
        for at in range(count)
    ]
    with contextlib.ExitStack() as running:
        for cluster in clusters:
            cluster.start()
            running.callback(cluster.stop)
        yield clusters


def load(program: Path, clusters: list[Headrace], pids: list[int], seconds: int) -> Sample:
    """Return what one load gives that is shared out to clusters.

    Raises:
        PeerError: it could not be carried out.
    """
    each = str(QUEUES // len(clusters))
    shape = ("--publishers", each, "--consumers", each, "--queues", each)
    before = sum(processor_seconds(pid) for pid in pids)
    loads = []
    for cluster in clusters:
        ports = ",".join(map(str, cluster.ports))
        command = [str(program), "--ports", ports, "--seconds", str(seconds), *shape, *LOAD]
        loads.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    answers = [each.communicate() for each in loads]
    if any(each.returncode for each in loads):
        raise PeerError(f"amqpload: {b''.join(error for _, error in answers).decode()}")
    told: list[dict[str, Any]] = [json.loads(answer) for answer, _ in answers]
    spent = sum(processor_seconds(pid) for pid in pids) - before
    return Sample(
        sum(each["received_s"] for each in told),
        1e6 * spent / sum(each["received"] for each in told),
        statistics.median(each["confirm_ms_p50"] for each in told),
    )


def settle(pids: list[int]) -> None:
    """Wait until processes that have nothing to do have ended what they do at their start."""
    spent = 0.0
    while (now := sum(map(processor_seconds, pids))) - spent > SETTLED_SHARE * len(pids):
        spent = now
        time.sleep(1)


def measure(program: Path, work: Path, case: Case, seconds: int) -> Sample:
    """Run the clusters of a case and one load.

    Another load comes before the quota, and what a start costs: with a tenth of a processor, the
    password that each process hashes at its first log-in takes four seconds, and the first segments
    of its log, which are filled with zeros, two.
    """
    with clusters_of(work, case.clusters, case.shards) as clusters:
        pids = [
            each for cluster in clusters for pid in cluster.pids() for each in node_processes(pid)
        ]
        load(program, clusters, pids, WARM_SECONDS)
        settle(pids)
        limit = ProcessorQuota(pids, case.quota) if case.quota else None
        found = load(program, clusters, pids, seconds)
    if limit is not None:
        limit.remove()
    return found


def table(found: dict[Case, list[Sample]]) -> list[str]:
    """Return the report's lines; figures are medians of rounds."""
    lines = [
        "| quota of a process | clusters | shards of a node | messages/s | of one shard's | "
        "of linear | of apart | processor time a message, us | confirm p50, ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    middles = {
        case: Sample(*(statistics.median(each) for each in zip(*samples, strict=True)))
        for case, samples in found.items()
    }
    for case, middle in middles.items():
        quota, clusters, shards = case
        ratio = middle.received / middles[Case(quota, 1, 1)].received
        linear = f"{ratio / (clusters * shards):.2f}" if quota else ""
        apart = middle.received / middles[Case(quota, clusters * shards, 1)].received
        lines.append(
            f"| {quota or 'none'} | {clusters} | {shards} | {middle.received:,.0f} | {ratio:.2f} | "
            f"{linear} | {apart:.2f} | {middle.processor_us:.1f} | {middle.confirm_ms:.1f} |"
        )
    return lines


def main() -> int:
    """Run the loads; exit code 1 when a cluster could not be driven."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", default="2,4", help="numbers of shards besides one")
    parser.add_argument("--quota", type=float, default=0.1, help="part of a processor; 0 for none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--write", action="store_true", help="into bench/RESULTS.md")
    options = parser.parse_args()
    cases = [
        Case(quota, *each)
        for quota in dict.fromkeys((options.quota, 0.0))
        for shards in dict.fromkeys(map(int, f"1,{options.shards}".split(",")))
        for each in dict.fromkeys(((shards, 1), (1, shards)))
    ]
    found: dict[Case, list[Sample]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory(prefix="headrace-shards-") as place:
        try:
            program = build_load_generator(Path(place))
            for _ in range(options.rounds):
                for case in cases:
                    found[case].append(measure(program, Path(place), case, options.seconds))
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
