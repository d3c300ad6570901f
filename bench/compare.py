"""Drive Headrace and RabbitMQ with one C load generator, in turn and repeatedly; report ratios.

    python bench/compare.py [--rounds 3] [--seconds 8] [--only 100B,...] [--write]

Both run as three nodes on this machine's loopback with quorum queues of three replicas, so figures
are for the machine and the moment; the ratios within one run are what counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from peers import Headrace, PeerError, RabbitMQ

HERE: Final = Path(__file__).parent
BEGIN: Final = "<!-- compare: begin -->"
END: Final = "<!-- compare: end -->"


class Scenario(NamedTuple):
    """One load: what amqpload is told."""

    name: str
    arguments: list[str]


SCENARIOS: Final = [
    Scenario("100 B, window 1000", ["--size", "100", "--window", "1000"]),
    Scenario("1 KiB, window 1000", ["--size", "1024", "--window", "1000"]),
    Scenario("100 B, window 1", ["--size", "100", "--window", "1"]),
    Scenario("1 KiB, window 1", ["--size", "1024", "--window", "1"]),
    Scenario(
        "100 B, 4 publishers, 4 consumers, 4 queues",
        ["--size", "100", "--publishers", "4", "--consumers", "4", "--queues", "4"],
    ),
]


def build_load_generator(directory: Path) -> Path:
    """Compile amqpload.c and return the program.

    Raises:
        PeerError: the compiler failed, most likely for want of librabbitmq-dev.
    """
    program = directory / "amqpload"
    source = str(HERE / "amqpload.c")
    command = ["cc", "-O2", "-o", str(program), source, "-lrabbitmq", "-lpthread", "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise PeerError(f"cannot build amqpload (apt-get install librabbitmq-dev):\n{done.stderr}")
    return program


def measure(
    program: Path, ports: list[int], scenario: Scenario, seconds: int, prefix: str
) -> dict[str, float]:
    """Run one scenario and return amqpload's figures.

    Raises:
        PeerError: the load generator reported an error.
    """
    command = [str(program), "--ports", ",".join(map(str, ports)), "--prefix", prefix]
    command += ["--seconds", str(seconds), *scenario.arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise PeerError(f"{scenario.name}: {done.stdout}{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    if figures["received"] < figures["confirmed"]:
        raise PeerError(f"{scenario.name}: confirmed messages are missing: {figures}")
    return figures


Samples = dict[tuple[str, str], list[dict[str, float]]]


def collect(rounds: int, seconds: int, chosen: list[Scenario], work: Path) -> tuple[Samples, str]:
    """Run every scenario on every broker `rounds` times, a fresh cluster each time."""
    program = build_load_generator(work)
    samples: Samples = {}
    versions: list[str] = []
    for round_number in range(rounds):
        for broker in (Headrace(work / "headrace"), RabbitMQ(work / "rabbitmq")):
            broker.start()
            try:
                if round_number == 0:
                    versions.append(broker.version())
                for number, scenario in enumerate(chosen):
                    figures = measure(program, broker.ports, scenario, seconds, f"s{number}")
                    samples.setdefault((broker.name, scenario.name), []).append(figures)
                    print(
                        f"round {round_number + 1} {broker.name:9} {scenario.name:44}"
                        f" {figures['received_s']:8.0f}/s"
                        f" confirm p50 {figures['confirm_ms_p50']:.2f} ms",
                        flush=True,
                    )
            finally:
                broker.stop()
    return samples, " against ".join(versions)


def median(samples: Samples, broker: str, scenario: str, figure: str) -> float:
    """Return the median of one figure over all rounds."""
    return statistics.median(sample[figure] for sample in samples[(broker, scenario)])


def report(samples: Samples, versions: str, chosen: list[Scenario], rounds: int) -> str:
    """Return the Markdown tables."""
    machine = f"{platform.machine()}, Linux {platform.release().split('-')[0]}"
    heads = ["Headrace received/s", "RabbitMQ received/s", "throughput ratio"]
    heads += ["Headrace confirm p50 / p99 ms", "RabbitMQ confirm p50 / p99 ms", "p50 ratio"]
    lines = [
        f"{versions}; three nodes each on one machine with {os.cpu_count()} processors",
        f"({machine}, CPython {platform.python_version()}), load generator included;",
        f"medians of {rounds} rounds.",
        "",
        f"| load | {' | '.join(heads)} |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for scenario in chosen:
        rates = [median(samples, b, scenario.name, "received_s") for b in ("headrace", "rabbitmq")]
        p50 = [
            median(samples, b, scenario.name, "confirm_ms_p50") for b in ("headrace", "rabbitmq")
        ]
        p99 = [
            median(samples, b, scenario.name, "confirm_ms_p99") for b in ("headrace", "rabbitmq")
        ]
        lines.append(
            f"| {scenario.name} | {rates[0]:,.0f} | {rates[1]:,.0f} | {rates[0] / rates[1]:.2f} |"
            f" {p50[0]:.2f} / {p99[0]:.2f} | {p50[1]:.2f} / {p99[1]:.2f} | {p50[0] / p50[1]:.2f} |"
        )
    return "\n".join(lines)


def write_results(text: str) -> None:
    """Replace the table in bench/RESULTS.md."""
    path = HERE / "RESULTS.md"
    before, rest = path.read_text().split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


def main() -> int:
    """Run the comparison; exit code 1 when a broker could not be driven."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--only", default="", help="comma-separated parts of scenario names")
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    options = parser.parse_args()
    parts = [part for part in options.only.split(",") if part]
    chosen = [s for s in SCENARIOS if not parts or any(p in s.name for p in parts)]
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as work:
        try:
            samples, versions = collect(options.rounds, options.seconds, chosen, Path(work))
        except PeerError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    text = report(samples, versions, chosen, options.rounds)
    print(text)
    if options.write:
        write_results(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
