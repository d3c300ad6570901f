"""`headrace cluster`: a local cluster of real processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from headrace_broker.cli.local_cluster import BASE_PORT, HTTP_OFFSET, NODES_MAX, LocalCluster
from headrace_broker.model.shard import SHARDS_MAX

READY_S_MAX = 60.0  # seconds until a cluster that is not ready is called a failure

data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Directory of the cluster's files; kept.",
)


def size_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --nodes, --shards and --base-port to a command."""
    nodes = click.option("--nodes", type=click.IntRange(1, NODES_MAX), default=3, show_default=True)
    base_port = click.option(
        "--base-port",
        type=click.IntRange(1024, 65535 - HTTP_OFFSET - NODES_MAX),
        default=None,
        help="AMQP port of the first node; without it that of before, which is "
        f"{BASE_PORT} at first. gRPC is 2000 above it, HTTP 10000, between nodes 1429.",
    )
    shards = click.option(
        "--shards",
        type=click.IntRange(1, SHARDS_MAX),
        default=None,
        help="Processes of each node; without it as many as before, which is one at first. Each "
        "further one listens for other nodes 100 above the port of the one before.",
    )
    return nodes(shards(base_port(command)))


@click.group()
def cluster() -> None:
    """Drive a cluster of real processes on this machine."""


@cluster.command()
@size_options
@data_option
def start(nodes: int, shards: int | None, base_port: int | None, data: Path) -> None:
    """Start the nodes that do not run, and wait until they serve clients."""
    local = LocalCluster(data, nodes, base_port or LocalCluster.port_of(data), shards or 0)
    local.start()
    local.wait_ready(READY_S_MAX)
    Console().print(status_table(local))


@cluster.command()
@data_option
def add(data: Path) -> None:
    """Start one more node, which joins the cluster, and wait until it serves clients."""
    local = LocalCluster.existing(data)
    node = local.add()
    local.wait_ready(READY_S_MAX)
    click.echo(f"{node.name} has joined")
    Console().print(status_table(local))


@cluster.command()
@data_option
def stop(data: Path) -> None:
    """Stop the nodes cleanly; their data stays."""
    local = LocalCluster.existing(data)
    killed = local.stop()
    if killed:
        raise click.ClickException(f"did not stop in time and were killed: {', '.join(killed)}")
    click.echo("stopped")


@cluster.command()
@data_option
def status(data: Path) -> None:
    """Show the nodes; exit code 1 unless all of them are ready."""
    local = LocalCluster.existing(data)
    Console().print(status_table(local))
    if any(node.process() is None or node.api.not_ready_reason() for node in local.nodes):
        raise click.exceptions.Exit(1)


def status_table(local: LocalCluster) -> Table:
    """Ask every node and lay out what it says; why one is not ready stands below."""
    table = Table(box=None, caption_justify="left")
    for title in ("node", "pid", "AMQP", "HTTP", "gRPC", "messages", "state"):
        table.add_column(title, no_wrap=True)
    reasons: list[str] = []
    for node in local.nodes:
        record = node.process()
        state, messages = "stopped", ""
        if record is not None:
            overview = node.api.overview()
            reason = node.api.not_ready_reason()
            if reason:
                reasons.append(f"{node.name}: {reason}")
            leads = overview is not None and overview["leader"] == node.name
            state = "not ready" if reason else "leader" if leads else "ready"
            held = overview["local"] if overview is not None else None
            messages = str(held["queue_totals"]["messages"]) if held is not None else "?"
        pid = str(record.pid) if record is not None else ""
        table.add_row(node.name, pid, node.amqp, node.http, node.grpc, messages, state)
    table.caption = "\n".join(reasons) or None
    return table
