"""`headrace-pipeline run archive`."""

from __future__ import annotations

from typing import Any

import click

from headrace_pipeline.cli.connection import connection_options, session_options
from headrace_pipeline.cli.table import format_option, storage_option
from headrace_pipeline.jobs.archive import ArchiveSettings, run_archive
from headrace_pipeline.jobs.session import SessionSettings, session
from headrace_pipeline.limits import ARCHIVE_ROWS_PER_TRIGGER
from headrace_pipeline.options.connection import Connection


@click.command()
@click.option(
    "--table",
    required=True,
    envvar="HEADRACE_ARCHIVE_TABLE",
    show_envvar=True,
    help="folder of the table of messages, or URI in an object store",
)
@click.option("--events-table", help="the same for what happened to queues; not written without")
@click.option(
    "--checkpoint",
    required=True,
    envvar="HEADRACE_CHECKPOINT",
    show_envvar=True,
    help="folder that says how far the job is; it belongs to the tables and must outlive the job",
)
@format_option
@storage_option
@click.option("--queue", "queues", default="*", help="names of queues with * and ?, between commas")
@click.option("--group", default="archive", help="name by which brokers know how far the job is")
@click.option(
    "--every", default=5.0, type=click.FloatRange(0.01, 1440), help="minutes between batches"
)
@click.option("--once", is_flag=True, help="end when all is written that there is now")
@click.option(
    "--rows-per-batch",
    "rows_max",
    default=ARCHIVE_ROWS_PER_TRIGGER,
    type=click.IntRange(1, 100_000_000),
    help="at most; small batches make small files",
)
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    "fails_on_data_loss",
    default=True,
    help="whether to end where brokers have dropped rows unread, or go on with a warning",
)
@session_options("headrace-archive")
@connection_options
def archive(
    connection: Connection,
    settings: SessionSettings,
    form: Any,
    every: float,
    once: bool,
    **given: Any,
) -> None:
    """Write settled messages into a table, each once.

    Queues have archives by policy: archive=full, or archive=headers without bodies. The user needs
    the permission to read these queues, and for --events-table the tag monitoring.
    """
    minutes = None if once else every
    told = ArchiveSettings(connection, format=form, every_minutes=minutes, **given)
    with session(settings) as spark:
        run_archive(spark, told)
