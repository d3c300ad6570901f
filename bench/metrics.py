"""Processor time of a scrape of /metrics on a node with many queues and connections.

python bench/metrics.py [--queues 1000] [--connections 1000] [--scrapes 10] [--port 12672] [--write]

One node with replicated queues (of one member each) that hold a message, and AMQP connections with
a consumer each. The processor time of the node's process is taken around the scrapes, and that of
as long a time without any is taken off.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import http.client
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import aiormq
from replication.figures import processor_seconds, replace_section

from headrace_broker.cli.local_cluster import LocalCluster, LocalNode

USER: Final = "guest"
SETTLE_SECONDS: Final = 5  # until what was declared has fallen silent
AT_ONCE: Final = 50  # connections that are being opened
PATHS: Final = ("/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_coarse_metrics")


async def fill(node: LocalNode, queues: int) -> None:
    """Declare queues with a message each."""
    connection = await aiormq.connect(f"amqp://{USER}:{USER}@{node.amqp}/")
    channel = await connection.channel()
    for number in range(queues):
        name = f"metrics-{number}"
        await channel.queue_declare(name, durable=True)
        await channel.basic_publish(b"waits", routing_key=name)
    await connection.close()


async def connect(node: LocalNode, count: int, queues: int) -> list[aiormq.abc.AbstractConnection]:
    """Open connections; each consumes from a queue, with a prefetch that is full at once."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> aiormq.abc.AbstractConnection:
        async with turns:
            connection = await aiormq.connect(f"amqp://{USER}:{USER}@{node.amqp}/")
            channel = await connection.channel()
            await channel.basic_qos(prefetch_count=1)
            await channel.basic_consume(f"metrics-{number % queues}", _keep)
            return connection

    return list(await asyncio.gather(*(one(number) for number in range(count))))


async def _keep(message: object) -> None:
    """Leave a delivery unsettled."""


async def scrape(node: LocalNode, path: str) -> int:
    """Read metrics once; return how many series there were."""
    status, body = await asyncio.to_thread(fetch, node, path)
    assert status == 200, body[:200]
    return sum(not line.startswith(b"#") for line in body.splitlines())


def fetch(node: LocalNode, path: str) -> tuple[int, bytes]:
    """Return status and text of a scrape."""
    host, _, port = node.http.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    login = base64.b64encode(f"{USER}:{USER}".encode()).decode()
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Authorization": f"Basic {login}"})
        answer = connection.getresponse()
        return answer.status, answer.read()


async def cost(node: LocalNode, pid: int, path: str, scrapes: int) -> str:
    """Return a line for the report."""
    series = await scrape(node, path)
    before, began = processor_seconds(pid), time.monotonic()
    for _ in range(scrapes):
        await scrape(node, path)
    spent, took = processor_seconds(pid) - before, time.monotonic() - began
    quiet = processor_seconds(pid)
    await asyncio.sleep(took)
    idle = processor_seconds(pid) - quiet
    each = 1000 * max(spent - idle, 0) / scrapes
    return f"| `{path}` | {series} | {each:.0f} |"


async def measure(node: LocalNode, queues: int, connections: int, scrapes: int) -> str:
    """Return the section of the report."""
    record = node.process()
    assert record is not None
    await fill(node, queues)
    held = await connect(node, connections, queues)
    await asyncio.sleep(SETTLE_SECONDS)
    rows = [await cost(node, record.pid, path, scrapes) for path in PATHS]
    for connection in held:
        await connection.close()
    return "\n".join(
        [
            f"A node with {queues} queues and {connections} connections; processor time of the "
            f"node for one scrape, mean of {scrapes}:",
            "",
            "| path | series | processor time, ms |",
            "| --- | --- | --- |",
            *rows,
        ]
    )


def main() -> int:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--scrapes", type=int, default=10)
    parser.add_argument("--port", type=int, default=12672, help="AMQP port of the node")
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    options = parser.parse_args()
    os.environ["HEADRACE_METRICS_PER_OBJECT"] = "true"
    with tempfile.TemporaryDirectory(prefix="headrace-metrics-") as work:
        cluster = LocalCluster(Path(work) / "data", 1, options.port)
        cluster.start()
        try:
            cluster.wait_ready(60)
            node = cluster.nodes[0]
            text = asyncio.run(measure(node, options.queues, options.connections, options.scrapes))
        finally:
            cluster.stop()
    print(text)
    if options.write:
        replace_section("metrics", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
