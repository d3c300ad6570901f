"""Cost of a deep queue: memory for each message, restart, and draining.

    python bench/depth.py [--only "3 nodes;..."] [--share 1.0] [--base-port 20972] [--write]

A queue is filled and drained while it is short, then filled deep, its nodes are killed and started
with nothing of their files cached, and it is drained. Five million messages of 1 KiB take 6 GB of
disk below the temporary directory (TMPDIR).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import pika
from compare import build_load_generator
from peers import PeerError
from pressure.memory import PeakMemory
from replication.figures import machine, processor_seconds, replace_section, resident_bytes, table

from headrace_broker.cli.local_cluster import ClusterError, LocalCluster

BASE_PORT: Final = 20972
START_SECONDS_MAX: Final = 300  # until a node that holds a deep queue must serve it
SHORT_MESSAGES: Final = 150_000  # of the short queue: more than the cache holds
BODY_BYTES: Final = 1024
QUEUE: Final = "depth-0"


class Case(NamedTuple):
    """One queue.

    Attributes:
        name: for the report.
        nodes: how many nodes; the queue is on all of them.
        messages: depth.
        publishers: how many connections fill it.
        window: unconfirmed publishes each of them allows itself; 1 makes each message an entry.
    """

    name: str
    nodes: int
    messages: int
    publishers: int
    window: int


CASES: Final = (
    Case("1 node, window 1000", 1, 5_000_000, 1, 1000),
    Case("3 nodes, window 1000", 3, 1_000_000, 1, 1000),
    Case("1 node, 100 publishers, window 1", 1, 1_000_000, 100, 1),
)


class Bench:
    """A cluster of one case and what loads it."""

    def __init__(self, case: Case, directory: Path, program: Path, base_port: int) -> None:
        self.case = case
        self.cluster = LocalCluster(directory, case.nodes, base_port)
        self._program = program

    def start(self) -> float:
        """Start the nodes; return the seconds until all are ready for clients."""
        started = time.monotonic()
        self.cluster.start()
        self.cluster.wait_ready(START_SECONDS_MAX)
        return time.monotonic() - started

    def pids(self) -> list[int]:
        """Return the nodes' processes."""
        records = [node.process() for node in self.cluster.nodes]
        return [record.pid for record in records if record is not None]

    def resident(self) -> int:
        """Return the memory of the node that has most."""
        return max(map(resident_bytes, self.pids()))

    def busy(self) -> float:
        """Return the processor seconds that the node which worked most has taken."""
        return max(map(processor_seconds, self.pids()))

    def load(self, *arguments: str) -> dict[str, float]:
        """Run the load generator and return its figures.

        Raises:
            PeerError: it reported an error.
        """
        ports = ",".join(node.amqp.rpartition(":")[2] for node in self.cluster.nodes)
        command = [str(self._program), "--ports", ports, "--prefix", QUEUE.partition("-")[0]]
        command += ["--size", str(BODY_BYTES), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise PeerError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        figures: dict[str, float] = json.loads(done.stdout)
        return figures

    def fill(self, messages: int, declare: bool) -> dict[str, float]:
        """Publish so many messages, each confirmed."""
        if declare:
            self._declare()
        arguments = ["--messages", str(messages), "--consumers", "0"]
        arguments += ["--publishers", str(self.case.publishers)]
        arguments += ["--window", str(self.case.window), "--declare", "0"]
        return self.load(*arguments)

    def _declare(self) -> None:
        """Declare the queue, empty, without the watermark by which it would never get deep."""
        port = int(self.cluster.nodes[0].amqp.rpartition(":")[2])
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            channel = connection.channel()
            arguments = {"x-queue-type": "quorum", "x-high-watermark-bytes": 0}
            channel.queue_declare(QUEUE, durable=True, arguments=arguments)
            channel.queue_purge(QUEUE)

    def drain(self, messages: int) -> dict[str, float]:
        """Take and acknowledge so many messages."""
        return self.load(
            "--messages", str(messages), "--publishers", "0", "--consumers", "1", "--declare", "0"
        )

    def kill(self) -> None:
        """Kill all nodes at once and make the system drop its cache of their files."""
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        while self.pids():
            time.sleep(0.01)
        for node in self.cluster.nodes:
            for path in (node.directory / "store").rglob("*.log"):
                fd = os.open(path, os.O_RDONLY)
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)

    def serves(self) -> float:
        """Return the seconds until the queue has handed out its first message, and taken it back.

        Raises:
            PeerError: it has none.
        """
        started = time.monotonic()
        port = int(self.cluster.nodes[0].amqp.rpartition(":")[2])
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        method, _, _ = connection.channel().basic_get(QUEUE)
        took = time.monotonic() - started
        connection.close()
        if method is None:
            raise PeerError("the queue is empty after the restart")
        return took


def measure(bench: Bench, messages: int) -> list[str]:
    """Return a case's line of the report."""
    case = bench.case
    short = min(SHORT_MESSAGES, messages)
    bench.start()
    short_fill = bench.fill(short, True)
    short_drain = bench.drain(short)
    base = bench.resident()
    spent = [bench.busy()]
    print(f"{case.name}: short {short_fill} {short_drain} {base >> 20} MiB", flush=True)
    with PeakMemory(bench.pids()) as filling:
        fill = bench.fill(messages, False)
    full = bench.resident()
    spent.append(bench.busy() - spent[0])
    print(f"fill {fill} {full >> 20} MiB, most {filling.most >> 20} MiB", flush=True)
    bench.kill()
    ready = bench.start()
    ready += bench.serves()
    restarted = bench.resident()
    spent.append(bench.busy())
    print(f"ready after {ready:.1f} s, {restarted >> 20} MiB", flush=True)
    with PeakMemory(bench.pids()) as draining:
        drain = bench.drain(messages)
    spent.append(bench.busy() - spent[2])
    print(f"drain {drain}, most {draining.most >> 20} MiB", flush=True)
    return [
        case.name,
        f"{messages:,}",
        f"{(full - base) / messages:.1f}",
        f"{base >> 20} / {full >> 20} / {filling.most >> 20}",
        f"{fill['confirmed_s']:,.0f} ({fill['confirmed_s'] / short_fill['confirmed_s']:.2f})",
        f"{fill['confirm_ms_max']:.0f}",
        f"{ready:.1f}",
        f"{restarted >> 20}",
        f"{drain['received_s']:,.0f} ({drain['received_s'] / short_drain['received_s']:.2f})",
        f"{draining.most >> 20}",
        f"{1e6 * spent[1] / messages:.1f} / {spent[2]:.1f} s / {1e6 * spent[3] / messages:.1f}",
    ]


HEADS: Final = (
    "queue",
    "messages",
    "memory for each, bytes",
    "MiB short / deep / most",
    "filled/s (of short)",
    "slowest confirm, ms",
    "serves after kill, s",
    "MiB then",
    "drained/s (of short)",
    "MiB at most",
    "processor time: us a message filled / start / us a message drained",
)


def main() -> int:
    """Run the measurement; exit code 1 when a cluster could not be driven."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="parts of names of queues, with ; between them")
    parser.add_argument("--share", type=float, default=1.0, help="part of the depths")
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    options = parser.parse_args()
    parts = [part for part in options.only.split(";") if part]
    chosen = [case for case in CASES if not parts or any(part in case.name for part in parts)]
    rows: list[list[str]] = []
    for case in chosen:
        with tempfile.TemporaryDirectory(prefix="headrace-depth-") as work:
            directory = Path(work)
            program = build_load_generator(directory)
            bench = Bench(case, directory / "data", program, options.base_port)
            try:
                rows.append(measure(bench, int(case.messages * options.share)))
            except (ClusterError, PeerError) as error:
                print(f"bench: {error}", file=sys.stderr)
                return 1
            finally:
                bench.cluster.stop()
    text = f"Nodes on {machine()}.\n\n{table(HEADS, rows)}"
    print(text)
    if options.write:
        replace_section("depth", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
