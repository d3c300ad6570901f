"""CC and BCC, and changes of property blocks that leave everything else alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, encode

from headrace_broker.codecs.field import properties_problem
from headrace_broker.core.property_edit import replace_text, without_header
from headrace_broker.core.property_reader import REPLY_TO
from headrace_broker.core.routing.distribution import (
    DistributionError,
    distribution_keys,
    holds_copies,
)
from headrace_broker.model.limits import DISTRIBUTION_WORDS_MAX


def block(**properties: Any) -> bytes:
    data: bytes = commands.Basic.Properties(**properties).marshal()
    return data


def raw(fields: bytes) -> bytes:
    """A block with these bytes as its headers and nothing else."""
    return b"\x20\x00" + len(fields).to_bytes(4, "big") + fields


def table_bytes(headers: dict[str, Any]) -> bytes:
    """The bytes of a header table without its length."""
    data: bytes = encode.field_table(headers)
    return data[4:]


def decoded(properties: bytes) -> dict[str, Any]:
    assert properties_problem(properties, 0, len(properties)) == ""
    found: Any = commands.Basic.Properties()
    found.unmarshal(int.from_bytes(properties[:2], "big"), properties[2:])
    return {name: each for name, each in found if each is not None and name != "cluster_id"}


class TestKeys:
    def test_their_words_are_bounded(self) -> None:
        keys = ["a.b.c.d"] * (DISTRIBUTION_WORDS_MAX // 4)
        assert distribution_keys(block(headers={"BCC": keys})) == keys
        with pytest.raises(DistributionError, match=r"4097 words, more than 4096"):
            distribution_keys(block(headers={"BCC": keys, "CC": ["e"]}))

    @pytest.mark.parametrize(
        ("headers", "keys"),
        [
            ({}, []),
            ({"CC": []}, []),
            ({"CC": ["a", "b"]}, ["a", "b"]),
            ({"BCC": ["c"]}, ["c"]),
            ({"BCC": ["c"], "CC": ["a"]}, ["a", "c"]),
            ({"CC": ["é", ""]}, ["é", ""]),
            ({"cc": ["a"], "XCC": ["b"], "CCC": ["c"]}, []),
            ({"inner": {"CC": ["a"]}}, []),
            ({"other": "CC"}, []),
        ],
    )
    def test_are_those_of_both_headers(self, headers: dict[str, Any], keys: list[str]) -> None:
        assert distribution_keys(block(headers=headers)) == keys

    def test_are_none_without_headers(self) -> None:
        assert distribution_keys(block()) == []
        assert distribution_keys(block(message_id="CC")) == []

    def test_bytes_that_are_no_text_are_kept(self) -> None:
        fields = b"\x02CCA\x00\x00\x00\x07S\x00\x00\x00\x02\xff\xfe"
        assert distribution_keys(raw(fields)) == ["\udcff\udcfe"]

    @pytest.mark.parametrize("name", ["CC", "BCC"])
    @pytest.mark.parametrize("value", ["a", 1, None, True, {"a": "b"}, ["a", 1], [["a"]], [None]])
    def test_of_a_wrong_type_are_refused_by_name(self, name: str, value: Any) -> None:
        with pytest.raises(DistributionError, match=f"^header '{name}' must be an array of long"):
            distribution_keys(block(headers={name: value}))

    def test_byte_arrays_are_no_long_strings(self) -> None:
        with pytest.raises(DistributionError, match="not an array with type 'x'"):
            distribution_keys(raw(b"\x02CCA\x00\x00\x00\x06x\x00\x00\x00\x01a"))

    @given(
        st.dictionaries(
            st.sampled_from(["CC", "BCC", "a", "CCC", "XCC", "BC", "C", "BCCC", "cc", "ACC"]),
            st.one_of(st.lists(st.text("ab")), st.integers(0, 9), st.text("BC"), st.none()),
        )
    )
    def test_quick_look_sees_exactly_those_names(self, headers: dict[str, Any]) -> None:
        properties = raw(table_bytes(headers))
        found = holds_copies(properties, 6, len(properties))
        assert found == ("CC" in headers or "BCC" in headers)


NAMES = st.sampled_from(["BCC", "CC", "a", "b", "x-long-name"])
VALUES = st.one_of(st.text("xyz"), st.integers(-(2**31), 2**31 - 1), st.lists(st.text("xy")))


class TestWithoutHeader:
    @given(st.dictionaries(NAMES, VALUES), st.booleans())
    def test_takes_that_header_and_nothing_else(self, headers: dict[str, Any], more: bool) -> None:
        others: dict[str, Any] = {"message_id": "m", "content_type": "t/p"} if more else {}
        properties = block(headers=headers, **others)
        changed = decoded(without_header(properties, b"BCC"))
        left = {name: value for name, value in headers.items() if name != "BCC"}
        assert changed.pop("headers", {}) == left
        assert changed == others

    def test_takes_it_wherever_it_stands_twice(self) -> None:
        bcc, other = b"\x03BCCS\x00\x00\x00\x01a", b"\x01at\x01"
        assert without_header(raw(bcc + other + bcc), b"BCC") == raw(other)
        assert without_header(raw(bcc), b"BCC") == raw(b"")

    def test_leaves_a_block_without_it_as_it_is(self) -> None:
        for properties in (block(), block(headers={}), block(headers={"CC": ["BCC"]})):
            assert without_header(properties, b"BCC") is properties


class TestReplaceText:
    @given(st.text("ab", min_size=1, max_size=30), st.text("ab", max_size=255), st.booleans())
    def test_changes_one_property(self, before: str, after: str, more: bool) -> None:
        others: dict[str, Any] = (
            {"headers": {"h": 1}, "priority": 3, "correlation_id": "c", "message_id": "m"}
            if more
            else {}
        )
        properties = block(reply_to=before, **others)
        changed = decoded(replace_text(properties, REPLY_TO, after.encode()))
        assert changed.pop("reply_to") == after
        assert changed == others
