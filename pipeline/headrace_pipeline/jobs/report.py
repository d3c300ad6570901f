"""The report: from tables of the analysis, or right from brokers, to a page in a file."""

from __future__ import annotations

import csv
import itertools
import math
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, NamedTuple

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.limits import REPORT_KNEES_MAX, REPORT_QUEUES_MAX, REPORT_ROWS_MAX
from headrace_pipeline.options.connection import Connection
from headrace_pipeline.report.frames import Frames, Span
from headrace_pipeline.report.page import render
from headrace_pipeline.schema.analysis import (
    ACCOUNT_WINDOWS,
    BLAME,
    BOTTLENECKS,
    CAPACITY,
    CONSUMER_ADVICE,
    LONG_S,
    NODE_WINDOWS,
    QUEUE_WINDOWS,
)
from headrace_pipeline.schema.column import Table
from headrace_pipeline.schema.log import DEBT_EDGES, FLOW_EVENTS, FLOW_SAMPLES
from headrace_pipeline.tables import Where, open_table
from headrace_pipeline.transforms.blame import blame
from headrace_pipeline.transforms.bottleneck import bottlenecks
from headrace_pipeline.transforms.capacity import capacity
from headrace_pipeline.transforms.condense import condense, condense_advice, condense_bottlenecks
from headrace_pipeline.transforms.consumer_advice import HISTORY_S, consumer_advice
from headrace_pipeline.transforms.cost import CARRIED_S
from headrace_pipeline.transforms.episodes import EPISODE_S_MAX
from headrace_pipeline.transforms.windows import (
    account_windows,
    node_windows,
    queue_windows,
    with_alarms,
    with_saturation,
)

_NEEDED: Final = (QUEUE_WINDOWS, NODE_WINDOWS)  # without these there is no report


class TablesAt(NamedTuple):
    """Location of the job `flow`'s tables."""

    place: str  # path or address below which tables lie by their names
    form: Literal["delta", "parquet"] = "delta"
    options_file: str | None = None  # with the options of an object store


class Analysis(NamedTuple):
    """Tables of the analysis, of minutes."""

    queues: DataFrame  # QUEUE_WINDOWS, from before the span on, for limits and trends
    accounts: DataFrame  # ACCOUNT_WINDOWS
    nodes: DataFrame  # NODE_WINDOWS, from before the span on
    blame: DataFrame  # BLAME
    bottlenecks: DataFrame  # BOTTLENECKS
    advice: DataFrame  # CONSUMER_ADVICE


def read_tables(spark: SparkSession, at: TablesAt, span: Span, history: timedelta) -> Analysis:
    """Return what the job `flow` has written.

    Args:
        spark: which reads.
        at: where tables are.
        span: of the report.
        history: before its end, for limits and trends.

    Raises:
        PipelineError: there is no such table.
    """
    place = at.place.rstrip("/")

    def read(table: Table, start: datetime) -> DataFrame:
        found = open_table(
            f"{place}/{table.name}", table, at.form, storage_options_file=at.options_file
        )
        if table in _NEEDED and not found.exists():
            raise PipelineError(
                f"there is no table {table.name} below {place}: `headrace-pipeline run flow` makes "
                "it; is the path right, and the --format?"
            )
        conditions = (
            Where("day", ">=", start.date()),
            Where("day", "<=", span.end.date()),
            Where("window_start", ">=", start),
            Where("window_start", "<", span.end),
        )
        return found.read(spark, where=conditions).where(fn.col("window_s") == LONG_S)

    before = min(span.start, span.end - history)
    return Analysis(
        read(QUEUE_WINDOWS, before),
        read(ACCOUNT_WINDOWS, span.start),
        read(NODE_WINDOWS, before),
        read(BLAME, span.start),
        read(BOTTLENECKS, span.start),
        read(CONSUMER_ADVICE, span.start),
    )


def read_brokers(spark: SparkSession, connection: Connection, span: Span) -> Analysis:
    """Return the analysis of what brokers have; they keep some hours, and are not changed."""

    def read(table: Table, before_s: int) -> DataFrame:
        since = span.start - timedelta(seconds=before_s)
        reader = spark.read.format("headrace_log").options(**connection.options())
        reader = reader.option("log", table.name).option("failOnDataLoss", "false")
        rows = reader.option("startingTimestamp", str(round(since.timestamp() * 1000))).load()
        return rows.where((fn.col("at") >= fn.lit(since)) & (fn.col("at") < fn.lit(span.end)))

    samples = read(FLOW_SAMPLES, HISTORY_S).persist()
    events, edges = (
        read(FLOW_EVENTS, EPISODE_S_MAX).persist(),
        read(DEBT_EDGES, CARRIED_S).persist(),
    )
    told = with_saturation(queue_windows(samples, events, LONG_S), events).persist()
    nodes = with_alarms(node_windows(samples, LONG_S), events).persist()
    brought = account_windows(edges, samples, LONG_S).persist()
    slow = bottlenecks(told, nodes).persist()
    none = spark.createDataFrame([], CONSUMER_ADVICE.spark())
    advice = consumer_advice(told, slow, none, span.start)
    return Analysis(told, brought, nodes, blame(told, brought), slow, advice)


def collect(analysis: Analysis, span: Span, knees: DataFrame | None = None) -> Frames:
    """Return the frames of a report.

    Args:
        analysis: tables of minutes.
        span: of the report.
        knees: limits that were measured otherwise; see `transforms.capacity`.

    Raises:
        PipelineError: there are more rows than REPORT_ROWS_MAX.
    """

    def inside(rows: DataFrame) -> DataFrame:
        at = fn.col("window_start")
        return rows.where((at >= fn.lit(span.start)) & (at < fn.lit(span.end)))

    step = span.step_s
    queues = _frame(condense(inside(analysis.queues), QUEUE_WINDOWS, step), QUEUE_WINDOWS)
    slow = condense_bottlenecks(inside(analysis.bottlenecks), step)
    return Frames(
        queues,
        _frame(
            condense(_at(inside(analysis.accounts), _most_blocked(queues)), ACCOUNT_WINDOWS, step),
            ACCOUNT_WINDOWS,
        ),
        _frame(condense(inside(analysis.nodes), NODE_WINDOWS, step), NODE_WINDOWS),
        _frame(condense(inside(analysis.blame), BLAME, step), BLAME),
        _frame(slow, BOTTLENECKS),
        _frame(condense_advice(inside(analysis.advice), step), CONSUMER_ADVICE),
        _frame(capacity(analysis.nodes, analysis.queues, knees), CAPACITY),
    )


def _most_blocked(queues: pd.DataFrame) -> list[tuple[str, str]]:
    sums = queues.groupby(["vhost", "queue"])["blocked_ms"].sum()
    return list(sums[sums > 0].nlargest(REPORT_QUEUES_MAX).index)


def _at(accounts: DataFrame, queues: Iterable[tuple[str, str]]) -> DataFrame:
    """Return the rows of some queues: of others a report does not say who brought what."""
    wanted = fn.lit(False)
    for vhost, queue in queues:
        wanted |= (fn.col("vhost") == fn.lit(vhost)) & (fn.col("queue") == fn.lit(queue))
    return accounts.where(wanted)


def _frame(rows: DataFrame, table: Table) -> pd.DataFrame:
    found = rows.limit(REPORT_ROWS_MAX + 1).toArrow().select(list(table.names))
    if found.num_rows > REPORT_ROWS_MAX:
        raise PipelineError(
            f"{table.name} has more than {REPORT_ROWS_MAX:,} rows in this time: take a shorter one"
        )
    return found.cast(table.arrow()).to_pandas()


def read_knees(path: Path) -> list[tuple[str, str | None, str, float]]:
    """Return limits that were measured: kind, vhost (None for nodes), name, messages per second.

    Args:
        path: of a CSV file with the head `kind,vhost,name,knee`.

    Raises:
        OptionError: it cannot be read, or a line is wrong.
    """
    found: list[tuple[str, str | None, str, float]] = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = itertools.islice(csv.DictReader(file), REPORT_KNEES_MAX)
            found.extend(_knee(line) for line in lines)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise OptionError("knees", f"{path} cannot be read: {error}") from None
    except (KeyError, TypeError, ValueError):
        rule = "must be lines of kind,vhost,name,knee with kind node or queue and knee above 0"
        raise OptionError("knees", f"{path}: {rule}; line {len(found) + 2} is not") from None
    return found


def _knee(line: Mapping[str, str]) -> tuple[str, str | None, str, float]:
    kind, vhost, name, knee = (line[key] for key in ("kind", "vhost", "name", "knee"))
    if kind not in ("node", "queue") or not name or not 0 < float(knee) < math.inf:
        raise ValueError
    return kind, vhost if kind == "queue" else None, name, float(knee)


def knee_frame(spark: SparkSession, knees: list[tuple[str, str | None, str, float]]) -> DataFrame:
    """Return measured limits as `transforms.capacity` takes them."""
    return spark.createDataFrame(knees, "kind string, vhost string, name string, knee double")


def write_report(frames: Frames, span: Span, source: str, out: Path) -> int:
    """Write a page, all of it or nothing, and return its bytes.

    Args:
        frames: of `collect`.
        span: of the report.
        source: where rows came from, in words.
        out: the file; one that is there is replaced.

    Raises:
        OptionError: it cannot be written.
    """
    data = render(frames, span, datetime.now(UTC), source).encode()
    part = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        part.write_bytes(data)
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OptionError("out", f"{out} cannot be written: {error.strerror}") from None
    return len(data)
