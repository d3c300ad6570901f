"""Drive Headrace, RabbitMQ and NATS JetStream with load generators in C, in turn and repeatedly.

    python bench/compare.py [--rounds 3] [--seconds 8] [--only 100B,...] [--peers nats,...]
                            [--before /path/to/bin/headrace] [--write]

All run as three nodes on this machine's loopback, with queues of three replicas, so figures are for
the machine and the moment; the ratios within one run are what counts. A peer that is not installed
is left out, and the report says so. With `--before` another build of Headrace is measured too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from comparison import Figures, Samples, Scenario, plot, report
from nats import NATS_PORT, Nats
from peers import HEADRACE_PORT, Headrace, PeerError, run
from rabbitmq import LaterRabbitMQ, RabbitMQ
from replication.figures import replace_section

HERE: Final = Path(__file__).parent
CHART: Final = HERE / "compare.png"
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace-bench"
LIBRARIES: Final = {"amqpload": ["-lrabbitmq"], "natsload": [], "connload": []}

SCENARIOS: Final = [
    Scenario("100 B, window 1000", ["--size", "100", "--window", "1000"]),
    Scenario("1 KiB, window 1000", ["--size", "1024", "--window", "1000"]),
    Scenario(
        "100 B, 4 publishers, 4 consumers, 4 queues",
        ["--size", "100", "--publishers", "4", "--consumers", "4", "--queues", "4"],
    ),
    Scenario(
        "1 KiB, window 100, 200 publishers, 50 consumers, 50 queues",
        [
            *("--size", "1024", "--window", "100"),
            *("--publishers", "200", "--consumers", "50", "--queues", "50"),
        ],
    ),
    Scenario("100 B, window 1", ["--size", "100", "--window", "1"]),
    Scenario("1 KiB, window 1", ["--size", "1024", "--window", "1"]),
    Scenario("100 B, without confirms", ["--size", "100", "--window", "0"], confirms=False),
]


class Peer(Protocol):
    """Three nodes of a broker.

    Its methods raise PeerError; `stop` is called after half a start too.

    Attributes:
        name: in tables and options.
        load: name of the load generator.
        ports: of clients, of each node.
    """

    name: str
    load: str
    ports: list[int]

    def start(self) -> None:
        """Start on an empty data directory."""

    def stop(self) -> None:
        """Stop all nodes and remove their data."""

    def version(self) -> str:
        """Return name and version for the report."""


class Before(Headrace):
    """Another build of Headrace, beside the first."""

    name = "before"

    def version(self) -> str:
        """Return name and version for the report."""
        return f"{super().version()}, the build before"


def build_load_generator(directory: Path, name: str = "amqpload") -> Path:
    """Compile a load generator and return the program.

    Raises:
        PeerError: the compiler failed, most likely for want of librabbitmq-dev.
    """
    program = directory / name
    source = str(HERE / f"{name}.c")
    libraries = [*LIBRARIES[name], "-lpthread", "-lm"]
    command = ["cc", "-O2", "-D_GNU_SOURCE", "-o", str(program), source, *libraries]
    try:
        run(command, dict(os.environ))
    except PeerError as error:
        raise PeerError(
            f"cannot build {name} (apt-get install librabbitmq-dev): {error}"
        ) from error
    return program


def measure(
    program: Path, ports: list[int], scenario: Scenario, seconds: int, prefix: str
) -> Figures:
    """Run one scenario and return the load generator's figures.

    Raises:
        PeerError: the load generator reported an error.
    """
    command = [str(program), "--ports", ",".join(map(str, ports)), "--prefix", prefix]
    command += ["--seconds", str(seconds), *scenario.arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise PeerError(f"{scenario.name}: {done.stdout}{done.stderr}")
    figures: Figures = json.loads(done.stdout)
    if figures["received"] < figures["confirmed"]:
        raise PeerError(f"{scenario.name}: confirmed messages are missing: {figures}")
    return figures


def peers(work: Path, before: Path | None) -> dict[str, Callable[[], Peer]]:
    """Return what makes each peer, by name, in the order of the tables."""
    found: dict[str, Callable[[], Peer]] = {"headrace": partial(Headrace, work / "headrace")}
    if before is not None:
        place = work / "before"
        found["before"] = partial(Before, place, HEADRACE_PORT + 100, before)
    found["rabbitmq"] = partial(RabbitMQ, work / "rabbitmq")
    found["rabbitmq-later"] = partial(LaterRabbitMQ, CACHE / "trixie")
    found["nats"] = partial(Nats, work / "nats", False)
    found["nats-sync"] = partial(Nats, work / "nats-sync", True, NATS_PORT + 300)
    return found


class Comparison:
    """Samples of all peers, and what went wrong."""

    def __init__(self, chosen: list[Scenario], seconds: int, work: Path) -> None:
        self.samples: Samples = {}
        self.versions: dict[str, str] = {}  # by peer
        self.problems: list[str] = []
        self._chosen = chosen
        self._seconds = seconds
        self._work = work
        self._programs: dict[str, Path] = {}

    def make(self, makers: dict[str, Callable[[], Peer]]) -> list[Peer]:
        """Return the peers that can be had on this machine, with their load generators."""
        found: list[Peer] = []
        for name, make in makers.items():
            try:
                peer = make()
                if peer.load not in self._programs:
                    self._programs[peer.load] = build_load_generator(self._work, peer.load)
                self.versions[name] = peer.version()
            except PeerError as error:
                self.problems.append(f"{name} is left out: {error}")
            else:
                found.append(peer)
        return found

    def run(self, peer: Peer, title: str) -> None:
        """Run all scenarios on a fresh cluster; what fails is noted, and the others go on."""
        try:
            peer.start()
            for number, scenario in enumerate(self._chosen):
                if scenario.confirms or peer.load == "amqpload":
                    self._measure(peer, scenario, f"s{number}", title)
        except PeerError as error:
            self.problems.append(f"{peer.name} does not start: {error}")
        finally:
            try:
                peer.stop()
            except PeerError as error:
                self.problems.append(f"{peer.name} does not stop in order: {error}")

    def _measure(self, peer: Peer, scenario: Scenario, prefix: str, title: str) -> None:
        program = self._programs[peer.load]
        try:
            figures = measure(program, peer.ports, scenario, self._seconds, prefix)
        except PeerError as error:
            self.problems.append(f"{peer.name}: {error}")
            return
        self.samples.setdefault((peer.name, scenario.name), []).append(figures)
        print(
            f"{title} {peer.name:14} {scenario.name:58}"
            f" {figures['received_s']:8.0f}/s confirm p50 {figures['confirm_ms_p50']:.2f} ms"
            f" end to end p50 {figures['e2e_ms_p50']:.2f} ms",
            flush=True,
        )


def main() -> int:
    """Run the comparison; exit code 1 when a broker could not be driven."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--only", default="", help="comma-separated parts of scenario names")
    parser.add_argument("--peers", default="", help="comma-separated names; all by default")
    parser.add_argument("--before", type=Path, help="`headrace` of another build")
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md and the chart")
    options = parser.parse_args()
    if options.write and (options.only or options.peers):
        parser.error("--write: a part would take the place of the whole in bench/RESULTS.md")
    parts = [part for part in options.only.split(",") if part]
    chosen = [s for s in SCENARIOS if not parts or any(p in s.name for p in parts)]
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as work:
        makers = peers(Path(work), options.before)
        wanted = [name for name in options.peers.split(",") if name] or list(makers)
        if unknown := set(wanted) - makers.keys():
            parser.error(f"--peers: {', '.join(sorted(unknown))}: not one of {', '.join(makers)}")
        comparison = Comparison(chosen, options.seconds, Path(work))
        found = comparison.make({name: makers[name] for name in makers if name in wanted})
        for number in range(1, options.rounds + 1):
            for peer in found:
                comparison.run(peer, f"round {number}")
    for problem in comparison.problems:
        print(f"bench: {problem}", file=sys.stderr)
    if not comparison.samples:
        return 1
    samples, versions = comparison.samples, comparison.versions
    text = report(samples, versions, chosen, options.rounds, comparison.problems)
    print(text)
    if options.write:
        replace_section("compare", text)
        plot(samples, list(versions), chosen, CHART)
    return 1 if comparison.problems else 0


if __name__ == "__main__":
    sys.exit(main())
