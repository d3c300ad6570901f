"""Expressions are found as `re` finds them, in bounded time whatever they are."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace_broker.catalog import pattern_program
from headrace_broker.catalog.pattern import matches, pattern_problem, standing_problem
from headrace_broker.catalog.pattern_cost import TOO_MANY, re_steps
from headrace_broker.catalog.pattern_program import Program, UnboundedError, parse
from headrace_broker.catalog.pattern_text import Letters, Text
from headrace_broker.model.limits import NAME_BYTES_MAX, PATTERN_WORK_MAX

LONG = "a" * 255
LONG_SEARCH = "pattern: the expression could take too long to find in a name: it has "
ASTRAL = "".join(chr(0x10000 + 2 * at) for at in range(230))


def steps(pattern: str) -> int:
    tree = parse(pattern)
    return re_steps(tree, tree.state.flags)


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
        ("(?=(?=(a+)+b)+b)(a*)*b", LONG),
        (f"a*a*(?<=[^{ASTRAL}]{{100}}b)", LONG),
        ("[ab]*[ab]*(?<=[^b]{60}b)", LONG),
        ("(?i)a*a*(?<=[^b]{60}b)", LONG),
        ("((a?)b|(a*)*c)+d", LONG),
        ("((a{50}){50}){50}(b+)+c", LONG),
        ("^(([a-z])+.)+[A-Z]([a-z])+$", LONG),
    ],
)
def test_expression_on_which_re_never_ends_has_an_answer(pattern: str, name: str) -> None:
    assert pattern_problem("pattern", pattern) == ""
    assert steps(pattern) == TOO_MANY
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
        "(orders|invoices).*",
        "^(\\w+)\\.\\1$",
    ],
)
def test_common_expressions_are_left_to_re(pattern: str) -> None:
    assert steps(pattern) < TOO_MANY


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a+)+\\1b", f"{LONG_SEARCH}GROUPREF"),
        ("(?a)(a+)+b", f"{LONG_SEARCH}flags other than i, m, s and x"),
        ("((a?){40}b|(a*)*c)+d", f"{LONG_SEARCH}more than {PATTERN_WORK_MAX} steps"),
        ("(" + "(?:(?:a{254})*b)?" * 30 + "){1,50}", f"{LONG_SEARCH}more than "),
        ("(" * 101 + ")" * 101, "pattern: the expression has 101 parentheses, more than 100"),
    ],
)
def test_expression_that_cannot_be_bounded_is_refused(pattern: str, reason: str) -> None:
    assert pattern_problem("pattern", pattern).startswith(reason)


def test_nothing_many_times_is_nothing() -> None:
    assert pattern_problem("pattern", "(((){9999}){9999}){9999}(a+)+") == ""
    assert matches("(((){9999}){9999}){9999}(a+)+", "a")


def test_expression_that_cannot_be_used_is_found_nowhere() -> None:
    for pattern in ("(a+)+\\1b", "((a?){40}b|(a*)*c)+d", "("):
        assert standing_problem("pattern", pattern).startswith("pattern: ")
        assert not matches(pattern, "aaaabd")


def test_text_longer_than_any_name_has_nothing_found_in_it() -> None:
    for pattern in ("a", "(a+)+$"):
        assert matches(pattern, "a" * NAME_BYTES_MAX)
        assert not matches(pattern, "a" * (NAME_BYTES_MAX + 1))


def test_letters_of_wide_ranges_are_not_marked_one_by_one() -> None:
    assert steps("(?i)^[a-\uffff]") == TOO_MANY
    assert matches("(?i)^[a-\uffff]$", "B")
    assert matches("^[\u0100-\U00010000x]+$", "\u0100x\U00010000")


class CountedText(Text):  # type: ignore[misc]  # final, but a test may count
    """Counts how often a part asks for letters."""

    asked = 0

    def letters(self, wanted: Letters) -> int:
        CountedText.asked += 1
        return super().letters(wanted)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> type[CountedText]:
    monkeypatch.setattr(pattern_program, "Text", CountedText)
    return CountedText


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


@pytest.mark.parametrize("name", [LONG, "ab" * 127, "abcde" * 51, "aab" * 85])
@pytest.mark.parametrize(
    "pattern",
    [
        "((a|b)?(c|d)?)*x",
        "(a(a?b?){0,5})*x",
        "((a|ab)(c|bcd)*(d*))*x",
        "(?=(a+)+$)b",
        "((((ab?)*a)*b)*a)*x",
        "(a?){200}((ab?)+|b){0,3}x",
        "[ab]*[ab]*(?<=[^b]{60}b)",
    ],
)
def test_work_is_what_was_reckoned_beforehand_at_most(
    counted: type[CountedText], pattern: str, name: str
) -> None:
    made = program(pattern)
    counted.asked = 0
    assert not made.search(name)
    assert counted.asked <= made.work <= PATTERN_WORK_MAX


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EXPRESSIONS, st.text("abA1", min_size=100, max_size=255))
def test_no_expression_takes_more_work_than_was_reckoned(
    counted: type[CountedText], pattern: str, text: str
) -> None:
    try:
        made = program(pattern)
    except UnboundedError:
        return
    counted.asked = 0
    made.search(text)
    assert counted.asked <= made.work


@settings(max_examples=200)
@given(
    EXPRESSIONS,
    st.text("abcAB1 _\n\xc4\xe4", min_size=1, max_size=8),
    st.sampled_from(["", "i", "m", "s", "ims"]),
)
def test_program_finds_what_re_finds(pattern: str, text: str, flags: str) -> None:
    pattern = f"(?{flags}){pattern}" if flags else pattern
    assert program(pattern).search(text) == (re.search(pattern, text) is not None)


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_is_an_expression_or_is_refused(pattern: str, name: str) -> None:
    if not pattern_problem("pattern", pattern):
        assert matches(pattern, name) in (True, False)


def test_tree_with_an_unknown_part_is_refused() -> None:
    with pytest.raises(UnboundedError, match="ATOMIC_GROUP"):
        program("(?>a+)b")
