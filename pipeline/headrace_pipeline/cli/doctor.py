"""`headrace-pipeline doctor`: looks at what jobs need, and says what to do where it lacks."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime

import click

from headrace_client.blocking import Client
from headrace_pipeline.cli.connection import connection_options, session_options
from headrace_pipeline.jobs.doctor.broker import check_brokers, check_lease_group, check_log_group
from headrace_pipeline.jobs.doctor.check import Check, fail, ok, render
from headrace_pipeline.jobs.doctor.machine import (
    check_java,
    check_packages,
    check_place,
    installed_versions,
)
from headrace_pipeline.jobs.session import SessionSettings
from headrace_pipeline.options.connection import Connection, connect
from headrace_pipeline.schema.log import LOGS


@click.command()
@connection_options
@session_options("headrace-doctor")
@click.option("--table", multiple=True, metavar="PATH", help="a table's place; may be repeated")
@click.option("--checkpoint", metavar="PATH", help="the place of checkpoints")
@click.option("--queue", help="queue whose group is looked at, with --group")
@click.option("--log", "log", type=click.Choice(sorted(LOGS)), help="likewise, log")
@click.option("--group", default="headrace-pipeline", help="group of --queue or --log")
@click.option("--spark/--no-spark", "with_spark", default=True, help="whether Spark is started")
@click.option("--json", "as_json", is_flag=True, help="print a JSON array")
def doctor(
    connection: Connection,
    settings: SessionSettings,
    table: tuple[str, ...],
    checkpoint: str | None,
    queue: str | None,
    log: str | None,
    group: str,
    with_spark: bool,
    as_json: bool,
) -> int:
    """Look at this machine, Spark and the brokers, and change nothing.

    Each line says ok, warn or fail, and what to do. Ends with 1 if anything failed.
    """

    def groups(client: Client) -> list[Check]:
        now = datetime.now(UTC)
        found = [] if queue is None else [check_lease_group(client, queue, group, now)]
        return found + ([] if log is None else [check_log_group(client, log, group)])

    java = check_java(os.environ)
    places = [("table", each) for each in table]
    places += [("checkpoint", checkpoint)] if checkpoint is not None else []
    checks = [
        ok("python", platform.python_version()),
        java,
        *check_packages(installed_versions()),
        *(check_place(name, place) for name, place in places),
    ]
    if with_spark and java.state != "fail":
        checks += _spark(settings)  # before gRPC is used: Spark forks
    checks += check_brokers(connection, connect, groups)
    if as_json:
        click.echo(json.dumps([each._asdict() for each in checks], indent=2))
    else:
        click.echo("\n".join(render(checks)))
    return int(any(each.state == "fail" for each in checks))


def _spark(settings: SessionSettings) -> list[Check]:
    from headrace_pipeline.jobs.doctor.workers import check_workers
    from headrace_pipeline.jobs.session import session

    try:
        with session(settings) as spark:
            return check_workers(spark)
    except Exception as error:  # noqa: BLE001 - whatever Spark does not start for is what is asked
        first = str(error).strip().partition("\n")[0]
        return [fail("spark", f"does not start: {first}", "look at --master and at what Java said")]
