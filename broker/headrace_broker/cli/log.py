"""`headrace log`: look into the log in a node's data directory without changing it."""

from __future__ import annotations

from pathlib import Path

import click

from headrace_raftlog.storage import inspect

directory_argument = click.argument(
    "directory", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


@click.group()
def log() -> None:
    """Verify or dump the log in a node's data directory; nothing is changed."""


@log.command()
@directory_argument
def verify(directory: Path) -> None:
    """Check every byte; exit code 1 when a node would refuse to start with it."""
    try:
        report = inspect.verify(str(directory))
    except OSError as error:
        raise click.ClickException(str(error)) from None
    click.echo(
        f"{report.segments} segments, {report.batches} batches, {report.records} records of "
        f"{report.groups} groups, {report.data_bytes} bytes"
    )
    if report.torn is not None:
        torn = report.torn
        click.echo(
            f"{torn.path}: byte {torn.offset}: {torn.reason}. This is a write that a crash cut "
            "off; nothing in it was acknowledged, and the next start cuts it."
        )
    for damage in report.damaged:
        click.echo(f"{damage.path}: DAMAGED at byte {damage.offset}: {damage.reason}")
    if not report.intact:
        raise click.ClickException(
            "the node would refuse to start. With the other members alive, move the data "
            "directory away and let the node join again as a new member."
        )
    if report.segments == 0:
        raise click.ClickException(f"{directory} holds no log; give the node's data directory")
    click.echo("intact")


@log.command()
@directory_argument
def dump(directory: Path) -> None:
    """Print every segment, batch and record with its byte offset."""
    try:
        for line in inspect.dump(str(directory)):
            click.echo(line)
    except OSError as error:
        raise click.ClickException(str(error)) from None
