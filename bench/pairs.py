"""Compare two clusters under the same load, in turn: two builds, or two values of a setting.

python bench/pairs.py [--other /path/to/bin/headrace | --setting VARIABLE=FIRST,SECOND]
                      [--rounds 8] [--seconds 6] [--load WORDS]

With `--other`, the second cluster runs another build of Headrace, such as the release before. With
`--setting`, the clusters differ by a variable of their environment, such as
HEADRACE_CLUSTER_TRANSPORT=grpc,frames; by default the first one has telemetry. Both clusters of
three nodes run on this machine all the time, and take turns: each round loads one and then the
other, the second one first in every other round, so that what else the machine does falls on both.
Leaders stay on the nodes where queues are declared, unless HEADRACE_CLUSTER_BALANCE_LEADERS says
otherwise: a publisher waits one hop longer once the leader of its queue has moved to another node.
An earlier build whose `headrace cluster` drops that variable moves them all the same.
Figures are medians over rounds of the ratio of the first to the second. Processor time is that of
all nodes for each message.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from compare import build_load_generator
from peers import HEADRACE_PORT, Headrace, PeerError
from replication.figures import processor_seconds

SETTING: Final = "HEADRACE_TELEMETRY_ENABLED=true,false"
LOADS: Final = {
    "one queue, as fast as it goes": ["--publishers", "1", "--consumers", "1", "--queues", "1"],
    "30 queues, as fast as it goes": ["--publishers", "30", "--consumers", "30", "--queues", "30"],
    "one queue, one message at a time": [
        *("--publishers", "1", "--consumers", "1", "--queues", "1", "--window", "1")
    ],
    "one queue, 2,000 messages a second": [
        *("--publishers", "1", "--consumers", "1", "--queues", "1", "--rate", "2000")
    ],
    "30 queues, 2,000 messages a second": [
        *("--publishers", "30", "--consumers", "30", "--queues", "30", "--rate", "2000")
    ],
}
COMMON: Final = ["--window", "100", "--prefetch", "200", "--ack-every", "50"]


def with_setting(directory: Path, variable: str, value: str, port: int) -> Headrace:
    """Return a cluster whose environment has a variable."""
    os.environ[variable] = value  # which the cluster takes over when it is made
    try:
        return Headrace(directory / f"with-{value}", port)
    finally:
        del os.environ[variable]


def pair(directory: Path, other: Path | None, setting: str) -> dict[str, Headrace]:
    """Return the two clusters by their titles in the table; the first one is the numerator."""
    if other is not None:
        return {
            "this": Headrace(directory / "this"),
            "other": Headrace(directory / "other", HEADRACE_PORT + 100, other),
        }
    variable, _, values = setting.partition("=")
    first, second = values.split(",")
    return {
        first: with_setting(directory, variable, first, HEADRACE_PORT),
        second: with_setting(directory, variable, second, HEADRACE_PORT + 100),
    }


def load(program: Path, cluster: Headrace, arguments: list[str], seconds: int) -> dict[str, float]:
    """Return what one load gives: rate, median and high latency of confirms, processor time.

    Raises:
        PeerError: it could not be carried out.
    """
    ports = ",".join(str(port) for port in cluster.ports)
    pids = cluster.pids()
    before = sum(processor_seconds(pid) for pid in pids)
    command = [str(program), "--ports", ports, "--seconds", str(seconds), "--warmup", "1"]
    done = subprocess.run([*command, *COMMON, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise PeerError(f"amqpload: {done.stderr}")
    told: dict[str, Any] = json.loads(done.stdout)
    spent = sum(processor_seconds(pid) for pid in pids) - before
    return {
        "confirmed a second": told["confirmed_s"],
        "confirm ms p50": told["confirm_ms_p50"],
        "confirm ms p99": told["confirm_ms_p99"],
        "processor us a message": 1e6 * spent / max(told["confirmed"], 1),
    }


def compare(
    program: Path, clusters: dict[str, Headrace], rounds: int, seconds: int, chosen: str
) -> None:
    """Print a table of the loads that have some words in their name."""
    first, second = clusters
    print(f"{'':36}{'':24}{second:>10}{first:>10}{'ratio':>8}   of rounds")
    for name in filter(lambda name: chosen in name, LOADS):
        arguments = LOADS[name]
        found: dict[str, list[dict[str, float]]] = {each: [] for each in clusters}
        for number in range(rounds):
            for each in (first, second) if number % 2 else (second, first):
                found[each].append(load(program, clusters[each], arguments, seconds))
        for figure in found[first][0]:
            on = [each[figure] for each in found[first]]
            off = [each[figure] for each in found[second]]
            ratios = sorted(a / b for a, b in zip(on, off, strict=True))
            middle = statistics.median(ratios)
            spread = f"{ratios[len(ratios) // 4]:.3f} to {ratios[-1 - len(ratios) // 4]:.3f}"
            medians = f"{statistics.median(off):10.1f}{statistics.median(on):10.1f}"
            print(f"{name:36}{figure:24}{medians}{middle:8.3f}   {spread}", flush=True)


def main() -> int:
    """Run the comparison; exit code 1 when a cluster could not be driven."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path, help="`headrace` of another build")
    parser.add_argument("--setting", default=SETTING, help="VARIABLE=FIRST,SECOND")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--load", default="", help="words in the names of those wanted")
    options = parser.parse_args()
    os.environ.setdefault("HEADRACE_CLUSTER_BALANCE_LEADERS", "false")
    clusters: dict[str, Headrace] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-pairs-") as work:
        try:
            program = build_load_generator(Path(work))
            for title, cluster in pair(Path(work), options.other, options.setting).items():
                cluster.start()
                clusters[title] = cluster
            compare(program, clusters, options.rounds, options.seconds, options.load)
        except PeerError as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            for cluster in clusters.values():
                cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
