"""Replays archived messages: publishes rows of an archive again, each once for a name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.jobs.session import refuse_speculation
from headrace_pipeline.limits import (
    REPLAY_ID_BYTES_MAX,
    REPLAY_SAMPLE_BYTES_MAX,
    REPLAY_SAMPLES_MAX,
    SINK_REFUSED_NAMED_MAX,
    SINK_UNCONFIRMED_BYTES,
    SINK_UNCONFIRMED_MESSAGES,
)
from headrace_pipeline.options.connection import Connection
from headrace_pipeline.schema.archive import ARCHIVE_MESSAGES
from headrace_pipeline.sinks.exchange.archived import RESULT, ReplayTask, digest_of, publish_blocks
from headrace_pipeline.sinks.exchange.option import FAIL, SinkOptions
from headrace_pipeline.tables import open_table
from headrace_pipeline.tables.sink_table import Format
from headrace_pipeline.transforms.archive import bucket_of
from headrace_pipeline.transforms.replay import (
    Selection,
    Target,
    has_no_payload,
    in_order,
    messages,
    select,
    summary,
)

REFUSE: Final = "refuse"
SKIP: Final = "skip"
_GIVE_UP_SECONDS: Final = 120.0


class Replay(NamedTuple):
    """A replay."""

    name: str  # of the replay: under the same one nothing is published twice
    connection: Connection  # to the brokers
    selection: Selection  # of rows
    target: Target = Target()  # where they go
    headers_only: str = REFUSE  # REFUSE or SKIP rows whose payload was not archived
    on_refused: str = FAIL  # FAIL or DROP what brokers refuse
    rate: float = 0.0  # messages a second of all tasks, 0 for any
    tasks: int = 0  # that publish; 0 for as many as run at once


class Sample(NamedTuple):
    """A message that would be published; payload and headers are cut."""

    queue: str
    archive_index: int
    exchange: str
    routing_key: str
    payload_bytes: int
    headers: str
    payload: bytes


class Count(NamedTuple):
    """Count of rows of a queue by outcome."""

    vhost: str
    queue: str
    outcome: str
    messages: int
    byte_count: int
    headers_only: int


@dataclass
class Report:
    """Result of a replay, or of a dry run."""

    counts: list[Count]  # of what is selected
    samples: list[Sample] = field(default_factory=list)  # of a dry run
    # messages that are in their queues: from this replay, or from an earlier one of the same name
    published: int = 0
    byte_count: int = 0  # of their payloads
    refused: int = 0  # messages that are not
    skipped: int = 0  # rows without payload
    resent: int = 0  # messages that were sent again after a stream was lost
    named: list[str] = field(default_factory=list)  # some of the refused

    @property
    def selected(self) -> int:
        """Rows that are selected."""
        return sum(each.messages for each in self.counts)


def archive_rows(
    spark: SparkSession,
    replay: Replay,
    table: str | None,
    kind: Format = "delta",
    storage_options_file: str | None = None,
) -> DataFrame:
    """Return rows of an archive, among them all that a replay selects.

    Args:
        spark: which reads them.
        replay: its selection's vhost and queues leave out what need not be read.
        table: path or URI of what the job `archive` has written; None for what brokers still keep.
        kind: of the table.
        storage_options_file: with options of the table's object store.

    Raises:
        PipelineError: there is no such table.
    """
    selection = replay.selection
    if table is None:
        reader = spark.read.format("headrace_log").options(**replay.connection.options())
        reader = reader.option("vhost", selection.vhost).option("log", "archive")
        queues = ",".join(selection.queues) or "*"
        return reader.option("queue", queues).option("includeHeaders", "true").load()
    found = open_table(table, ARCHIVE_MESSAGES, kind, storage_options_file=storage_options_file)
    if not found.exists():
        raise PipelineError(f"{table} is no {kind} table; `run archive` makes one")
    where: list[tuple[str, str, Any]] = [("vhost", "=", selection.vhost)]
    if selection.queues:
        buckets = {bucket_of(selection.vhost, queue) for queue in selection.queues}
        where += [("bucket", "in", sorted(buckets)), ("queue", "in", selection.queues)]
    return found.read(spark, where=where)


def look(rows: DataFrame, replay: Replay) -> Report:
    """Say what a replay would publish, and publish nothing.

    Args:
        rows: of an archive, with the columns of `schema.log.ARCHIVE`.
        replay: what is to be replayed.

    Raises:
        OptionError: the condition is none.
    """
    chosen = _chosen(rows, replay)
    report = Report([Count(*each) for each in summary(chosen).collect()])
    report.skipped = sum(each.headers_only for each in report.counts)
    report.samples = list(_samples(chosen.where(~has_no_payload()), replay.target))
    return report


def run(rows: DataFrame, replay: Replay) -> Report:
    """Publish rows of an archive, and wait until they are safe.

    A replay that failed, or was killed, is run again under its name.

    Args:
        rows: as in `look`; a shard's rows at one index are the same in every run.
        replay: what is to be replayed.

    Raises:
        OptionError: the name or the condition are none, or Spark speculates.
        PipelineError: payloads of rows were not archived, and none is to be skipped.
        PySparkException: rows were refused, or the brokers cannot be reached.
    """
    spark = rows.sparkSession
    _check(spark, replay)
    chosen = _chosen(rows, replay)
    report = Report([Count(*each) for each in summary(chosen).collect()])
    report.skipped = sum(each.headers_only for each in report.counts)
    if report.skipped and replay.headers_only == REFUSE:
        raise PipelineError(_without_payload(report))
    tasks = replay.tasks or spark.sparkContext.defaultParallelism
    whole = chosen.where(~has_no_payload())
    ordered = in_order(messages(whole, replay.target), tasks)
    done = ordered.mapInArrow(partial(publish_blocks, _task(replay, tasks)), RESULT)
    for each in done.collect():
        _add(report, each)
    return report


def _check(spark: SparkSession, replay: Replay) -> None:
    byte_count = len(replay.name.encode())
    if not 1 <= byte_count <= REPLAY_ID_BYTES_MAX:
        raise OptionError("id", f"must have 1 to {REPLAY_ID_BYTES_MAX} bytes, not {byte_count}")
    conf = {"spark.speculation": spark.conf.get("spark.speculation", "false") or "false"}
    refuse_speculation(conf, "a replay")


def _chosen(rows: DataFrame, replay: Replay) -> DataFrame:
    try:
        return select(rows, replay.selection)
    except (AnalysisException, ParseException) as error:
        first = str(error).strip().splitlines()[0]
        raise OptionError("where", f"is no condition on the archive's columns: {first}") from None


def _task(replay: Replay, tasks: int) -> ReplayTask:
    options = SinkOptions(
        connection=replay.connection,
        exchange="",
        routing_key="",
        mandatory=True,
        confirms=True,
        on_refused=replay.on_refused,
        persistent=True,
        unconfirmed_max=SINK_UNCONFIRMED_MESSAGES,
        unconfirmed_bytes_max=SINK_UNCONFIRMED_BYTES,
        publisher_id="",
        round=0,
        give_up_after_s=_GIVE_UP_SECONDS,
    )
    digest = digest_of(*replay.selection, *replay.target, replay.connection.vhost)
    return ReplayTask(options, f"replay:{replay.name}", digest, replay.rate / tasks)


def _samples(rows: DataFrame, target: Target) -> Iterator[Sample]:
    cut = REPLAY_SAMPLE_BYTES_MAX
    found = rows.limit(REPLAY_SAMPLES_MAX).select(
        "queue",
        "archive_index",
        "exchange",
        "routing_key",
        "payload_bytes",
        F.substring(F.coalesce("headers", F.lit("")), 1, cut),
        F.substring(F.coalesce("payload", F.lit(b"")), 1, cut),
    )
    for row in found.collect():
        queue, index, exchange, key, byte_count, headers, payload = row
        exchange = exchange if target.exchange is None else target.exchange
        key = key if target.routing_key is None else target.routing_key
        yield Sample(queue, index, exchange, key, byte_count, headers, bytes(payload))


def _without_payload(report: Report) -> str:
    queues = sorted({each.queue for each in report.counts if each.headers_only})
    return (
        f"{report.skipped} of {report.selected} rows have no payload, for it was not archived "
        f"(archive: headers) in {', '.join(queues)}: select others, or have them skipped"
    )


def _add(report: Report, done: SparkRow) -> None:
    report.published += done.published
    report.byte_count += done.octets
    report.refused += done.refused
    report.resent += done.resent
    named: Sequence[Any] = done.named.splitlines()
    report.named += named[: max(SINK_REFUSED_NAMED_MAX - len(report.named), 0)]
