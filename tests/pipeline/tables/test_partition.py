"""Partition values as text and as directories."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_pipeline.error import SchemaError
from headrace_pipeline.schema.column import Column, Kind, Table
from headrace_pipeline.tables.partition import directory_of, partition_columns, text_of, value_of


@pytest.mark.parametrize(
    ("values", "directory"),
    [
        ({"bucket": "3", "day": "2026-11-22"}, "bucket=3/day=2026-11-22"),
        ({"queue": "a/b c%:é+"}, "queue=a%2Fb c%25%3Aé+"),
        ({"queue": "x=y"}, "queue=x%3Dy"),
        ({"queue": "{[*?]}\\^"}, "queue=%7B%5B%2A%3F%5D}%5C%5E"),
        ({"queue": "line\nfeed\x7f"}, "queue=line%0Afeed%7F"),
        ({"queue": "日本"}, "queue=日本"),
        ({"queue": None}, "queue=__HIVE_DEFAULT_PARTITION__"),
        ({}, ""),
    ],
)
def test_directories_are_named_as_spark_names_them(
    values: dict[str, str | None], directory: str
) -> None:
    assert directory_of(values) == directory


@given(st.text(), st.text())
def test_names_of_two_values_differ_and_stay_in_their_directory(one: str, other: str) -> None:
    names = [directory_of({"queue": each}) for each in (one, other)]
    assert (names[0] == names[1]) == (one == other)
    assert all("/" not in name and name not in (".", "..") for name in names)


@given(
    st.one_of(
        st.tuples(st.just(Kind.INT64), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.just(Kind.INT32), st.integers(-(2**31), 2**31 - 1)),
        st.tuples(st.just(Kind.BOOL), st.booleans()),
        st.tuples(st.just(Kind.DATE), st.dates(dt.date(1, 1, 1))),
        st.tuples(st.just(Kind.UTF8), st.text(min_size=1)),
        st.tuples(st.sampled_from([Kind.INT64, Kind.UTF8, Kind.DATE]), st.none()),
    )
)
def test_values_come_back_from_their_texts(given_value: tuple[Kind, int | str | None]) -> None:
    kind, value = given_value
    assert value_of(text_of(value), kind) == value


def test_the_empty_text_is_null_as_delta_has_it() -> None:
    assert text_of("") is None


@pytest.mark.parametrize("kind", [Kind.FLOAT64, Kind.BINARY, Kind.TIMESTAMP])
def test_a_column_that_names_no_directory_is_refused(kind: Kind) -> None:
    table = Table("things", (Column("number", Kind.INT64), Column("by", kind)), ("by",))
    with pytest.raises(SchemaError, match=f"cannot be partitioned by by: it is {kind.value}"):
        partition_columns(table)


def test_a_partition_of_no_column_is_refused() -> None:
    table = Table("things", (Column("number", Kind.INT64),), ("day",))
    with pytest.raises(SchemaError, match="partitioned by day, which it has not"):
        partition_columns(table)
