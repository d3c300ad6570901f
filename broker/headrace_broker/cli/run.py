"""`headrace run`: a cluster for the time that a person watches it."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click
from rich.console import Console
from rich.live import Live

from headrace_broker.cli.cluster import READY_S_MAX, data_option, size_options
from headrace_broker.cli.local_cluster import LocalCluster
from headrace_broker.model import build_info

REFRESH_S: Final = 1.0  # seconds between two looks at the nodes
PLAIN_EVERY: Final = 10  # one of so many looks is printed when the output is no terminal
RATE_NAMES: Final = ("publish", "deliver", "ack")

EXAMPLE: Final = """\
Publish and consume (paste into another shell):

{python} -m pip install --quiet pika
{python} - <<'END'
import pika
connection = pika.BlockingConnection(pika.ConnectionParameters("{host}", {port}))
channel = connection.channel()
channel.queue_declare("hello", durable=True, arguments={{"x-queue-type": "quorum"}})
channel.confirm_delivery()
channel.basic_publish("", "hello", b"Hello, Headrace!")
method, properties, body = channel.basic_get("hello", auto_ack=True)
print(body.decode())
connection.close()
END
"""


@click.command()
@size_options
@data_option
def run(nodes: int, shards: int | None, base_port: int | None, data: Path) -> None:
    """Start a cluster, show it, and stop it at Ctrl-C; the data stays."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    console = Console(highlight=False, markup=False)
    local = LocalCluster(data, nodes, base_port or LocalCluster.port_of(data), shards or 0)
    local.start()
    try:
        console.print(f"starting {nodes} nodes, data in {local.data} ...")
        local.wait_ready(READY_S_MAX, stop)
        if not stop.is_set():
            console.print(describe(local), soft_wrap=True)
            watch(local, console, stop)
    finally:
        console.print("stopping ...")
        killed = local.stop()
        console.print(f"killed: {', '.join(killed)}" if killed else "stopped; the data is kept")


def describe(local: LocalCluster) -> str:
    """Return the addresses and an example to paste."""
    host, _, port = local.nodes[0].amqp.rpartition(":")
    compiled = "compiled" if build_info.compiled() else "interpreted"
    lines = [
        f"Headrace {build_info.VERSION} ({compiled}), user guest, password guest, vhost /",
        "  AMQP  " + "  ".join(f"amqp://{node.amqp}" for node in local.nodes),
        "  gRPC  " + "  ".join(node.grpc for node in local.nodes),
        "  HTTP  " + "  ".join(f"http://{node.http}/api/overview" for node in local.nodes),
        "",
        EXAMPLE.format(python=sys.executable, host=host, port=port),
        "Ctrl-C stops the cluster; the data is kept.",
    ]
    return "\n".join(lines)


def watch(local: LocalCluster, console: Console, stop: threading.Event) -> None:
    """Show one line about the cluster each second until `stop` is set."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            while not stop.is_set():
                live.update(live_line(overviews(local), len(local.nodes)), refresh=True)
                stop.wait(REFRESH_S)
        return
    while not stop.is_set():
        console.print(live_line(overviews(local), len(local.nodes)), soft_wrap=True)
        stop.wait(REFRESH_S * PLAIN_EVERY)


def overviews(local: LocalCluster) -> list[dict[str, Any]]:
    """Ask all nodes; those that do not answer are left out."""
    answers = [node.api.overview() for node in local.nodes]
    return [answer for answer in answers if answer is not None]


def live_line(answers: list[dict[str, Any]], count: int) -> str:
    """Sum up the answers to GET /api/overview in a cluster of `count` nodes."""
    leaders = sorted({answer["leader"] for answer in answers if answer["leader"]})
    local = [answer["local"] for answer in answers]
    heading = [f"nodes {len(answers)}/{count}", f"leader {'/'.join(leaders) or 'none'}"]
    if None in local:
        return " | ".join([*heading, "a shard does not tell its messages"])
    stats = [each["message_stats"] for each in local]
    rates = [
        f"{name} {sum(stat[f'{name}_details']['rate'] for stat in stats):,.0f}/s"
        for name in RATE_NAMES
    ]
    totals = [each["queue_totals"] for each in local]
    ready = sum(total["messages_ready"] for total in totals)
    unacknowledged = sum(total["messages_unacknowledged"] for total in totals)
    depth = sum(total["messages"] for total in totals)
    depths = f"depth {depth:,} ({ready:,} ready, {unacknowledged:,} unacked)"
    return " | ".join([*heading, *rates, depths])
