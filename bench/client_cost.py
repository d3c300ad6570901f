"""Cost of the Python clients: `headrace perf` next to the C load generator.

    python bench/client_cost.py [--rounds 3] [--seconds 8] [--base-port 20772] [--write]

One cluster serves the C load generator over AMQP, `headrace perf` over AMQP and over gRPC
(headrace-client), in turn and repeatedly, one publisher and one consumer each. Processor time is
that of the load generator's process alone, without what it takes to start; the nodes' own work is
not in it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from compare import build_load_generator
from peers import NODE_COUNT, Headrace, PeerError
from replication.figures import machine, replace_section, table

from headrace_broker.cli.local_cluster import GRPC_OFFSET

BASE_PORT: Final = 20772
SETTLE_SECONDS: Final = 60  # beyond its own time that a load generator may take to end
C_CLIENT: Final = "C (rabbitmq-c), AMQP"
AMQP_CLIENT: Final = "headrace perf, AMQP"
GRPC_CLIENT: Final = "headrace perf, gRPC (headrace-client)"
CLIENTS: Final = (C_CLIENT, AMQP_CLIENT, GRPC_CLIENT)
HEADRACE: Final = Path(sys.executable).with_name("headrace")


class Scenario(NamedTuple):
    """One load: bytes of a body, and how many messages a publisher may have unconfirmed."""

    size: int
    window: int

    def __str__(self) -> str:
        return f"{self.size} B, window {self.window}"


SCENARIOS: Final = (Scenario(100, 1000), Scenario(1024, 1000), Scenario(100, 1))


class Sample(NamedTuple):
    """One run.

    Attributes:
        rate: messages received a second.
        p50_ms: from sending to receiving.
        processor_us: of the load generator, for each message that it sent and received.
    """

    rate: float
    p50_ms: float
    processor_us: float


Samples = dict[tuple[Scenario, str], list[Sample]]


def timed(command: Sequence[str], seconds: float) -> tuple[str, float]:
    """Run a load generator; return its output, and its processor time in seconds.

    Raises:
        PeerError: it failed, or did not end.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    limit = seconds + SETTLE_SECONDS
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise PeerError(f"{command[0]} did not end within {limit:.0f} s") from None
    if done.returncode != 0:
        raise PeerError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, used


class Bench:
    """Runs scenarios against one cluster.

    Args:
        program: the C load generator.
        ports: for AMQP, of the nodes.
        seconds: of a run.
    """

    def __init__(self, program: Path, ports: Sequence[int], seconds: int) -> None:
        self._program = program
        self._ports = ports
        self._seconds = seconds

    def run(self, client: str, scenario: Scenario) -> Sample:
        """Run one load, through the first node."""
        if client == C_CLIENT:
            return self._run_c(scenario)
        return self._run_perf(client, scenario)

    def _run_c(self, scenario: Scenario) -> Sample:
        ports = ",".join(map(str, self._ports[:1]))
        command = [str(self._program), "--ports", ports, "--prefix", "cost"]
        command += ["--size", str(scenario.size), "--window", str(scenario.window)]
        told, used = timed([*command, "--seconds", str(self._seconds)], self._seconds)
        figures = json.loads(told)
        return Sample(figures["received_s"], figures["e2e_ms_p50"], used * 1e6 / figures["sent"])

    def _run_perf(self, client: str, scenario: Scenario) -> Sample:
        begun = self._perf(client, ["--publishers", "0", "--consumers", "0", "--seconds", "1"])[1]
        words = ["--size", str(scenario.size), "--window", str(scenario.window)]
        told, used = self._perf(client, [*words, "--seconds", str(self._seconds)])
        found = json.loads(told)
        cost = max(used - begun, 0.0) * 1e6 / found["sent"]
        return Sample(found["received_rate"], found["latency_ms"]["p50"], cost)

    def _perf(self, client: str, words: Sequence[str]) -> tuple[str, float]:
        protocol, port = "amqp", self._ports[0]
        if client == GRPC_CLIENT:
            protocol, port = "grpc", port + GRPC_OFFSET
        command = [str(HEADRACE), "perf", "-o", "json", "--queue", "cost-perf"]
        command += ["--protocol", protocol, "--address", f"127.0.0.1:{port}", *words]
        return timed(command, self._seconds)


def collect(options: argparse.Namespace, work: Path) -> Samples:
    """Run every scenario with every client `rounds` times, in turn."""
    program = build_load_generator(work)
    broker = Headrace(work / "headrace", options.base_port)
    samples: Samples = {}
    broker.start()
    try:
        bench = Bench(program, broker.ports, options.seconds)
        for number in range(1, options.rounds + 1):
            for scenario in SCENARIOS:
                for client in CLIENTS:
                    found = bench.run(client, scenario)
                    samples.setdefault((scenario, client), []).append(found)
                    print(
                        f"round {number} {scenario!s:20} {client:38} {found.rate:9,.0f}/s"
                        f"  p50 {found.p50_ms:.1f} ms  {found.processor_us:.1f} us a message",
                        flush=True,
                    )
    finally:
        broker.stop()
    return samples


def report(samples: Samples, rounds: int) -> str:
    """Return the Markdown text."""
    rows = []
    for scenario in SCENARIOS:
        best = middle(samples[(scenario, C_CLIENT)])
        for client in CLIENTS:
            found = middle(samples[(scenario, client)])
            rows.append(
                [
                    f"{scenario}: {client}",
                    f"{found.rate:,.0f}",
                    f"{found.rate / best.rate:.2f}",
                    f"{found.p50_ms:.1f}",
                    f"{found.processor_us:.1f}",
                    f"{found.processor_us / best.processor_us:.1f}",
                ]
            )
    heads = ["load and client", "received/s", "of C's", "latency p50, ms"]
    heads += ["processor time, us a message", "times C's"]
    load = os.getloadavg()[0]
    text = f"{NODE_COUNT} nodes on {machine()}, clients included; medians of {rounds} rounds."
    if load > 2 * (os.cpu_count() or 1):
        text += f"\nOther work was on the machine (load {load:.0f}): read the processor times."
    return f"{text}\n\n{table(heads, rows)}"


def middle(found: Sequence[Sample]) -> Sample:
    """Return the median of each figure."""
    return Sample(*(statistics.median(each) for each in zip(*found, strict=True)))


def main() -> int:
    """Run the comparison; exit code 1 when something could not be run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as work:
        try:
            samples = collect(options, Path(work))
        except PeerError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    text = report(samples, options.rounds)
    print(text)
    if options.write:
        replace_section("client", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
