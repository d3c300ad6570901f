"""Batches of a log, as Spark plans and reads them; no Spark is needed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from tests.client.fake_exports import FIRST_MS
from tests.pipeline.sources.log_world import archive, rows_of, samples

from headrace_pipeline.error import DataLossError, OptionError, PipelineError
from headrace_pipeline.sources.log.source import LogSource


def batch_rows(broker: Any, log: str = "flow_samples", **options: Any) -> list[tuple[str, int]]:
    given = {"endpoints": broker.endpoint, "log": log}
    source = LogSource(given | {key: str(value) for key, value in options.items()})
    reader = source.reader(source.schema())
    found = []
    for part in reader.partitions():
        for batch in pickle.loads(pickle.dumps(reader)).read(part):
            index = batch.column(2).to_pylist()
            found += list(zip(batch["shard"].to_pylist(), index, strict=True))
    return found


def test_a_batch_reads_what_there_is_or_what_it_is_told(broker: Any) -> None:
    samples(broker, "n1", 10, first=2)
    samples(broker, "n2", 5)
    assert batch_rows(broker) == rows_of("n1", 2, 10) + rows_of("n2", 0, 5)
    assert batch_rows(broker, startingOffsets="latest") == []
    found = batch_rows(broker, startingOffsets='{"n1": 4}', endingOffsets='{"n1": 6, "n2": 1}')
    assert found == rows_of("n1", 4, 6) + rows_of("n2", 0, 1)
    found = batch_rows(broker, startingTimestamp=FIRST_MS + 8000, minPartitions=2)
    assert found == rows_of("n1", 8, 10)


def test_a_batch_that_ends_before_it_begins_or_behind_the_end_is_refused(broker: Any) -> None:
    samples(broker, "n1", 10)
    with pytest.raises(OptionError, match="endingOffsets: shard n1: row 2 is before 5, the start"):
        batch_rows(broker, startingOffsets='{"n1": 5}', endingOffsets='{"n1": 2}')
    with pytest.raises(OptionError, match="endingOffsets: shard n1 has no row 11 yet"):
        batch_rows(broker, endingOffsets='{"n1": 11}')


def test_a_batch_whose_rows_are_dropped_fails_or_leaves_them_out(broker: Any) -> None:
    samples(broker, "n1", 10, first=6)
    for ending, wanted in (("latest", rows_of("n1", 6, 10)), ('{"n1": 4}', [])):
        given = {"startingOffsets": '{"n1": 1}', "endingOffsets": ending}
        with pytest.raises(DataLossError, match=r"shard n1: \d rows, 1 to "):
            batch_rows(broker, **given)
        assert batch_rows(broker, **given, failOnDataLoss="false") == wanted


def test_a_batch_does_not_leave_out_a_node_unless_that_is_said(broker: Any) -> None:
    samples(broker, "n1", 3)
    broker.exports.logs.missing = ["n2"]
    with pytest.raises(PipelineError, match=r"nodes that do not answer: n2; .* failOnDataLoss"):
        batch_rows(broker)
    assert batch_rows(broker, failOnDataLoss="false") == rows_of("n1", 0, 3)
    archive(broker, "1", "a", 3)
    assert batch_rows(broker, "archive") == rows_of("1", 0, 3)
