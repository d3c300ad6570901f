"""Work of a filter for one message."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pamqp import commands

from headrace_broker.core.filter.selector import make_filter
from headrace_broker.model.limits import (
    LIKE_CHARACTERS_MAX,
    LIKE_CHARACTERS_OF_MESSAGE_MAX,
    SELECTOR_CHARACTERS_MAX,
)


def message(headers: dict[str, Any]) -> bytes:
    """The property block of a message as it stands in a batch, three bytes in."""
    block = commands.Basic.Properties(headers=headers).marshal()
    return b"\x00\x01q" + struct.pack(">I", len(block)) + block


def wants(selector: object, headers: dict[str, Any]) -> bool:
    return make_filter(selector).matches(message(headers), 3)


class TestWork:
    """The steps for one message are bounded, whatever filter and message clients make."""

    def work(self, selector: str, headers: dict[str, Any]) -> int:
        made = make_filter(selector)
        made.matches(message(headers), 3)
        return int(made.work)

    def test_many_likes_go_over_a_long_text_once(self) -> None:
        text = "a" * (LIKE_CHARACTERS_MAX - 1)
        few = self.work(" OR ".join(["h LIKE '%__b%'"] * 3), {"h": text})
        many = self.work(" OR ".join(["h LIKE '%__b%'"] * 200), {"h": text})
        assert few < 8 * len(text)
        assert many < few + 200 * len(text) // 100

    @pytest.mark.parametrize(
        "part", ["a_a_a_b", "_" * 20 + "b", "a" * 49 + "b" + "a" * 49, "_b", "ab" * 40 + "_b"]
    )
    def test_dead_letters_of_patterns_cost_little_each(self, part: str) -> None:
        condition = f"h LIKE '%{part}%'"
        count = min(160, (SELECTOR_CHARACTERS_MAX + 4) // (len(condition) + 4))
        work = self.work(" OR ".join([condition] * count), {"h": "a" * LIKE_CHARACTERS_MAX})
        assert work < (8 + SELECTOR_CHARACTERS_MAX // 64) * LIKE_CHARACTERS_MAX

    def test_texts_of_a_message_share_a_bound(self) -> None:
        headers = {f"h{n}": "a" * (LIKE_CHARACTERS_MAX - 2) + f"{n:02}" for n in range(14)}
        selector = " OR ".join(f"h{n} LIKE '%_b%' OR h{n} LIKE '%_c_%'" for n in range(14))
        assert self.work(selector, headers) < 6 * LIKE_CHARACTERS_OF_MESSAGE_MAX
        everything = " AND ".join(f"h{n} LIKE 'a%'" for n in range(4))
        assert wants(everything, headers)
        assert not wants(everything + " AND h4 LIKE 'a%'", headers)
        assert wants(everything + " AND h3 LIKE '%3'", headers)
        assert wants(everything + " AND short LIKE 's%'", {**headers, "short": "s"})

    def test_headers_are_gone_through_twice_at_most(self) -> None:
        headers = {f"{n:x}": None for n in range(10_000)}
        byte_count = len(message(headers))
        names = [f"x{n} = 1" for n in range(150)]
        assert self.work(" OR ".join(names), headers) < 2 * byte_count
        assert self.work(names[0], headers) < byte_count // 8

    def test_a_name_counts_as_it_did_in_many_headers(self) -> None:
        headers = {f"{n:x}": n for n in range(1_000)}
        assert not wants("[1] = 1 AND [ff] = 255 AND [3e7] = 999 AND [3e8] = 1000", headers)
        assert wants("[1] = 1 AND [ff] = 255 AND [3e7] = 999 AND [3e8] IS NULL", headers)
        twice = commands.Basic.Properties(headers={"a": 1, "b": 2, "c": "x" * 600}).marshal()
        block = twice.replace(b"\x01b", b"\x01a")  # the first of one name counts
        blob = b"\x00\x01q" + struct.pack(">I", len(block)) + block
        assert make_filter("c IS NOT NULL AND a = 1").matches(blob, 3)
        assert make_filter("a = 1 AND c IS NOT NULL").matches(blob, 3)

    def test_a_message_is_forgotten_before_the_next(self) -> None:
        made = make_filter("b = 1 AND a LIKE '%_y%' AND a LIKE '%_z%' AND a LIKE '%_yz%'")
        wanted = message({"a": "x" * 600 + "yz", "b": 1})
        other = message({"a": "x" * 600 + "y", "b": 1})
        for _ in range(3):
            assert made.matches(wanted, 3)
            work = made.work
            assert not made.matches(other, 3)
            assert made.matches(wanted, 3)
            assert made.work == work
