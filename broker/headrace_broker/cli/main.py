"""The command group and the commands that concern one node."""

from __future__ import annotations

import platform

import click

from headrace_broker import build_info
from headrace_broker.cli.cluster import cluster
from headrace_broker.cli.flow import flow
from headrace_broker.cli.log import log
from headrace_broker.cli.queue import queue
from headrace_broker.cli.rabbitmqctl.main import group as rabbitmqctl
from headrace_broker.cli.run import run
from headrace_broker.cli.serve import serve


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


main.add_command(serve)
main.add_command(cluster)
main.add_command(run)
main.add_command(log)
main.add_command(queue)
main.add_command(flow)
main.add_command(rabbitmqctl, "ctl")
