"""The argument x-filter on its way from basic.consume to the queue's leader."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.core.filter.selector_lexer import SelectorError
from headrace_broker.runtime.replica.filter_argument import (
    decode_filter,
    encode_filter,
    filter_problem,
)

RED = b"\x00\x00\x00\x11" + b"\x20\x00" + b"\x00\x00\x00\x0b" + b"\x01cS\x00\x00\x00\x04blue"


@pytest.mark.parametrize("value", ["c = 'blue'", {"c": "blue"}, {"c": ["red", "blue"]}])
def test_a_filter_arrives_as_it_was_given(value: Any) -> None:
    assert filter_problem(value) == ""
    made = decode_filter(encode_filter(value))
    assert made.matches(RED, 0)
    assert not made.matches(RED.replace(b"blue", b"pink"), 0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("c =", "character 4: the end where a value or name belongs"),
        ({"c": {"over": 1}}, "c: no bound 'over'; there are gt, gte, lt, lte, ne"),
        (7, "neither a selector nor a table, but a int"),
    ],
)
def test_a_filter_that_breaks_a_rule_is_refused(value: Any, text: str) -> None:
    assert filter_problem(value) == text


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x00\x00\x09", b"\x00\x00\x00\x00", encode_filter("c =")]
)
def test_bytes_that_hold_no_filter_are_refused(data: bytes) -> None:
    with pytest.raises(SelectorError):
        decode_filter(data)
