"""Patterns of LIKE, against regular expressions that say the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.core.filter.like_pattern import LikePattern, LongText
from headrace_broker.model.limits import LIKE_CHARACTERS_MAX, LIKE_FREE_CHARACTERS_MAX

_MEANINGS = {"%": ".*", "_": "."}


def same(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(_MEANINGS.get(each, each) for each in pattern), re.DOTALL)


@given(st.text("ab_%", max_size=14), st.text("ab\n", max_size=30))
def test_it_takes_what_the_regular_expression_takes(pattern: str, text: str) -> None:
    assert LikePattern(pattern, "").matches(text) == (same(pattern).fullmatch(text) is not None)


@given(st.text("ab_", max_size=80), st.text("ab", max_size=200))
def test_what_stands_between_is_found_wherever_it_is(part: str, text: str) -> None:
    found = same(part).search(text) is not None
    assert LikePattern(f"%{part}%", "").matches(text) == found


def test_a_long_text_is_gone_over_once() -> None:
    """Each beginning on its own would be tried for minutes."""
    part = "_a" * (LIKE_FREE_CHARACTERS_MAX // 2 - 1) + "_b"
    pattern = LikePattern("%".join(["", *[part] * 4, ""]), "")
    text = "a" * LIKE_CHARACTERS_MAX
    assert not any(pattern.matches(text) for _ in range(50))


@pytest.mark.parametrize("pattern", ["%{}%", "{}%", "%{}", "{}"])
def test_a_part_with_a_free_character_that_is_too_long_is_refused(pattern: str) -> None:
    part = "_" + "a" * LIKE_FREE_CHARACTERS_MAX
    with pytest.raises(ValueError, match="513 characters with '_' among them and no '%'"):
        LikePattern(pattern.format(part), "")
    LikePattern(pattern.format(part[1:]), "")
    LikePattern(pattern.format(part[:-1]), "")


@given(
    st.lists(st.text("ab_%é", max_size=24), min_size=4, max_size=8),
    st.lists(st.sampled_from(["a", "b", "ab", "aab", "é", "bbbbbbbbb"]), max_size=60),
)
def test_many_patterns_on_one_long_text_take_what_each_takes_alone(
    patterns: list[str], parts: list[str]
) -> None:
    text = "".join(parts)
    long = LongText(text)
    for pattern in patterns:
        fits = same(pattern).fullmatch(text) is not None
        assert LikePattern(pattern, "").matches(text, long) == fits
