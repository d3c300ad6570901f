"""The counts of redeliveries among a message's headers, read back with pamqp."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from headrace_broker.codecs.method import decode_properties
from headrace_broker.codecs.redelivery import with_counts


def block(**properties: Any) -> bytes:
    return commands.Basic.Properties(**properties).marshal()


def headers(properties: bytes) -> dict[str, Any]:
    return dict(decode_properties(properties).headers or {})


def test_block_without_headers_gets_them():
    counted = with_counts(block(content_type="text/plain", delivery_mode=2), 3, 5)
    found = decode_properties(counted)
    assert (found.content_type, found.delivery_mode) == ("text/plain", 2)
    assert headers(counted) == {"x-delivery-count": 3, "x-acquired-count": 5}


def test_empty_block_gets_headers():
    assert headers(with_counts(b"\x00\x00", 1, 1)) == {"x-delivery-count": 1, "x-acquired-count": 1}


def test_delivery_count_stands_only_where_a_delivery_failed():
    assert headers(with_counts(b"\x00\x00", 0, 2)) == {"x-acquired-count": 2}


def test_headers_of_the_publisher_stay_and_counts_from_elsewhere_are_replaced():
    before = block(headers={"a": 1, "x-delivery-count": 99, "t": {"x-delivery-count": 7}, "z": "s"})
    counted = with_counts(before, 0, 4)
    assert headers(counted) == {
        "a": 1,
        "t": {"x-delivery-count": 7},
        "z": "s",
        "x-acquired-count": 4,
    }


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x80\x00", b"\x20\x00\x00\x00\x00\x09a"])
def test_what_is_no_property_block_stays_as_it_is(data):
    assert with_counts(data, 1, 1) == data


_values = st.recursive(
    st.booleans() | st.integers(-(2**31), 2**31) | st.text(max_size=20) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=20) | st.sampled_from(["x-acquired-count"]), _values),
    st.integers(0, 2**32 - 1),
    st.integers(1, 2**32 - 1),
    st.booleans(),
)
def test_counts_are_added_and_nothing_else_changes(table, failed, acquired, more):
    rest = {"priority": 3, "correlation_id": "c", "message_id": "m"} if more else {}
    before = block(headers=table, **rest) if table else block(**rest)
    after = with_counts(before, failed, acquired)
    expected = {name: value for name, value in headers(before).items() if name[:2] != "x-"}
    expected["x-acquired-count"] = acquired
    if failed:
        expected["x-delivery-count"] = failed
    assert {n: v for n, v in headers(after).items() if n[:2] != "x-" or n in expected} == expected
    first, second = decode_properties(before), decode_properties(after)
    for name in ("priority", "correlation_id", "message_id", "content_type"):
        assert getattr(first, name) == getattr(second, name)
    assert with_counts(after, failed, acquired) == after
