"""Logs of a broker in this process, and a stream that reads them as Spark would."""

from __future__ import annotations

import pickle
from typing import Any

from tests.client.fake_exports import ARCHIVE, TELEMETRY, FakeShard

from headrace_pipeline.sources.log.source import LogSource
from headrace_pipeline.sources.log.stream import LogStreamReader
from headrace_protos.broker.v1 import export_pb2 as pb

SAMPLES, ARCHIVES = pb.EXPORT_LOG_FLOW_SAMPLES, pb.EXPORT_LOG_ARCHIVE


def samples(broker: Any, name: str, rows: int, **more: Any) -> FakeShard:
    found: FakeShard = broker.exports.logs.add(
        SAMPLES, FakeShard(name, TELEMETRY, following=rows, **more)
    )
    return found


def archive(broker: Any, name: str, queue: str, rows: int, **more: Any) -> FakeShard:
    found: FakeShard = broker.exports.logs.add(
        ARCHIVES, FakeShard(name, ARCHIVE, queue=queue, following=rows, **more)
    )
    return found


def open_reader(broker: Any, log: str = "flow_samples", **options: Any) -> LogStreamReader:
    given = {"endpoints": broker.endpoint, "log": log, "startingOffsets": "earliest"}
    given |= {key: str(value) for key, value in options.items()}
    source = LogSource({key: value for key, value in given.items() if value != "None"})
    return source.streamReader(source.schema())


def latest(reader: LogStreamReader, start: Any) -> Any:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def read(reader: LogStreamReader, start: Any, end: Any) -> list[tuple[str, int]]:
    """Run the tasks of a batch, each in its own copy of the reader."""
    copy = pickle.loads(pickle.dumps(LogStreamReader(reader._settings, reader._table)))
    found = []
    for partition in reader.partitions(start, end):
        for batch in copy.read(pickle.loads(pickle.dumps(partition))):
            assert batch.schema == reader._table.arrow()
            index = "archive_index" if reader._settings.is_archive else "row_index"
            found += list(zip(batch["shard"].to_pylist(), batch[index].to_pylist(), strict=True))
    return found


def rows_of(name: str, start: int, end: int) -> list[tuple[str, int]]:
    return [(name, index) for index in range(start, end)]
