"""Expressions are found as `re` finds them, in bounded time whatever they are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_broker.catalog import pattern_program
from headrace_broker.catalog.pattern import matches, pattern_problem
from headrace_broker.catalog.pattern_program import Program, UnboundedError, parse, ways
from headrace_broker.model.limits import PATTERN_WAYS_MAX

LONG = "a" * 255


def program(pattern: str) -> Program:
    tree = parse(pattern)
    return Program(tree, tree.state.flags)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("(a+)+$", LONG[1:] + "b"),
        ("^(a|aa)+$", LONG[1:] + "b"),
        ("(.*)*x", LONG),
        (".*.*.*.*x", LONG),
        ("(a?){40}a{40}b", LONG),
        ("(x+x+)+y", "x" * 255),
        ("(a+){30}", "ab" * 100 + "a" * 29),
        ("(?=(a+)+$)b", LONG),
        ("(?=(?=(?=(a+)+b)+b)+b)(a*)*b", LONG),
        ("^(([a-z])+.)+[A-Z]([a-z])+$", LONG),
    ],
)
def test_expression_on_which_re_never_ends_has_an_answer(pattern: str, name: str) -> None:
    assert pattern_problem("pattern", pattern) == ""
    assert ways(parse(pattern)) > PATTERN_WAYS_MAX
    assert not matches(pattern, name)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        ".*",
        "^amq\\.",
        "^(?!amq\\.).*",
        "^(orders|invoices)\\..*$",
        "^[a-z]+-\\d{1,4}$",
        "(?i)^celery(@.*)?$",
        "^([^.]+)\\.(eu|us)$",
        ".*orders.*",
        ".*orders.*eu.*",
        "(orders|invoices).*",
    ],
)
def test_common_expressions_are_left_to_re(pattern: str) -> None:
    assert ways(parse(pattern)) <= PATTERN_WAYS_MAX


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a+)+\\1b", "pattern: the expression could take too long, and has GROUPREF"),
        (
            "(?m:^a)((a+)+)b",
            "pattern: the expression could take too long, and has flags of a group",
        ),
        ("(?s)(a+)+b", "pattern: the expression could take too long, and has flags"),
        (
            "((a{50}){50}){50}(b+)+c",
            "pattern: the expression could take too long, and has more than",
        ),
        ("(" * 101 + ")" * 101, "pattern: the expression has 101 parentheses, more than 100"),
    ],
)
def test_expression_that_cannot_be_bounded_is_refused(pattern: str, reason: str) -> None:
    assert pattern_problem("pattern", pattern).startswith(reason)


def test_nothing_many_times_is_nothing() -> None:
    assert pattern_problem("pattern", "(((){9999}){9999}){9999}(a+)+") == ""
    assert matches("(((){9999}){9999}){9999}(a+)+", "a")


def test_search_that_takes_too_long_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = program("(a+)+b")
    assert found.search("a" * 20 + "b")
    monkeypatch.setattr(pattern_program, "PATTERN_WORK_MAX", 30)
    assert not found.search("a" * 20 + "b")
    assert not program("(?!(a+)+c)").search("a" * 20)


_LETTERS = ["a", "b", "A", ".", "[ab]", "[^a]", "[a-c]", "[^\\da]", "\\d", "\\W", "\\s", "1"]
_PLACES = ["^", "$", "\\b", "\\B", "\\A", "\\Z", "(?=a)", "(?!b)", "(?<=a)", "(?<!ab)"]
ATOMS = st.sampled_from([*_LETTERS, *_PLACES])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=200)
@given(EXPRESSIONS, st.text("abcAB1 _\n\xc4\xe4", min_size=1, max_size=8), st.booleans())
def test_program_finds_what_re_finds(pattern: str, text: str, fold: bool) -> None:
    if fold:
        pattern = f"(?i){pattern}"
    assert program(pattern).search(text) == (re.search(pattern, text) is not None)


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_is_an_expression_or_is_refused(pattern: str, name: str) -> None:
    if not pattern_problem("pattern", pattern):
        assert matches(pattern, name) in (True, False)


def test_tree_with_an_unknown_part_is_refused() -> None:
    with pytest.raises(UnboundedError, match="ATOMIC_GROUP"):
        program("(?>a+)b")
