"""`headrace-pipeline replay`: archived messages are published again."""

from __future__ import annotations

import json
from typing import Any, Final

import click
from click.core import ParameterSource

from headrace_pipeline.cli.connection import connection_options, session_options
from headrace_pipeline.cli.instant import instant
from headrace_pipeline.cli.table import format_option, storage_option
from headrace_pipeline.jobs.replay import REFUSE, SKIP, Replay, Report, archive_rows, look, run
from headrace_pipeline.jobs.session import SessionSettings, session
from headrace_pipeline.options.connection import Connection
from headrace_pipeline.sinks.exchange.option import DROP, FAIL
from headrace_pipeline.tables.sink_table import Format
from headrace_pipeline.transforms.replay import Selection, Target

_OUTCOMES: Final = ("acked", "rejected", "expired", "dropped", "dead-lettered", "purged")


@click.command("replay")
@click.option(
    "--id", "replay_id", required=True, help="name of the replay: under it nothing goes twice"
)
@click.option(
    "--table",
    envvar="HEADRACE_ARCHIVE_TABLE",
    show_envvar=True,
    help="path or URI of a table of the job `run archive`",
)
@click.option(
    "--from-brokers",
    is_flag=True,
    help="read what brokers still keep, instead; a table that the environment names is left alone",
)
@format_option
@storage_option
@click.option("--queue", "queues", multiple=True, help="whose messages; may be repeated; else all")
@click.option("--from-vhost", help="whose queues; else that of --vhost")
@click.option("--outcome", "outcomes", multiple=True, type=click.Choice(_OUTCOMES))
@click.option("--since", callback=instant, metavar="TIME", help="settled then or later")
@click.option("--until", callback=instant, metavar="TIME", help="settled before")
@click.option("--where", default="", help="a condition in Spark's SQL on the archive's columns")
@click.option("--to-queue", help="publish to this queue")
@click.option("--to-exchange", help="publish to this exchange; else to each message's own")
@click.option("--to-routing-key", help="with this routing key; else with each message's own")
@click.option("--headers-only", type=click.Choice([REFUSE, SKIP]), default=REFUSE,
              help="rows whose payload was not archived")  # fmt: skip
@click.option("--on-refused", type=click.Choice([FAIL, DROP]), default=FAIL,
              help="messages that brokers refuse")  # fmt: skip
@click.option("--rate", type=click.FloatRange(min=0), default=0.0,
              help="messages a second, of all tasks; 0 for any number")  # fmt: skip
@click.option("--tasks", type=click.IntRange(min=0), default=0,
              help="that publish at once; 0 for as many as there are cores")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="say what would be published, and publish nothing")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@session_options("headrace replay")
@connection_options
def replay(
    connection: Connection, settings: SessionSettings, dry_run: bool, output: str, **given: Any
) -> None:
    """Publish archived messages again, with all their properties.

    Who runs it again with the same --id, the same selection and the same target publishes what has
    not come so far, and nothing twice: brokers know each message by its index in the archive, as
    long as they remember the replay (x-publisher-retention of the queue, a week).
    """
    storage = given.pop("storage_options_file")
    table, form = _source(given)
    wanted = _replay(connection, given)
    with session(settings) as spark:
        rows = archive_rows(spark, wanted, table, form, storage)
        report = look(rows, wanted) if dry_run else run(rows, wanted)
    click.echo(_json(report) if output == "json" else _text(report, dry_run, wanted))


def _source(given: dict[str, Any]) -> tuple[str | None, Format]:
    """Take where rows are read: a table, or None for the brokers."""
    table, brokers, form = given.pop("table"), given.pop("from_brokers"), given.pop("form")
    source = click.get_current_context().get_parameter_source("table")
    if brokers and source is ParameterSource.ENVIRONMENT:
        table = None
    if (table is None) != brokers:
        raise click.UsageError("give either --table or --from-brokers")
    return table, form


def _replay(connection: Connection, given: dict[str, Any]) -> Replay:
    queue, exchange = given["to_queue"], given["to_exchange"]
    key = given["to_routing_key"]
    if queue is not None:
        if exchange is not None or key is not None:
            raise click.UsageError("--to-queue goes without --to-exchange and --to-routing-key")
        exchange, key = "", queue
    selection = Selection(
        given["from_vhost"] or connection.vhost,
        tuple(sorted(given["queues"])),
        tuple(sorted(given["outcomes"])),
        given["since"],
        given["until"],
        given["where"],
    )
    return Replay(
        given["replay_id"],
        connection,
        selection,
        Target(exchange, key),
        given["headers_only"],
        given["on_refused"],
        given["rate"],
        given["tasks"],
    )


def _json(report: Report) -> str:
    found = {
        "selected": report.selected,
        "published": report.published,
        "octets": report.byte_count,
        "refused": report.refused,
        "skipped": report.skipped,
        "resent": report.resent,
        "refused_rows": report.named,
        "counts": [each._asdict() for each in report.counts],
        "samples": [
            each._asdict() | {"payload": each.payload.decode(errors="replace")}
            for each in report.samples
        ],
    }
    return json.dumps(found, indent=2)


def _text(report: Report, dry_run: bool, wanted: Replay) -> str:
    lines = [
        f"{each.vhost}  {each.queue}  {each.outcome}: "
        f"{each.messages} messages, {each.byte_count} bytes"
        + (f", {each.headers_only} without payload" if each.headers_only else "")
        for each in report.counts
    ]
    if dry_run:
        lines += [
            f"would publish {each.archive_index} of {each.queue} to exchange {each.exchange!r}, "
            f"routing key {each.routing_key!r}: {each.payload_bytes} bytes, {each.payload!r}"
            for each in report.samples
        ]
        if report.skipped and wanted.headers_only == REFUSE:
            lines.append(f"{report.skipped} have no payload: without --headers-only skip it fails")
        would = report.selected - report.skipped
        lines.append(f"{would} messages would be published; nothing was")
        return "\n".join(lines)
    lines += [f"refused: {each}" for each in report.named]
    skipped = f", {report.skipped} without payload were skipped" if report.skipped else ""
    refused = f", {report.refused} were refused" if report.refused else ""
    lines.append(f"{report.published} messages are in their queues{skipped}{refused}")
    return "\n".join(lines)
