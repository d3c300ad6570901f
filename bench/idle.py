"""Processor time and memory of a node for idle replicated queues.

python bench/idle.py [--queues 1000] [--seconds 20] [--message-ttl MS] [--write]

With --message-ttl each queue holds one message that waits for that long, so that each has a time to
wait for: choose one that ends after the measurement to see what waiting costs.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

import pika
from peers import Headrace, report
from replication.figures import processor_seconds, resident_bytes

from headrace_broker.cli.local_cluster import LocalCluster

SETTLE_SECONDS: Final = 10  # until the groups have fallen silent


def declare(port: int, count: int, ttl_ms: int | None) -> float:
    """Declare `count` durable queues over one channel; return the seconds it took."""
    arguments = None if ttl_ms is None else {"x-message-ttl": ttl_ms}
    started = time.monotonic()
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    for number in range(count):
        channel.queue_declare(f"idle-{number}", durable=True, arguments=arguments)
        if ttl_ms is not None:
            channel.basic_publish("", f"idle-{number}", b"waits")
    connection.close()
    return time.monotonic() - started


def measure(cluster: Headrace, count: int, seconds: int, ttl_ms: int | None) -> list[str]:
    """Return lines for the report."""
    local = LocalCluster.existing(cluster.directory)
    records = [node.process() for node in local.nodes]
    pids = [record.pid for record in records if record is not None]
    empty = [resident_bytes(pid) for pid in pids]
    took = declare(cluster.ports[0], count, ttl_ms)
    time.sleep(SETTLE_SECONDS)
    before = [processor_seconds(pid) for pid in pids]
    time.sleep(seconds)
    used = [processor_seconds(pid) - start for pid, start in zip(pids, before, strict=True)]
    grown = [resident_bytes(pid) - size for pid, size in zip(pids, empty, strict=True)]
    share = ", ".join(f"{100 * spent / seconds:.1f} %" for spent in used)
    memory = ", ".join(f"{size / count / 1024:.1f} KiB" for size in grown)
    timed = "" if ttl_ms is None else f" with a message of {ttl_ms / 1000:g} s to live each"
    return [
        f"{count} idle replicated queues{timed} on three nodes, measured over {seconds} s:",
        "",
        f"- processor time of each node: {share} of a core;",
        f"- memory of each node for each queue: {memory};",
        f"- declaring them one after the other took {1000 * took / count:.1f} ms each.",
    ]


def main() -> int:
    """Run the measurement; exit code 1 when the cluster could not be driven."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--message-ttl", type=int, metavar="MS")
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    options = parser.parse_args()
    return report(
        "idle",
        options.write,
        lambda cluster: measure(cluster, options.queues, options.seconds, options.message_ttl),
    )


if __name__ == "__main__":
    sys.exit(main())
