"""One number for the same rows in the same order, however they come."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_pipeline.sinks.exchange.column import uniform
from headrace_pipeline.sinks.exchange.fingerprint import BITS, Fingerprint

SCHEMA = pa.schema(
    {
        "payload": pa.binary(),
        "routing_key": pa.string(),
        "headers": pa.map_(pa.string(), pa.string()),
        "priority": pa.int32(),
        "persistent": pa.bool_(),
        "published_at": pa.timestamp("us", tz="UTC"),
    }
)
_TEXT = st.none() | st.text(max_size=3)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "payload": st.none() | st.binary(max_size=3),
            "routing_key": _TEXT,
            "headers": st.none() | st.lists(st.tuples(st.text(max_size=2), _TEXT), max_size=2),
            "priority": st.none() | st.integers(0, 9),
            "persistent": st.none() | st.booleans(),
            "published_at": st.none() | st.just(datetime(2026, 1, 31, tzinfo=UTC)),
        }
    ),
    max_size=8,
)


def number(rows: list[dict[str, Any]], *cuts: int) -> int:
    """The number of rows that come in batches which end at some places."""
    batch = uniform(pa.RecordBatch.from_pylist(rows, SCHEMA))
    found = Fingerprint()
    ends = [0, *sorted(cuts), len(rows)]
    for start, stop in pairwise(ends):
        found.update(batch.slice(start, stop - start))
    return found.value()


@given(ROWS, st.data())
def test_it_does_not_matter_how_rows_are_cut(rows: list[dict[str, Any]], data: Any) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3))
    found = number(rows, *cuts)
    assert found == number(rows)
    assert 0 <= found < 1 << BITS


@given(ROWS, ROWS)
def test_other_rows_have_another_number(
    rows: list[dict[str, Any]], others: list[dict[str, Any]]
) -> None:
    # Chance makes two of 1,000 pairs equal once in 4,000 runs of this test.
    assert (number(rows) == number(others)) == (rows == others)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([{"payload": b"ab"}, {"payload": b"c"}], [{"payload": b"a"}, {"payload": b"bc"}]),
        ([{"payload": b""}], [{"payload": None}]),
        ([{"payload": b"a"}, {"payload": b"b"}], [{"payload": b"b"}, {"payload": b"a"}]),
        ([{"headers": []}], [{"headers": None}]),
        ([{"headers": [("a", "b")]}, {}], [{}, {"headers": [("a", "b")]}]),
    ],
)
def test_close_ones_are_told_apart(one: list[Any], other: list[Any]) -> None:
    assert number(one) != number(other)


def test_it_is_the_same_in_every_process() -> None:
    row = {"payload": b"x", "routing_key": "k", "headers": [("a", "b")], "priority": 1}
    assert number([row]) == 2235953
