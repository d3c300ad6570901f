"""`headrace log`: look into a node's replicated log, and say how much it writes to its own."""

from __future__ import annotations

from pathlib import Path

import click

from headrace_broker.cli.salvage import salvage
from headrace_broker.cli.session.session import Session, SessionCommand
from headrace_raftlog.model.errors import CorruptLogError, IdentityError, UnknownVersionError
from headrace_raftlog.storage.inspection import inspect, usage

directory_argument = click.argument(
    "directory", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


@click.group()
def log() -> None:
    """Verify, dump or measure the log in a node's data directory; set what it writes to its own."""


@log.command()
@directory_argument
def verify(directory: Path) -> None:
    """Check every byte; exit code 1 when a node would not serve all of it."""
    try:
        report = inspect.verify(str(directory))
    except (OSError, IdentityError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(
        f"{report.segments} segments, {report.batches} batches, {report.records} records of "
        f"{report.groups} groups, {report.data_bytes} bytes"
    )
    if report.torn is not None:
        torn = report.torn
        line = f"{torn.path}: byte {torn.offset}: {torn.reason}"
        if not report.ends_early:
            line += (
                ". The log ends there, as after a write that a crash cut off: the directory "
                "remembers nothing later to be synced, and the next start cuts it"
            )
        click.echo(f"{line}.")
    for damage in report.damaged:
        click.echo(f"{damage.path}: DAMAGED at byte {damage.offset}: {damage.reason}")
    for group, indexes in sorted(report.lost.items()):
        click.echo(f"group {group}: entries {', '.join(map(str, indexes))} are not intact")
    for group, reason in sorted(report.quarantined.items()):
        click.echo(f"group {group} is quarantined: {reason}")
    if report.refused:
        raise click.ClickException(
            "the node would not start with this log. Where another node says that the cluster "
            "works, it sets it aside and is rebuilt; 'headrace log salvage' writes out what is "
            "intact."
        )
    if report.ends_early:
        raise click.ClickException(
            f"{report.ends_early}. The next start sets these data aside, and the node gets "
            "everything from the other nodes as a new member; without other nodes it goes on with "
            "what is left."
        )
    if report.lost and not report.quarantined:
        raise click.ClickException(
            "the node would start, and fetch these entries from the other members of their groups "
            "before it takes part in them."
        )
    if report.quarantined:
        raise click.ClickException(
            "the node would start without these groups and fetch them from their other members."
        )
    if report.damaged:
        raise click.ClickException("what is damaged is not needed any more; the node would start.")
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
    except (OSError, UnknownVersionError) as error:
        raise click.ClickException(str(error)) from None


@log.command()
@directory_argument
@click.option("--top", default=20, show_default=True, help="Groups to list, largest first.")
def stat(directory: Path, top: int) -> None:
    """Print what the space is used for: per file, per group and in total."""
    try:
        used = usage.measure(str(directory), top)
    except (OSError, CorruptLogError, UnknownVersionError) as error:
        raise click.ClickException(str(error)) from None
    click.echo("file  bytes  live  dead  flags")
    for file in used.files:
        flags = " ".join(file.flags)
        click.echo(
            f"{file.path}  {file.size}  {file.live}  {file.size - file.live}  {flags}".rstrip()
        )
    click.echo(
        "group  entries  live-before-snapshot  bytes  snapshot-index  snapshot-bytes  last-term"
    )
    for group in used.groups:
        click.echo(
            f"{group.group}  {group.entries}  {group.kept}  {group.data_bytes}  "
            f"{group.snapshot_index}  {group.snapshot_bytes}  {group.last_term}"
        )
    for number, reason in sorted(used.quarantined.items()):
        click.echo(f"group {number} is quarantined: {reason}")
    click.echo(
        f"{len(used.files)} files, {used.group_count} groups, {used.size} bytes, "
        f"{used.live} live, at most {used.bound} wanted (twice the live ones and two files)"
    )


@log.command(cls=SessionCommand)
@click.argument(
    "wanted",
    metavar="[LEVEL]",
    required=False,
    type=click.Choice(["debug", "info", "warning", "error", "critical"]),
)
@click.option(
    "--logger",
    metavar="NAME",
    help="Set it for one logger only, such as headrace.raft; docs/logging.md lists them.",
)
def level(session: Session, wanted: str | None, logger: str | None) -> None:
    """Print the level of the lines that a running node writes, or set it until the node stops.

    Without --logger it is set for all loggers, those with a level of their own included.
    """
    if wanted is None:
        found = session.get("/api/log-level")
        own = found.get("loggers", {})
        found["loggers"] = ", ".join(f"{name} {own[name]}" for name in sorted(own))
        session.print_rows([found], {"node": "node", "level": "level", "loggers": "loggers"})
        return
    body = {"level": wanted} if logger is None else {"level": wanted, "logger": logger}
    session.request("PUT", "/api/log-level", body)
    who = "the node" if logger is None else f"logger '{logger}'"
    session.done(f"{who} writes lines of level '{wanted}' and above")


log.add_command(salvage)
