"""Throughput of the Spark pipeline: rows a second between brokers, tables and DataFrames.

    python bench/pipeline_bench.py [--rows 100000] [--rounds 3] [--base-port 20872] [--write]

One cluster and one Spark session of two threads (`local[2]`) on one machine. Each thing is done
`rounds` times after a warm-up, in turn with what needs no broker: Parquet files to nowhere, and
Spark's own rate source to nowhere. Queues and logs go into Delta tables, and to nowhere, so that
the cost of the table is seen apart. At last the same number of rows is read from a queue that grows
deeper and deeper. Processor time is that of Spark's processes (driver, JVM, Python
workers) and of the three nodes, for a row.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from peers import NODE_COUNT, Headrace, PeerError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from replication.figures import machine, processor_seconds, replace_section, table

from headrace_broker.cli.local_cluster import GRPC_OFFSET
from headrace_client.blocking import Client
from headrace_pipeline.jobs.session import SessionSettings, session
from headrace_pipeline.schema.column import Table
from headrace_pipeline.schema.log import ARCHIVE
from headrace_pipeline.schema.queue import QUEUE_MESSAGES
from headrace_pipeline.tables import open_table, query_id

BASE_PORT: Final = 20872
PAYLOAD_BYTES: Final = 150
THREADS: Final = 2
PARTITIONS: Final = (1, 2, 4)
DEPTHS: Final = (1, 4, 16)  # messages of the queue that is read, for each that is read
GROUP: Final = "bench"
LOOK_GROUP: Final = f"{GROUP} (batch)"  # that a batch read of `GROUP` leases by
PARQUET: Final = "Parquet to noop"
RATE: Final = "rate source to noop"
SETTLE_SECONDS: Final = 60.0  # that a queue's archive gets to have all rows
CONF: Final = {"spark.driver.memory": "1g", "spark.default.parallelism": str(THREADS)}


class Sample(NamedTuple):
    """One run: rows a second, and microseconds of processor time a row."""

    rate: float
    spark_us: float
    nodes_us: float


Samples = dict[str, list[Sample]]


class Bench:
    """Runs everything against one cluster, in one session.

    Args:
        spark: the session.
        broker: the cluster.
        work: an empty directory.
        rows: of each run.
    """

    def __init__(self, spark: SparkSession, broker: Headrace, work: Path, rows: int) -> None:
        self._spark = spark
        self._broker = broker
        self._work = work
        self._rows = rows
        self._number = 0
        self.endpoints = ",".join(f"127.0.0.1:{port + GRPC_OFFSET}" for port in broker.ports)
        self._client = Client.connect(self.endpoints)
        self._parquet = str(work / "parquet")
        self._frame(rows, THREADS).write.parquet(self._parquet)

    def close(self) -> None:
        """Close the opened files."""
        self._client.close()

    def _frame(self, rows: int, partitions: int) -> DataFrame:
        text = F.rpad(F.col("id").cast("string"), PAYLOAD_BYTES, "x")
        return self._spark.range(0, rows, 1, partitions).select(text.alias("payload"))

    def _fresh(self, name: str) -> str:
        self._number += 1
        return f"{name}-{self._number}"

    def _queue(self, **arguments: Any) -> str:
        name = self._fresh("bench")
        # Nobody consumes until all is published, so the queue must not hold its publisher.
        given = {"x-queue-type": "quorum", "x-high-watermark-bytes": 0, **arguments}
        self._client.topology.declare_queue(name, arguments=given)
        return name

    def _timed(self, rows: int, work: Callable[[], object]) -> Sample:
        nodes = self._broker.pids()
        node_s = sum(map(processor_seconds, nodes))
        own_s = tree_seconds(os.getpid())
        begun = time.perf_counter()
        work()
        seconds = time.perf_counter() - begun
        own_s = tree_seconds(os.getpid()) - own_s
        node_s = sum(map(processor_seconds, nodes)) - node_s
        return Sample(rows / seconds, own_s * 1e6 / rows, node_s * 1e6 / rows)

    # Without brokers

    def parquet(self) -> Sample:
        """Files to nowhere."""
        source = self._spark.read.parquet(self._parquet)
        return self._timed(self._rows, source.write.format("noop").mode("overwrite").save)

    def rate(self) -> Sample:
        """Spark's rate source, one micro-batch of it, to nowhere."""
        reader = self._spark.readStream.format("rate-micro-batch")
        reader = reader.option("rowsPerBatch", self._rows).option("numPartitions", THREADS)
        return self._timed(self._rows, lambda: self._drain(reader.load(), None))

    # With brokers

    def publish(self, partitions: int, queue: str | None = None) -> Sample:
        """A DataFrame to the default exchange, and by it to a queue."""
        name = queue or self._queue()
        frame = self._frame(self._rows, partitions)
        to = frame.write.format("headrace").mode("append").option("endpoints", self.endpoints)
        found = self._timed(self._rows, to.option("routingKey", name).save)
        if queue is None:
            self._client.topology.delete_queue(name)
        return found

    def lease_and_archive(
        self, partitions: int, batches: int, into_table: bool = True
    ) -> tuple[Sample, Sample]:
        """A queue into a Delta table or nowhere, and then its archive into another one."""
        name = self._queue(**{"x-archive": "full"})
        self.publish(THREADS, name)
        options = {"endpoints": self.endpoints, "queue": name}
        reader = self._spark.readStream.format("headrace_queue").options(**options)
        reader = reader.option("group", GROUP).option("minPartitions", partitions)
        reader = reader.option("maxRowsPerTrigger", -(-self._rows // batches))
        into = QUEUE_MESSAGES if into_table else None
        leased = self._timed(self._rows, lambda: self._drain(reader.load(), into))
        self._wait_archived(name)
        reader = self._spark.readStream.format("headrace_log").options(log="archive", **options)
        reader = reader.option("startingOffsets", "earliest").option("minPartitions", partitions)
        reader = reader.option("maxRowsPerTrigger", -(-self._rows // batches))
        found = ARCHIVE.without("headers") if into_table else None
        logged = self._timed(self._rows, lambda: self._drain(reader.load(), found))
        self._client.topology.delete_queue(name)
        return leased, logged

    def depths(self, rounds: int) -> Iterator[tuple[str, Sample]]:
        """The first messages of one queue, which more and more others wait behind.

        They are read and returned, so that each round finds the queue as deep as the others.
        """
        name, there = self._queue(), 0
        reader = self._spark.read.format("headrace_queue").option("endpoints", self.endpoints)
        reader = reader.option("queue", name).option("group", GROUP)
        reader = reader.option("minPartitions", THREADS).option("maxRowsPerTrigger", self._rows)
        for depth in DEPTHS:
            for _ in range(depth - there):
                self.publish(THREADS, name)
            there = depth
            for _ in range(rounds):
                to = reader.load().write.format("noop").mode("overwrite")
                yield f"queue to noop, {depth} times as deep", self._timed(self._rows, to.save)
                back = self._client.lease_group(name, LOOK_GROUP).close_group(any_epoch=True)
                if back != self._rows:
                    raise PeerError(f"{back} messages of {name} were read, not {self._rows}")
        self._client.topology.delete_queue(name)

    def _wait_archived(self, queue: str) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            shards = self._client.export.shards("archive", "/", queue).shards
            if shards and shards[0].next_index >= self._rows:
                return
            if time.monotonic() > deadline:
                raise PeerError(f"the archive of {queue} has not {self._rows} rows")
            time.sleep(0.1)

    def _drain(self, rows: DataFrame, into: Table | None) -> None:
        """Move what there is by a stream, into a new Delta table or nowhere.

        Raises:
            PeerError: it has moved another number of rows than a run has.
        """
        writer = rows.writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self._work / self._fresh("checkpoint")))
        written: list[int] = []
        if into is None:
            writer = writer.format("noop")
        else:
            target = open_table(str(self._work / self._fresh("table")), into)

            def write(batch: DataFrame, number: int) -> None:
                written.append(target.write_batch(batch, query_id(batch), number).rows)

            writer = writer.foreachBatch(write)
        query = writer.start()
        query.awaitTermination()
        moved = sum(written or (batch.numInputRows for batch in query.recentProgress))
        if moved != self._rows:
            raise PeerError(f"a stream has moved {moved} rows, not {self._rows}")


def tree_seconds(pid: int) -> float:
    """Return processor time of a process, of those below it, and of those of them that ended."""
    tick = os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15]))
    return sum(spent[each] for each in spent if is_below(each, pid, parents)) / tick


def is_below(pid: int, top: int, parents: dict[int, int]) -> bool:
    """Return whether a process is another one or descends from it."""
    while pid != top and pid in parents:
        pid = parents[pid]
    return pid == top


@contextmanager
def running(options: argparse.Namespace, work: Path) -> Iterator[Bench]:
    """Hold a cluster and a session within."""
    broker = Headrace(work / "headrace", options.base_port)
    broker.start()
    try:
        conf = {**CONF, "spark.sql.shuffle.partitions": str(THREADS)}
        with session(SessionSettings("bench", f"local[{THREADS}]", conf)) as spark:
            bench = Bench(spark, broker, work, options.rows)
            try:
                yield bench
            finally:
                bench.close()
    finally:
        broker.stop()


def collect(bench: Bench, rounds: int) -> Samples:
    """Do everything `rounds` times, in turn, after a first time that is not counted."""
    samples: Samples = {}
    for number in range(rounds + 1):
        for name, sample in one_round(bench):
            word = f"round {number}" if number else "warm-up"
            show(word, name, sample)
            if number:
                samples.setdefault(name, []).append(sample)
    for name, sample in bench.depths(rounds):
        show("depth", name, sample)
        samples.setdefault(name, []).append(sample)
    return samples


def show(word: str, name: str, sample: Sample) -> None:
    """Print measurements at once, because all of them take minutes."""
    spent = f"{sample.spark_us:8.1f} + {sample.nodes_us:6.1f} us"
    print(f"{word} {name:45} {sample.rate:10,.0f}/s {spent}", flush=True)


def one_round(bench: Bench) -> Iterator[tuple[str, Sample]]:
    """Do everything once; figures come as they are measured."""
    yield PARQUET, bench.parquet()
    yield RATE, bench.rate()
    for partitions in PARTITIONS:
        yield f"DataFrame to exchange, {partitions} partitions", bench.publish(partitions)
    for partitions, batches in ((1, 1), (THREADS, 1), (THREADS, 8)):
        leased, logged = bench.lease_and_archive(partitions, batches)
        how = f"{partitions} partitions, {batches} batches"
        yield f"queue to Delta, {how}", leased
        yield f"log to Delta, {how}", logged
    leased, logged = bench.lease_and_archive(THREADS, 1, into_table=False)
    how = f"{THREADS} partitions, 1 batches"
    yield f"queue to noop, {how}", leased
    yield f"log to noop, {how}", logged


def report(samples: Samples, rows: int, rounds: int) -> str:
    """Return the Markdown text."""
    middle = {name: median(each) for name, each in samples.items()}
    lines = []
    for name, found in middle.items():
        figures = [f"{found.rate:,.0f}", f"{found.rate / middle[PARQUET].rate:.3f}"]
        figures += [f"{found.rate / middle[RATE].rate:.3f}"]
        figures += [f"{found.spark_us:.1f}", f"{found.nodes_us:.1f}"]
        lines.append([name, *figures])
    heads = ["", "rows/s", "of Parquet's", "of the rate source's"]
    heads += ["Spark, us a row", "nodes, us a row"]
    text = (
        f"{NODE_COUNT} nodes and Spark (`local[{THREADS}]`) on {machine()}; {rows:,} rows of "
        f"{PAYLOAD_BYTES} bytes, medians of {rounds} rounds."
    )
    load = os.getloadavg()[0]
    if load > 2 * (os.cpu_count() or 1):
        text += f"\nOther work was on the machine (load {load:.0f}): read the processor times."
    return f"{text}\n\n{table(heads, lines)}"


def median(found: Sequence[Sample]) -> Sample:
    """Return the median of each figure."""
    return Sample(*(statistics.median(each) for each in zip(*found, strict=True)))


def main() -> int:
    """Run it; exit code 1 when something could not be run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as work:
        try:
            with running(options, Path(work)) as bench:
                samples = collect(bench, options.rounds)
        except PeerError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    text = report(samples, options.rows, options.rounds)
    print(text)
    if options.write:
        replace_section("pipeline", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
