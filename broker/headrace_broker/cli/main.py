"""The command group and the commands that concern one node."""

from __future__ import annotations

import platform

import click

from headrace_broker.cli.access import definitions, permission, policy, user
from headrace_broker.cli.backup.command import backup, restore
from headrace_broker.cli.clients import alarm, channel, connection, consumer
from headrace_broker.cli.cluster import cluster
from headrace_broker.cli.completion import completion
from headrace_broker.cli.flow import flow
from headrace_broker.cli.load.command import perf
from headrace_broker.cli.load.messages import consume, publish
from headrace_broker.cli.log import log
from headrace_broker.cli.node import node
from headrace_broker.cli.queue_members import queue
from headrace_broker.cli.rabbitmqctl.main import group as rabbitmqctl
from headrace_broker.cli.run import run
from headrace_broker.cli.serve import serve
from headrace_broker.cli.topology import binding, exchange, vhost
from headrace_broker.cli.upgrade import upgrade
from headrace_broker.model import build_info


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Headrace, a message broker whose flow control works."""


@main.command()
def version() -> None:
    """Print version, Python and whether the hot path is compiled."""
    compiled = "yes" if build_info.compiled() else "no (interpreted, several times slower)"
    click.echo(f"headrace {build_info.VERSION}")
    click.echo(f"python   {platform.python_version()} ({platform.python_implementation()})")
    click.echo(f"compiled {compiled}")


for command in (
    *(serve, run, cluster, node, upgrade, log, completion),
    *(vhost, exchange, queue, binding),
    *(user, permission, policy, definitions),
    *(connection, channel, consumer, alarm, flow),
    *(publish, consume, perf),
    *(backup, restore),
):
    main.add_command(command)
main.add_command(rabbitmqctl, "ctl")
