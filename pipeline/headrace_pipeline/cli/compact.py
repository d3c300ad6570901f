"""`headrace-pipeline compact`."""

from __future__ import annotations

import click

from headrace_pipeline.cli.table import storage_option
from headrace_pipeline.jobs.compact import CompactReport, compact_table
from headrace_pipeline.limits import FILE_BYTES_TARGET
from headrace_pipeline.tables import open_stored
from headrace_pipeline.tables.partition import directory_of

WEEK_HOURS = 168


@click.command()
@click.option(
    "--table",
    required=True,
    envvar="HEADRACE_ARCHIVE_TABLE",
    show_envvar=True,
    help="folder of the table, or URI in an object store",
)
@storage_option
@click.option(
    "--target-bytes", default=FILE_BYTES_TARGET, help="size of files that are large enough"
)
@click.option(
    "--retention-hours",
    default=WEEK_HOURS,
    help="for which files stay that are no part of the table: for readers of older versions, and "
    "for batches that are being written",
)
@click.option("--dry-run", is_flag=True, help="only say what would be done")
def compact(
    table: str,
    storage_options_file: str | None,
    target_bytes: int,
    retention_hours: int,
    dry_run: bool,
) -> None:
    """Make large files of a table's small ones, and remove files that nobody needs.

    Jobs may go on writing meanwhile. Run it once a day, and one at a time.
    """
    sink = open_stored(table, storage_options_file=storage_options_file)
    report = compact_table(sink, target_bytes, retention_hours, dry_run)
    for line in lines(report):
        click.echo(line)


def lines(report: CompactReport) -> list[str]:
    """Return the result, for people."""
    said = []
    for each in report.compactions:
        where = directory_of(each.partition) or "the table"
        became = "would become fewer" if each.made is None else f"became {each.made}"
        said.append(f"{where}: {each.files} files of {each.byte_count} bytes {became}")
    removed = "would be removed" if report.dry_run else "were removed"
    said += [f"{path}: removed" for path in report.vacuumed] if not report.dry_run else []
    said.append(f"{len(report.vacuumed)} files that nobody needs {removed}")
    said.append(f"the table has {report.files} files of {report.byte_count} bytes")
    return said
