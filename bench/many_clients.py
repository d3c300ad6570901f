"""The cost of very many connections, and latencies of messages beside them.

python bench/many_clients.py [--connections 10000] [--rates 0.2,0.5,1,10] [--seconds 10]
                             [--before /path/to/bin/headrace] [--no-rabbitmq] [--write]

One load generator in C opens the connections over the three nodes of a cluster, leaves them idle,
and then publishes on each of them at a rate of its own, with confirms, to 32 quorum queues with a
consumer each; 100 bytes a message. Latencies count from when a message was due, so that one that
waits for a slow broker is not left out. Clusters run one after the other on this machine, which
the load generator shares. A connection may have 64 messages unconfirmed; what is due beyond is not
sent.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from compare import build_load_generator
from peers import Headrace, PeerError
from rabbitmq import RabbitMQ
from replication.figures import machine, processor_seconds, replace_section, resident_bytes, table

SECTION: Final = "many clients"
IDLE_SECONDS: Final = 20
FILES_SPARE: Final = 1000  # open files of the load generator beside its connections
NODE_SETTINGS: Final = ("connections/s", "KiB each, idle", "KiB each, loaded", "idle, % of a core")
Cluster = Headrace | RabbitMQ


class Measured(NamedTuple):
    """Figures of one cluster.

    Attributes:
        name: of the broker.
        opened: connections a second, from connect to a channel in confirm mode.
        idle_kib: memory of a node for each of its connections, before it has published.
        loaded_kib: the same after the last load.
        idle_percent: of a core, for each node.
        runs: the load generator's figures, by messages a second of a connection.
    """

    name: str
    opened: float
    idle_kib: float
    loaded_kib: float
    idle_percent: float
    runs: dict[float, dict[str, float]]


class Connections:
    """The load generator, told one phase after the other."""

    def __init__(self, to: IO[str], told: IO[str]) -> None:
        self._to = to
        self._told = told

    def phase(self, words: str) -> dict[str, Any]:
        """Run a phase to its end and return its figures.

        Raises:
            PeerError: the load generator has ended, or saw errors.
        """
        self._to.write(f"{words}\n")
        self._to.flush()
        line = self._told.readline()
        if not line:
            raise PeerError(f"connload has ended at: {words}")
        figures: dict[str, Any] = json.loads(line)
        if figures["errors"]:
            raise PeerError(f"connload: errors at {words}: {line.strip()}")
        return figures


@contextmanager
def connections(program: Path, ports: list[int]) -> Iterator[Connections]:
    """Run the load generator; its connections end with it."""
    command = [str(program), "--ports", ",".join(map(str, ports))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        yield Connections(running.stdin, running.stdout)
        running.stdin.close()


def measure(program: Path, cluster: Cluster, name: str, options: argparse.Namespace) -> Measured:
    """Start a cluster, measure it, and stop it.

    Raises:
        PeerError: it could not be driven.
    """
    cluster.start()
    try:
        pids = cluster.pids()

        def kib_each() -> float:
            grown = sum(map(resident_bytes, pids)) - empty
            return float(grown / options.connections / 1024)

        empty = sum(map(resident_bytes, pids))
        with connections(program, cluster.ports) as load:
            opened = load.phase(f"connect {options.connections}")["per_second"]
            before = sum(map(processor_seconds, pids))
            load.phase(f"idle {IDLE_SECONDS}")
            used = sum(map(processor_seconds, pids)) - before
            idle_kib = kib_each()
            idle_percent = 100 * used / IDLE_SECONDS / len(pids)
            load.phase(f"run {options.rates[0]} 5")  # first publishes open sessions with queues
            runs = {rate: load.phase(f"run {rate} {options.seconds}") for rate in options.rates}
            return Measured(name, opened, idle_kib, kib_each(), idle_percent, runs)
    finally:
        cluster.stop()


def lines(found: list[Measured], count: int) -> str:
    """Return the report's lines."""
    heads = ["broker", *NODE_SETTINGS]
    first = [
        [
            each.name,
            f"{each.opened:,.0f}",
            f"{each.idle_kib:.1f}",
            f"{each.loaded_kib:.1f}",
            f"{each.idle_percent:.1f}",
        ]
        for each in found
    ]
    titles = ["broker, offered", "confirmed/s", "confirm p50, ms", "p99", "end to end p50", "p99"]
    second = [
        [
            f"{each.name}, {run['offered']:,.0f}/s",
            f"{run['confirmed']:,.0f}",
            *(f"{run[key]:,.1f}" for key in ("confirm_p50_ms", "confirm_p99_ms")),
            *(f"{run[key]:,.1f}" for key in ("e2e_p50_ms", "e2e_p99_ms")),
        ]
        for rate in found[0].runs
        for each in found
        for run in [each.runs[rate]]
    ]
    return "\n".join(
        [
            f"{count:,} connections over three nodes; {machine()}.",
            "",
            table(heads, first),
            "",
            table(titles, second),
        ]
    )


def check_files(count: int) -> None:
    """Refuse where the load generator may not open so many sockets.

    Raises:
        PeerError: the limit on open files is too low.
    """
    limit = os.sysconf("SC_OPEN_MAX")
    if limit < count + FILES_SPARE:
        raise PeerError(f"ulimit -n is {limit}: {count} connections need {count + FILES_SPARE}")


def main() -> int:
    """Measure the clusters; exit code 1 when one could not be driven."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    rates = parser.add_argument("--rates", default="0.2,0.5,1,10", help="messages a second of each")
    parser.add_argument("--seconds", type=int, default=10, help="of each rate")
    parser.add_argument("--before", type=Path, help="`headrace` of the build before")
    parser.add_argument("--no-rabbitmq", action="store_true", help="leave RabbitMQ out")
    parser.add_argument("--write", action="store_true", help="into bench/RESULTS.md")
    options = parser.parse_args()
    options.rates = [float(each) for each in options.rates.split(",")]
    if not all(rate > 0 for rate in options.rates):
        parser.error(f"{rates.option_strings[0]}: each must be above 0")
    found = []
    with tempfile.TemporaryDirectory(prefix="headrace-clients-") as place:
        work = Path(place)
        try:
            check_files(options.connections)
            program = build_load_generator(work, "connload")
            clusters: list[tuple[str, Cluster]] = [("Headrace", Headrace(work / "now"))]
            if options.before is not None:
                before = Headrace(work / "before", command=options.before)
                clusters.append(("Headrace before", before))
            if not options.no_rabbitmq:
                clusters.append(("RabbitMQ", RabbitMQ(work / "rabbitmq")))
            for name, cluster in clusters:
                found.append(measure(program, cluster, name, options))
                print(found[-1], file=sys.stderr)
        except PeerError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    text = lines(found, options.connections)
    print(text)
    if options.write:
        replace_section(SECTION, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
