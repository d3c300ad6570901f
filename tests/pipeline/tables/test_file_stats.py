"""Statistics of the rows of a file, and files that conditions skip."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_pipeline.error import SchemaError
from headrace_pipeline.schema.column import Column, Kind, Table
from headrace_pipeline.tables.data_file import DataFile, Stats, bounds
from headrace_pipeline.tables.file_stats import FileStats
from headrace_pipeline.tables.where import conditions, may_match

NOON = dt.datetime(2026, 11, 22, 12, 0, 0, 123_456, dt.UTC)
TABLE = Table(
    "things",
    (
        Column("number", Kind.INT64),
        Column("name", Kind.UTF8),
        Column("at", Kind.TIMESTAMP),
        Column("share", Kind.FLOAT64),
        Column("body", Kind.BINARY),
        Column("flag", Kind.BOOL),
        Column("day", Kind.DATE),
    ),
)


def stats_of(*rows: dict[str, Any]) -> Stats:
    found = FileStats(TABLE.columns)
    for row in rows:  # a batch each
        whole = dict.fromkeys(TABLE.names) | row
        found.add(pa.RecordBatch.from_pylist([whole], TABLE.arrow()))
    return found.stats()


def file_of(*rows: dict[str, Any]) -> DataFile:
    return DataFile("a", 1, {}, stats_of(*rows), 0)


def test_stats_are_deltas() -> None:
    stats = stats_of(
        {"number": 3, "name": "b", "at": NOON, "day": NOON.date(), "flag": True, "body": b"x"},
        {"number": -7, "name": "a", "share": math.nan},
    )
    assert stats == Stats(
        2,
        {"number": -7, "name": "a", "at": "2026-11-22T12:00:00.123456Z", "day": "2026-11-22"},
        {"number": 3, "name": "b", "at": "2026-11-22T12:00:00.123456Z", "day": "2026-11-22"},
        {"number": 0, "name": 0, "at": 1, "share": 1, "body": 1, "flag": 1, "day": 1},
    )


def test_no_stats_bound_what_is_only_null() -> None:
    stats = stats_of({}, {})
    assert (stats.min_values, stats.max_values) == ({}, {})
    assert set(stats.null_count.values()) == {2}


def test_long_texts_are_cut_so_that_the_bounds_hold() -> None:
    long = "é" * 40
    stats = stats_of({"name": long})
    assert stats.min_values["name"] == "é" * 32
    assert stats.max_values["name"] == "é" * 32 + "\U0010ffff"
    assert stats.min_values["name"] <= long <= stats.max_values["name"]


def test_instants_that_others_cut_to_milliseconds_still_hold() -> None:
    stats = Stats(1, {}, {"at": "2026-11-22T12:00:00.123Z"})
    high = bounds(DataFile("a", 1, {}, stats, 0), TABLE, "at").high
    assert isinstance(high, dt.datetime)
    assert high >= NOON


VALUES = st.none() | st.integers(-20, 20)
OPS = st.sampled_from(["=", "<", "<=", ">", ">="])
FULFILS: dict[str, Any] = {
    "=": lambda row, value: row == value,
    "<": lambda row, value: row < value,
    "<=": lambda row, value: row <= value,
    ">": lambda row, value: row > value,
    ">=": lambda row, value: row >= value,
    "in": lambda row, value: row in value,
}


@settings(deadline=None)
@given(
    st.lists(VALUES, min_size=1, max_size=6),
    st.tuples(OPS, st.integers(-20, 20))
    | st.tuples(st.just("in"), st.lists(st.integers(-20, 20), max_size=3)),
)
def test_no_file_with_a_row_that_is_wanted_is_passed_over(
    rows: list[int | None], asked: tuple[str, Any]
) -> None:
    op, value = asked
    instants = [None if each is None else NOON + dt.timedelta(microseconds=each) for each in rows]
    file = file_of(*({"number": each, "at": at} for each, at in zip(rows, instants, strict=True)))
    wanted = any(each is not None and FULFILS[op](each, value) for each in rows)
    if wanted:
        assert may_match(file, TABLE, conditions(TABLE, [("number", op, value)]))
        as_time = (
            [NOON + dt.timedelta(microseconds=each) for each in value]
            if op == "in"
            else NOON + dt.timedelta(microseconds=value)
        )
        assert may_match(file, TABLE, conditions(TABLE, [("at", op, as_time)]))


@pytest.mark.parametrize(
    ("op", "value"),
    [("=", 4), ("=", 0), ("<", 1), (">", 3), (">=", 4), ("<=", 0), ("in", [0, 4]), ("in", [])],
)
def test_a_file_without_a_row_that_is_wanted_is_passed_over(op: str, value: Any) -> None:
    file = file_of({"number": 1}, {"number": 3}, {})
    assert not may_match(file, TABLE, conditions(TABLE, [("number", op, value)])) or op in "<>"
    empty = file_of({})
    assert not may_match(empty, TABLE, conditions(TABLE, [("number", op, value)]))


@pytest.mark.parametrize(
    ("column", "op", "told"),
    [("colour", "=", "no column colour"), ("number", "!=", "'!=' is none")],
)
def test_conditions_that_are_none_are_refused(column: str, op: str, told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        conditions(TABLE, [(column, op, 1)])


def test_nothing_is_known_of_a_file_without_stats(tmp_path: Path) -> None:
    file = DataFile(str(tmp_path), 1, {}, Stats(5), 0)
    assert may_match(file, TABLE, conditions(TABLE, [("number", "=", 4)]))


def test_the_last_instant_that_there_is_bounds_nothing() -> None:
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, dt.UTC)
    file = DataFile("a", 1, {}, stats_of({"at": NOON}, {"at": last}), 0)
    assert bounds(file, TABLE, "at")[:2] == (NOON, None)
    assert may_match(file, TABLE, conditions(TABLE, [("at", ">=", last)]))
    assert not may_match(file, TABLE, conditions(TABLE, [("at", "<", NOON - dt.timedelta(1))]))
