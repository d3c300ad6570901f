"""`headrace-pipeline run flow`."""

from __future__ import annotations

from typing import Any

import click

from headrace_pipeline.cli.connection import connection_options, session_options
from headrace_pipeline.cli.table import format_option, storage_option
from headrace_pipeline.jobs.flow import FlowJob, FlowSettings
from headrace_pipeline.jobs.flow_analysis import AdviceTerms
from headrace_pipeline.jobs.flow_tables import Place
from headrace_pipeline.jobs.session import SessionSettings, session
from headrace_pipeline.options.connection import Connection
from headrace_pipeline.transforms.advice_rule import DRAIN_S, VALID_S

DAY_S = 86_400  # the broker takes no advice that holds for longer


@click.command()
@click.option(
    "--tables",
    required=True,
    envvar="HEADRACE_TABLES",
    show_envvar=True,
    help="folder of the tables, or URI in an object store",
)
@click.option(
    "--checkpoint",
    required=True,
    envvar="HEADRACE_CHECKPOINT",
    show_envvar=True,
    help="folder that says how far the job is; it must outlive the process",
)
@format_option
@storage_option
@click.option(
    "--group", default="headrace-flow", help="name by which brokers know how far the job is"
)
@click.option(
    "--starting",
    type=click.Choice(["earliest", "latest"]),
    default="latest",
    help="where to begin without a checkpoint",
)
@click.option("--every", default=20.0, type=click.FloatRange(1, 600), help="seconds between rounds")
@click.option("--once", is_flag=True, help="end after one round, in which all is made that can be")
@click.option(
    "--advice/--no-advice",
    "advises",
    default=True,
    help="whether brokers are told what consumers are advised",
)
@click.option(
    "--drain",
    default=DRAIN_S,
    type=click.IntRange(10, DAY_S),
    help="seconds in which advised consumers should be through with a backlog",
)
@click.option(
    "--valid",
    default=VALID_S,
    type=click.IntRange(120, DAY_S // 2),
    help="seconds after which advice lapses unless it is renewed",
)
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    "fails_on_data_loss",
    default=False,
    help="whether to end where brokers have dropped telemetry unread, or go on with a warning",
)
@session_options("headrace-flow")
@connection_options
def flow(
    connection: Connection,
    settings: SessionSettings,
    tables: str,
    form: Any,
    storage_options_file: str | None,
    every: float,
    once: bool,
    drain: int,
    valid: int,
    **given: Any,
) -> None:
    """Make windows, blame, bottleneck classes and advice of brokers' telemetry.

    The user needs the tags monitoring and, for advice, policymaker.
    """
    place, terms = Place(tables, form, storage_options_file), AdviceTerms(drain, valid)
    told = FlowSettings(connection, place, every_s=every, terms=terms, **given)
    with session(settings) as spark:
        FlowJob(spark, told).run(once)
