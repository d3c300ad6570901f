"""`headrace-pipeline report`: bottlenecks, their causes, and capacity."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import click

from headrace_pipeline.cli.connection import connection_options, session_options
from headrace_pipeline.cli.instant import instant
from headrace_pipeline.cli.table import format_option, storage_option
from headrace_pipeline.jobs import report as job
from headrace_pipeline.jobs.session import SessionSettings, session
from headrace_pipeline.options.connection import Connection
from headrace_pipeline.report.frames import Span, span_of


@click.command()
@click.option(
    "--tables",
    metavar="PATH",
    help="path or address of what `run flow` writes; without it brokers are asked for what they "
    "still have",
)
@format_option
@storage_option
@click.option(
    "--from", "start", metavar="TIME", callback=instant, default="24h", help="in UTC, or an age"
)
@click.option("--to", "end", metavar="TIME", callback=instant, default="now", help="likewise")
@click.option(
    "--history-days",
    type=click.IntRange(1, 366),
    default=28,
    help="before the end, from which limits and trends are taken",
)
@click.option(
    "--knees",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="CSV file of limits that a benchmark has measured: kind,vhost,name,knee in messages/s",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default="report.html",
    envvar="HEADRACE_REPORT",
    show_envvar=True,
    help="the file",
)
@connection_options
@session_options("headrace report")
def report(
    tables: str | None,
    form: Literal["delta", "parquet"],
    storage_options_file: str | None,
    start: datetime,
    end: datetime,
    history_days: int,
    knees: Path | None,
    out: Path,
    connection: Connection,
    settings: SessionSettings,
) -> None:
    """Write a report of flow and capacity: one HTML page that needs nothing else.

    It says in words what was the bottleneck, who caused it and what to do, and shows load, blocked
    time and blame, bottlenecks, alarms, limits, advice, and how much of the time is known.
    """
    if end <= start:
        raise click.BadParameter("must be before --to", param_hint="--from")
    span = span_of(start, end)
    given = [] if knees is None else job.read_knees(knees)
    with session(settings) as spark:
        if tables is None:
            analysis = job.read_brokers(spark, connection, span)
            source = f"brokers at {connection.endpoints}"
        else:
            place = job.TablesAt(tables, form, storage_options_file)
            analysis = job.read_tables(spark, place, span, timedelta(days=history_days))
            source = tables
        frames = job.collect(analysis, span, job.knee_frame(spark, given) if given else None)
    byte_count = job.write_report(frames, span, source, out)
    click.echo(f"{out}: {byte_count / 1024:,.0f} KiB, {_said(span)}")


def _said(span: Span) -> str:
    return f"{span.start:%Y-%m-%d %H:%M} to {span.end:%Y-%m-%d %H:%M} UTC"
