"""Filters as tables of conditions on headers."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pamqp import commands

from headrace_broker.core.filter.selector import make_filter
from headrace_broker.core.filter.selector_lexer import SelectorError
from headrace_broker.model.limits import SELECTOR_NODES_MAX


def wants(table: object, headers: dict[str, Any] | None = None, **properties: Any) -> bool:
    block = commands.Basic.Properties(headers=headers or {}, **properties).marshal()
    return make_filter(table).matches(struct.pack(">I", len(block)) + block, 0)


ORDER = {"region": "eu", "n": 5, "ratio": 0.5, "hot": True, "day": "2024-05-01", "list": [1]}


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"region": "eu"},
        {"region": b"eu"},
        {"region": bytearray(b"eu")},
        {"n": 5, "hot": True, "ratio": 0.5},
        {"n": 5.0},
        {"n": {"gte": 5, "lt": 10}},
        {"n": {"gt": 4, "lte": 5}},
        {"n": {"ne": 6}},
        {"day": {"gte": "2024-05-01", "lt": "2024-06-01"}},
        {"day": {"gt": "2024", "lte": "2024-05-01"}},
        {"region": ["us", "eu"], "n": [4, 5]},
        {"region": None, "list": None},
        {"x-match": "all", "region": "eu"},
        {"x-match": "any", "region": "us", "n": 5},
        {"x-match": "any"},
        {"properties.priority": {"gte": 7}, "JMSType": "order"},
    ],
)
def test_a_table_that_holds_takes_the_message(table: dict[str, Any]) -> None:
    assert wants(table, ORDER, priority=7, message_type="order")


@pytest.mark.parametrize(
    "table",
    [
        {"region": "us"},
        {"region": "eu", "n": 6},
        {"n": "5"},
        {"n": True},
        {"hot": 1},
        {"gone": None},
        {"gone": 1},
        {"gone": {"ne": 1}},
        {"gone": {"lt": 1}},
        {"n": {"gte": 5, "lt": 5}},
        {"n": {"gt": "4"}},
        {"region": ["us"]},
        {"region": []},
        {"day": {"lt": "2024-05-01"}},
        {"list": 1},
        {"x-match": "any", "region": "us", "n": 6},
    ],
)
def test_a_table_that_does_not_hold_leaves_the_message(table: dict[str, Any]) -> None:
    assert not wants(table, ORDER)


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({"x-match": "some"}, "x-match: 'some' is neither 'all' nor 'any'"),
        ({"n": {"above": 5}}, "n: no bound 'above'; there are gt, gte, lt, lte, ne"),
        ({"n": {}}, "n: a table without bounds; there are gt, gte, lt, lte, ne"),
        ({"n": {"gt": True}}, "n.gt: a boolean is no bound"),
        ({"n": {"gt": [1]}}, "n.gt: a list cannot be compared with"),
        ({"n": {"ne": None}}, "n.ne: a NoneType cannot be compared with"),
        ({"n": [[1]]}, "n: a list cannot be compared with"),
        ({"p.subject": 1}, "p.subject: there is no such property"),
        (5, "neither a selector nor a table, but a int"),
    ],
)
def test_a_table_that_breaks_a_rule_is_refused_by_its_key(table: object, error: str) -> None:
    with pytest.raises(SelectorError) as caught:
        make_filter(table)
    assert str(caught.value) == error


def test_tables_are_bounded() -> None:
    assert not wants({"n": list(range(SELECTOR_NODES_MAX - 2))})
    with pytest.raises(SelectorError, match="more than 512 names and values"):
        make_filter({"n": list(range(SELECTOR_NODES_MAX - 1))})
