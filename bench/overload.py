"""Load Headrace and RabbitMQ beyond what they can do, in turn; report what becomes of both.

    python bench/overload.py [--case abcdef] [--broker both] [--rounds 1] [--seconds 8] [--write]
    python bench/overload.py --sweep [--write]

with `--shards 2` for Headrace nodes of two processes each.

Both run as three nodes on this machine's loopback with quorum queues of three replicas. Each case
gets a cluster of its own. `--sweep` instead offers loads from half to ten times what a broker can
do and draws what becomes of rate, latency and memory; it needs matplotlib.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from peers import HEADRACE_PORT, Headrace, PeerError
from pressure.cases import CASES, Case, run_case
from pressure.generator import build
from pressure.goals import Measure, medians, side_by_side
from pressure.sweep import PLOT, Point, sweep
from rabbitmq import RABBIT_PORT, RabbitMQ
from replication.figures import machine, replace_section

Cluster = Headrace | RabbitMQ
BROKERS: Final[dict[str, type[Headrace] | type[RabbitMQ]]] = {
    "headrace": Headrace,
    "rabbitmq": RabbitMQ,
}


@contextlib.contextmanager
def running(name: str, work: Path, options: argparse.Namespace) -> Iterator[Cluster]:
    """A cluster on fresh data."""
    broker: Cluster
    if name == "headrace":
        broker = Headrace(work / name, options.headrace_port, shards=options.shards)
    else:
        broker = RabbitMQ(work / name, options.rabbitmq_port)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def measure(
    names: Sequence[str], cases: Sequence[Case], program: Path, options: argparse.Namespace
) -> tuple[dict[str, list[Measure]], list[str]]:
    """Run each case on each broker, a fresh cluster each time.

    Returns:
        The medians of all rounds by broker, and the brokers' versions.
    """
    rounds: dict[str, list[list[Measure]]] = {name: [] for name in names}
    versions: dict[str, str] = {}
    for number in range(options.rounds):
        for case in cases:
            for name in names:
                with running(name, program.parent, options) as broker:
                    versions[name] = broker.version()
                    found = run_case(case, program, broker, options.seconds)
                rounds[name].append(found)
                for each in found:
                    print(
                        f"round {number + 1} {name:8} {case.letter} {each.name}: {each.value:,.2f}"
                    )
                sys.stdout.flush()
    return {name: medians(found) for name, found in rounds.items()}, list(versions.values())


def report(
    found: dict[str, list[Measure]],
    versions: Sequence[str],
    cases: Sequence[Case],
    rounds: int,
    shards: int,
) -> str:
    """Return the section of the report."""
    own = f", Headrace's of {shards} shards" if shards > 1 else ""
    lines = [f"{' against '.join(versions)}; three nodes each{own}, in turn, on {machine()},"]
    lines += [
        f"load generator included; medians of {rounds}."
        if rounds > 1
        else "load generator included; one round."
    ]
    lines += ["", *(f"- ({case.letter}) {case.title};" for case in cases), "", ""]
    return "\n".join(lines) + side_by_side(found.get("headrace", []), found.get("rabbitmq", []))


def draw(names: Sequence[str], program: Path, options: argparse.Namespace) -> None:
    """Measure the sweep of each broker and draw it."""
    points: dict[str, list[Point]] = {}
    for name in names:
        with running(name, program.parent, options) as broker:
            points[name] = sweep(program, broker, options.seconds)
    from pressure.plot import plot  # an extra of its own: the tables need no matplotlib

    path = PLOT if options.write else Path("overload.png")
    plot(points, path, options.shards)
    print(f"drawn: {path}")


def main() -> int:
    """Run the benchmark; exit code 1 when a broker could not be driven."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", default="abcdef", help="letters of cases")
    parser.add_argument("--broker", default="both", choices=["both", *BROKERS])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=8, help="measured in each load")
    parser.add_argument("--sweep", action="store_true", help="draw loads of 0.5 to 10 instead")
    parser.add_argument("--shards", type=int, default=1, help="processes of each Headrace node")
    port = "AMQP port of its first node"
    parser.add_argument("--headrace-port", type=int, default=HEADRACE_PORT, help=port)
    parser.add_argument("--rabbitmq-port", type=int, default=RABBIT_PORT, help="likewise")
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md, or the plot")
    options = parser.parse_args()
    names = list(BROKERS) if options.broker == "both" else [options.broker]
    cases = [case for case in CASES if case.letter in options.case]
    with tempfile.TemporaryDirectory(prefix="headrace-overload-") as work:
        try:
            program = build(Path(work))
            if options.sweep:
                draw(names, program, options)
                return 0
            found, versions = measure(names, cases, program, options)
        except PeerError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    text = report(found, versions, cases, options.rounds, options.shards)
    print(text)
    if options.write:
        replace_section("overload", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
