"""Batches that wait in memory and in a file."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace_pipeline.error import PipelineError
from headrace_pipeline.sinks.exchange.spool import Spool

BATCHES = [pa.record_batch({"payload": [b"%d" % number] * 10}) for number in range(5)]
SIZE = BATCHES[0].nbytes


@pytest.mark.parametrize("memory", [0, SIZE, 3 * SIZE, 100 * SIZE])
def test_batches_come_back_in_order(memory: int) -> None:
    with Spool(memory, 100 * SIZE) as spool:
        for batch in BATCHES:
            spool.add(batch)
        assert list(spool.batches()) == BATCHES


def test_a_small_batch_does_not_pass_one_that_is_in_the_file() -> None:
    large = pa.record_batch({"payload": [b"x" * SIZE]})
    with Spool(SIZE, 100 * SIZE) as spool:
        for batch in (large, BATCHES[0]):
            spool.add(batch)
        assert list(spool.batches()) == [large, BATCHES[0]]


def test_nothing_is_nothing() -> None:
    with Spool() as spool:
        assert list(spool.batches()) == []


def test_a_file_has_an_end() -> None:
    with Spool(SIZE, SIZE) as spool:
        spool.add(BATCHES[0])
        spool.add(BATCHES[1])
        with pytest.raises(PipelineError, match="into more, smaller ones"):
            spool.add(BATCHES[2])
