"""Steps of the job `flow`: minutes that are complete become windows, blame, bottlenecks, advice.

A step may be repeated: each table says up to which minute it has rows, in the commit that brought
them, and takes none twice. NODE_WINDOWS is written last and has rows of every minute, so what it
has is what all have.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial, reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headrace_pipeline.jobs.flow_tables import FlowTables, instant
from headrace_pipeline.limits import FLOW_STEP_MINUTES
from headrace_pipeline.schema.analysis import LONG_S, NODE_WINDOWS, WINDOWS_S
from headrace_pipeline.transforms.advice_rule import DRAIN_S, VALID_S
from headrace_pipeline.transforms.blame import blame
from headrace_pipeline.transforms.bottleneck import bottlenecks
from headrace_pipeline.transforms.consumer_advice import HISTORY_S, consumer_advice
from headrace_pipeline.transforms.cost import CARRIED_S
from headrace_pipeline.transforms.episodes import EPISODE_S_MAX
from headrace_pipeline.transforms.horizon import Told, complete_minutes, told
from headrace_pipeline.transforms.windows import (
    account_windows,
    node_windows,
    queue_windows,
    with_alarms,
    with_saturation,
)

log = logging.getLogger(__name__)


class AdviceTerms(NamedTuple):
    """Terms of advice."""

    drain_s: int = DRAIN_S  # seconds in which a backlog should be gone
    valid_s: int = VALID_S  # seconds for which advice holds


class FlowAnalysis:
    """Makes of landed telemetry what can be made."""

    def __init__(self, spark: SparkSession, tables: FlowTables, terms: AdviceTerms) -> None:
        self._spark = spark  # which does it
        self._tables = tables  # of the job
        self._terms = terms  # of advice

    def next_minutes(self) -> range:
        """Return the minutes that can be made now, FLOW_STEP_MINUTES at most.

        Logs must have landed just before: samples first.
        """
        since = self._tables.made(NODE_WINDOWS.name)
        at = instant(since) if since is not None else None
        rows = told(self._tables.landed("flow_samples", at)).collect()
        nodes = [Told(row["node"], row["first"], row["last"], row["landed"]) for row in rows]
        return complete_minutes(nodes, since, time.time())[:FLOW_STEP_MINUTES]

    def make(self, minutes: range) -> None:
        """Write all tables for some minutes.

        Raises:
            PipelineError: a table cannot be read or written.
        """
        tables = self._tables
        since, until = instant(minutes.start), instant(minutes.stop)
        events = tables.landed("flow_events", since - timedelta(seconds=EPISODE_S_MAX), until)
        edges = tables.landed("debt_edges", since, until)
        history = timedelta(seconds=HISTORY_S)
        with ExitStack() as stack:
            keep = partial(_keep, stack)
            samples = keep(tables.landed("flow_samples", since - history, until))
            queues = keep(_queues(samples, events, since - history))
            nodes = keep(_nodes(samples, events))
            new = fn.col("window_start") >= since
            recent = samples.where(fn.col("at") >= since)
            accounts = keep(_union([account_windows(edges, recent, each) for each in WINDOWS_S]))
            tables.write("account_windows", accounts, minutes)
            carried = tables.read("account_windows", since - timedelta(seconds=CARRIED_S), since)
            causes = accounts.unionByName(carried)
            tables.write("blame", blame(queues.where(new), causes), minutes)
            tables.write("queue_windows", queues.where(new), minutes)
            self._advise(minutes, queues, nodes)
            tables.write("node_windows", nodes.where(new), minutes)
        log.info("windows up to %s are written", until)

    def _advise(self, minutes: range, queues: DataFrame, nodes: DataFrame) -> None:
        """Write what held queues up, and what consumers are advised."""
        tables, terms = self._tables, self._terms
        is_minute = fn.col("window_s") == LONG_S
        by_minute = queues.where(is_minute)
        classes = bottlenecks(by_minute, nodes.where(is_minute))
        new = fn.col("window_start") >= instant(minutes.start)
        tables.write("bottlenecks", classes.where(new), minutes)
        first = max(minutes.start, tables.made("consumer_advice") or 0)
        if first >= minutes.stop:
            return
        at = instant(first)
        given = tables.read("consumer_advice", at - timedelta(seconds=2 * terms.valid_s), at)
        advised = consumer_advice(by_minute, classes, given, at, terms.drain_s, terms.valid_s)
        tables.write("consumer_advice", advised, range(first, minutes.stop))


def _queues(samples: DataFrame, events: DataFrame, since: datetime) -> DataFrame:
    letters = events.where(fn.col("at") >= since)
    by_length = [queue_windows(samples, letters, each) for each in WINDOWS_S]
    return with_saturation(_union(by_length), events)


def _nodes(samples: DataFrame, events: DataFrame) -> DataFrame:
    return with_alarms(_union([node_windows(samples, each) for each in WINDOWS_S]), events)


def _union(frames: list[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)


def _keep(stack: ExitStack, rows: DataFrame) -> DataFrame:
    """Cache rows for all who read them, until the step is over."""
    kept = rows.persist()
    stack.callback(kept.unpersist)
    return kept
