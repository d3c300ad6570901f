"""Measure a client that behaves beside clients that do not, on three nodes of this machine.

    python bench/neighbour.py [--case channels,qos] [--seconds 6] [--port 17672] [--write]

The healthy client publishes 50 messages a second with confirms to a quorum queue and consumes
them. All clients talk to the first node, which leads the queue.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from neighbours.healthy import Healthy, Latencies
from neighbours.hostile import CASES, Case, serve
from peers import Headrace, PeerError
from replication.figures import latency, machine, replace_section, table

PORT: Final = 17672  # all ports of the nodes lie below those that the kernel gives to clients
GOAL_MS: Final = 100.0
SETTLE_SECONDS: Final = 2.0  # before anything is measured; hostile clients get going
AFTER_SECONDS: Final = 3.0  # measured after the hostile clients have gone

Row = list[str]


def row(title: str, during: Latencies, after: Latencies) -> Row:
    """Return a row of the table: milliseconds."""
    cells = [latency([each for _, each in during.confirms])]
    cells += [latency([each for _, each in during.deliveries])]
    worst = max((each for _, each in during.confirms), default=0.0)
    late = latency([each for _, each in after.deliveries])
    figures = [f"{each:.0f}" for cell in cells for each in cell]
    return [title, *figures, f"{1000 * worst:.0f}", f"{late.p99_ms:.0f}"]


def measure(broker: Headrace, case: Case | None, seconds: float, equal: bool) -> Row:
    """Run one case on a cluster."""
    healthy = Healthy(broker.ports[0])
    healthy.start()
    hostile = None
    if case is not None:
        arguments = (case, broker.ports[0], equal)
        hostile = multiprocessing.Process(target=serve, args=arguments, daemon=True)
        hostile.start()
    time.sleep(SETTLE_SECONDS)
    begin = time.monotonic()
    time.sleep(seconds)
    end = time.monotonic()
    if hostile is not None:
        hostile.kill()
        hostile.join()
    time.sleep(AFTER_SECONDS)
    healthy.stop()
    found = healthy.found
    title = case.title if case is not None else "none"
    return row(title, found.between(begin, end), found.between(end, end + AFTER_SECONDS))


HEADS: Final = [
    "beside it",
    "confirm p50",
    "p99",
    "delivery p50",
    "p99",
    "confirm max",
    "delivery p99 after",
]


def main() -> int:
    """Run the benchmark; exit code 1 when the broker could not be driven."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", default="", help="names of cases, by commas; all by default")
    parser.add_argument("--seconds", type=float, default=6.0, help="measured in each case")
    parser.add_argument("--port", type=int, default=PORT, help="AMQP port of the first node")
    parser.add_argument(
        "--equal", action="store_true", help="let hostile clients compete for processors"
    )
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    options = parser.parse_args()
    names = [name for name in options.case.split(",") if name]
    unknown = set(names) - {case.name for case in CASES}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    cases = [case for case in CASES if not names or case.name in names]
    rows: list[Row] = []
    version = ""
    for case in [None, *cases]:
        with tempfile.TemporaryDirectory(prefix="headrace-neighbour-") as work:
            broker = Headrace(Path(work) / "headrace", options.port)
            try:
                version = broker.version()
                broker.start()
                try:
                    rows.append(measure(broker, case, options.seconds, options.equal))
                finally:
                    broker.stop()
            except PeerError as error:
                print(error, file=sys.stderr)
                return 1
        print(" | ".join(rows[-1]), flush=True)
    shared = "at equal priority" if options.equal else "on processor time that nodes leave idle"
    text = (
        f"{version}, three nodes on {machine()}, clients included,\nhostile ones {shared}. "
        f"Milliseconds of a client that publishes 50 messages a second\n"
        f"and consumes them, beside others at the same node. "
        f"The goal is a p99 below {GOAL_MS:.0f} ms in each row.\n\n{table(HEADS, rows)}"
    )
    print(text)
    if options.write:
        replace_section("neighbour", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
