"""Declares per second with many replicated queues, their memory, and how soon each serves again.

python bench/many_queues.py [--queues 10000] [--connections 24] [--write]

Queues are declared over all three nodes, so that each leads about a third of them. A queue serves
when it has confirmed a message that was published to it: first after SIGKILL of the third node,
then after SIGKILL of all nodes and their start.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any, Final

from neighbours.wire import Wire, publish
from pamqp import commands
from peers import Headrace, PeerError, report
from replication.figures import percentile, resident_bytes

from headrace_broker.cli.local_cluster import LocalCluster

REPLICATED: Final[dict[str, Any]] = {"x-queue-type": "quorum"}
SETTLE_SECONDS: Final = 10  # until the groups have fallen silent, and sessions of before have ended
SERVE_SECONDS_MAX: Final = 300.0  # a queue that does not confirm within is a failure
AGAIN_SECONDS: Final = 0.05  # between two attempts to connect, or to publish what was refused
PUBLISHERS: Final = 8  # connections that publish to all queues together


def name_of(number: int) -> str:
    """Return the name of a queue."""
    return f"many-{number}"


def declare(ports: list[int], count: int, connections: int) -> float:
    """Declare `count` queues over so many connections, one after the other on each.

    Returns:
        The seconds that it took.
    """

    def work(first: int) -> None:
        wire = Wire(ports[first % len(ports)])
        wire.ask(1, commands.Channel.Open())
        for number in range(first, count, connections):
            declared = commands.Queue.Declare(
                queue=name_of(number), durable=True, arguments=REPLICATED
            )
            answer = wire.ask(1, declared)
            if not isinstance(answer, commands.Queue.DeclareOk):
                raise PeerError(f"{name_of(number)} was not declared: {answer!r}")
        wire.close()

    started = time.monotonic()
    together(work, range(connections))
    return time.monotonic() - started


def together(work: Callable[[int], None], numbers: range) -> None:
    """Call a function for each number in a thread of its own; raise what the first raised."""
    with ThreadPoolExecutor(len(numbers)) as threads:
        for done in [threads.submit(work, number) for number in numbers]:
            done.result()


def connect(port: int) -> Wire:
    """Return a connection once the broker takes one.

    Raises:
        PeerError: not within SERVE_SECONDS_MAX.
    """
    end = time.monotonic() + SERVE_SECONDS_MAX
    while True:
        try:
            return Wire(port, seconds=SERVE_SECONDS_MAX)
        except OSError as error:
            if time.monotonic() > end:
                raise PeerError(f"no connection to port {port}: {error}") from error
            time.sleep(AGAIN_SECONDS)


class Publishes:
    """Messages to some queues over one connection, again to each that refused one.

    One thread sends, another one reads.
    """

    def __init__(self, wire: Wire, numbers: range) -> None:
        self._wire = wire
        self._unsent = deque(numbers)  # numbers of queues
        self._over = threading.Event()
        self._waiting: dict[int, int] = {}  # number of a queue by delivery tag
        self._last_tag = 0

    def send(self) -> None:
        """Publish to each queue, and every AGAIN_SECONDS to those that refused, until `end`."""
        while not self._over.is_set():
            for _ in range(len(self._unsent)):
                number = self._unsent.popleft()
                self._last_tag += 1
                self._waiting[self._last_tag] = number
                self._wire.send(publish(1, "", name_of(number), b"alive"))
            self._over.wait(AGAIN_SECONDS)

    def end(self) -> None:
        """Send nothing more."""
        self._over.set()

    def confirmed(self) -> int:
        """Wait for the next answer, and return how many queues have confirmed by it."""
        answer = self._wire.read()
        if not isinstance(answer, commands.Basic.Ack | commands.Basic.Nack):
            raise PeerError(f"no confirm but {answer!r}")
        tag = answer.delivery_tag
        over = [each for each in list(self._waiting) if each <= tag] if answer.multiple else [tag]
        numbers = [self._waiting.pop(each) for each in over]
        if isinstance(answer, commands.Basic.Ack):
            return len(numbers)
        self._unsent.extend(numbers)
        return 0


def serve(ports: list[int], count: int, since: float) -> list[float]:
    """Publish a message to each queue, and return after how many seconds each was confirmed.

    Args:
        ports: of the nodes to publish through.
        count: of the queues.
        since: monotonic time from which seconds count.
    """
    times: list[float] = []
    lock = threading.Lock()

    def work(first: int) -> None:
        wire = connect(ports[first % len(ports)])
        wire.ask(1, commands.Channel.Open())
        wire.ask(1, commands.Confirm.Select())
        numbers = range(first, count, PUBLISHERS)
        publishes = Publishes(wire, numbers)
        sender = threading.Thread(target=publishes.send)
        sender.start()
        served = 0
        try:
            while served < len(numbers):
                confirmed = publishes.confirmed()
                served += confirmed
                with lock:
                    times.extend(repeat(time.monotonic() - since, confirmed))
        finally:
            publishes.end()
            sender.join()
        wire.close()

    together(work, range(PUBLISHERS))
    return sorted(times)


def spread(seconds: list[float]) -> str:
    """Return median, p99 and maximum of ascending seconds as text."""
    return (
        f"half of them within {percentile(seconds, 0.5):.1f} s, "
        f"99 % within {percentile(seconds, 0.99):.1f} s, all within {seconds[-1]:.1f} s"
    )


def restart(cluster: Headrace, count: int) -> list[float]:
    """Kill all nodes and start them; return after how many seconds each queue served."""
    local = LocalCluster.existing(cluster.directory)
    for pid in cluster.pids():
        os.kill(pid, signal.SIGKILL)
    while any(node.process() is not None for node in local.nodes):
        time.sleep(AGAIN_SECONDS)
    started = time.monotonic()
    local.start()
    return serve(cluster.ports, count, started)


def measure(cluster: Headrace, count: int, connections: int) -> list[str]:
    """Return lines for the report; each is printed once it is known."""
    lines = [f"{count} replicated queues on three nodes:", ""]

    def tell(text: str) -> None:
        lines.append(f"- {text}")
        print(lines[-1], file=sys.stderr)

    empty = [resident_bytes(pid) for pid in cluster.pids()]
    rate = count / declare(cluster.ports, count, connections)
    tell(f"over {connections} connections, one after the other on each: {rate:.0f} declares/s;")
    time.sleep(SETTLE_SECONDS)
    pids = cluster.pids()
    grown = [resident_bytes(pid) - size for pid, size in zip(pids, empty, strict=True)]
    memory = ", ".join(f"{size / count / 1024:.1f} KiB" for size in grown)
    tell(f"memory of each node for each queue: {memory};")
    healthy = serve(cluster.ports, count, time.monotonic())
    tell(f"with all nodes running, each confirms a message: {spread(healthy)};")
    time.sleep(SETTLE_SECONDS)
    os.kill(pids[2], signal.SIGKILL)
    took_over = serve(cluster.ports[:2], count, time.monotonic())
    tell(f"after SIGKILL of one node: {spread(took_over)};")
    tell(f"after SIGKILL of all nodes, from their start on: {spread(restart(cluster, count))}.")
    return lines


def main() -> int:
    """Run the measurement; exit code 1 when the cluster could not be driven."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=24)
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    options = parser.parse_args()
    return report(
        "many queues",
        options.write,
        lambda cluster: measure(cluster, options.queues, options.connections),
    )


if __name__ == "__main__":
    sys.exit(main())
