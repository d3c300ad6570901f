"""Options of commands about how tables are stored; one place for their names and their help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def format_option(command: Command) -> Command:
    """Add --format; the command gets `form`."""
    option = click.option(
        "--format",
        "form",
        type=click.Choice(["delta", "parquet"]),
        default="delta",
        help="of tables",
    )
    return option(command)


def storage_option(command: Command) -> Command:
    """Add --storage-options-file; the command gets `storage_options_file`, None for none."""
    option = click.option(
        "--storage-options-file",
        metavar="FILE",
        help="JSON object with the options of the tables' object store",
    )
    return option(command)
