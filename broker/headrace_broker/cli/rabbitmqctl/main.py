"""The entry point `rabbitmqctl`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from headrace_broker.cli.rabbitmqctl import change, listing, operation, replicas, watermark
from headrace_broker.cli.rabbitmqctl.command import group
from headrace_broker.cli.rabbitmqctl.session import EX_USAGE

__all__ = ["group", "main", "run"]

# To import them is to add their commands.
COMMAND_MODULES = (change, listing, operation, replicas, watermark)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    try:
        group.main(arguments, prog_name="rabbitmqctl", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return EX_USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.Abort:
        return 130
    return 0


def main() -> None:
    """Run the process's command line."""
    sys.exit(run())
