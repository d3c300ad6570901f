"""Selectors: what they say about messages, what they refuse, and a naive evaluator beside them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from headrace_broker.core.filter.selector import make_filter
from headrace_broker.core.filter.selector_lexer import SelectorError
from headrace_broker.model.limits import (
    LIKE_CHARACTERS_MAX,
    SELECTOR_CHARACTERS_MAX,
    SELECTOR_DEPTH_MAX,
    SELECTOR_NODES_MAX,
)


def message(headers: dict[str, Any] | None = None, **properties: Any) -> bytes:
    """The property block of a message as it stands in a batch, three bytes in."""
    block = commands.Basic.Properties(headers=headers or {}, **properties).marshal()
    return b"\x00\x01q" + struct.pack(">I", len(block)) + block


def wants(selector: object, headers: dict[str, Any] | None = None, **properties: Any) -> bool:
    return make_filter(selector).matches(message(headers, **properties), 3)


EU = {"region": "eu", "n": 5, "ratio": 0.5, "hot": True, "cold": False, "list": [1], "void": None}


@pytest.mark.parametrize(
    "selector",
    [
        "",
        " \t\n",
        "region = 'eu'",
        "region <> 'us'",
        "region != 'us'",
        "n = 5",
        "n = 5.0",
        "n = 5L AND n = 0x5 AND n = 5e0 AND n = 5f AND n = .5 * 10 AND n = 5.",
        "n > 4 and n < 6 AND n >= 5 AND n <= 5",
        "4 < n",
        "ratio = 0.5",
        "n + 1 = 6",
        "n - 1 - 1 = 3",
        "n * 2 + 1 = 11",
        "1 + n * 2 = 11",
        "(1 + n) * 2 = 12",
        "n / 2 = 2.5",
        "-n = -5 AND +n = 5 AND - - n = 5",
        "n BETWEEN 5 AND 6",
        "n between 4 and 5",
        "n NOT BETWEEN 6 AND 7",
        "region IN ('us', 'eu')",
        "n IN (1, 5, 'x', TRUE)",
        "n IN (-5, +5)",
        "region NOT IN ('us')",
        "region LIKE 'e%'",
        "region LIKE '_u'",
        "region NOT LIKE 'u%'",
        "region IS NOT NULL",
        "gone IS NULL",
        "void IS NULL",
        "list IS NOT NULL",
        "hot",
        "hot = TRUE AND cold = false AND cold <> true",
        "NOT cold",
        "NOT NOT hot",
        "NOT (hot AND cold)",
        "cold OR hot AND region = 'eu'",
        "TRUE",
        "[region] = 'eu'",
        "application_properties.region = 'eu' AND a.n = 5",
        "gone = 1 OR n = 5",
        "NOT (n = 'x')",
        "NOT (gone = 1 AND n = 6)",
    ],
)
def test_a_selector_that_is_true_takes_the_message(selector: str) -> None:
    assert wants(selector, EU)
    assert not wants(f"NOT ({selector.strip() or 'TRUE'})", EU)


@pytest.mark.parametrize(
    "selector",
    [
        "gone = 1",
        "gone <> 1",
        "gone < 1",
        "gone + 1 = 1",
        "gone BETWEEN 1 AND 2",
        "n BETWEEN gone AND 6",
        "gone IN (1, 2)",
        "gone LIKE '%'",
        "n LIKE '%'",
        "gone",
        "gone OR cold",
        "gone AND hot",
        "region",
        "n / 0 = 1",
        "region + 1 = 1",
        "hot + 1 = 2",
        "void = 1",
        "list LIKE '%'",
    ],
)
def test_what_is_unknown_takes_no_message_and_neither_does_its_opposite(selector: str) -> None:
    assert not wants(selector, EU)
    assert not wants(f"NOT ({selector})", EU)


@pytest.mark.parametrize(
    "selector",
    ["n = 'x'", "n <> 'x'", "region = 5", "region <> 5", "hot = 1", "hot <> 1", "list = 1"],
)
def test_values_of_unlike_types_are_neither_equal_nor_unequal(selector: str) -> None:
    assert not wants(selector, EU)
    assert wants(f"NOT {selector}", EU)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("%", "", True),
        ("_", "", False),
        ("", "", True),
        ("", "a", False),
        ("12%3", "123", True),
        ("12%3", "12993", True),
        ("12%3", "1234", False),
        ("l_se", "lose", True),
        ("l_se", "loose", False),
        ("%a%a%", "xaxax", True),
        ("%a%a%", "xaxxx", False),
        ("%_b_%", "aabaa", True),
        ("%_b_%", "baaab", False),
        ("a%a", "a", False),
        ("%ü_", "grüß", True),
        ("a.c", "abc", False),
        ("%a_c%d", "xxabcyyd", True),
        ("%a_c%d", "xxabyyd", False),
    ],
)
def test_like(pattern: str, text: str, fits: bool) -> None:
    assert wants(f"s LIKE '{pattern}'", {"s": text}) is fits
    assert wants(f"s NOT LIKE '{pattern}'", {"s": text}) is not fits


def test_like_with_an_escape() -> None:
    assert wants(r"s LIKE '\_%' ESCAPE '\'", {"s": "_foo"})
    assert not wants(r"s LIKE '\_%' ESCAPE '\'", {"s": "bar"})
    assert wants("s LIKE '100!%%' ESCAPE '!'", {"s": "100% sure"})
    assert wants("s LIKE 'a!!b' ESCAPE '!'", {"s": "a!b"})


def test_like_looks_at_bytes_that_are_no_utf_8() -> None:
    assert wants("s LIKE 'a%b'", {"s": bytearray(b"a\xff\xfeb")})


def test_a_text_beyond_the_bound_is_not_like_anything() -> None:
    assert wants("s LIKE 'a%'", {"s": "a" * LIKE_CHARACTERS_MAX})
    assert not wants("s LIKE 'a%'", {"s": "a" * (LIKE_CHARACTERS_MAX + 1)})


def test_quotes_within_quotes_are_doubled() -> None:
    assert wants("name = 'O''Hara'", {"name": "O'Hara"})
    assert wants("[a]]b] = 1", {"a]b": 1})
    assert wants("[x-odd name.é] = ''''", {"x-odd name.é": "'"})


PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "c1",
    "reply_to": "back",
    "expiration": "60000",
    "message_id": "m1",
    "timestamp": datetime(2024, 1, 1, tzinfo=UTC),
    "message_type": "order",
    "user_id": "guest",
    "app_id": "shop",
}


@pytest.mark.parametrize(
    "selector",
    [
        "properties.content_type = 'text/plain' AND p.content_encoding = 'gzip'",
        "p.delivery_mode = 2 AND JMSDeliveryMode = 'PERSISTENT' AND h.durable",
        "p.priority = 7 AND JMSPriority > 6 AND header.priority = 7",
        "p.correlation_id = 'c1' AND JMSCorrelationID = 'c1'",
        "p.reply_to = 'back' AND p.expiration <= 60000 AND p.app_id = 'shop'",
        "p.message_id = 'm1' AND JMSMessageID LIKE 'm_'",
        "p.timestamp = 1704067200 AND JMSTimestamp = 1704067200000 AND p.creation_time > 0",
        "p.type = 'order' AND JMSType = 'order' AND p.user_id = 'guest' AND JMSXUserID = 'guest'",
        "p.cluster_id IS NULL",
    ],
)
def test_properties_have_names(selector: str) -> None:
    assert wants(selector, EU, **PROPERTIES)


def test_what_jms_messages_always_have_has_its_default() -> None:
    assert wants("JMSPriority = 4 AND JMSDeliveryMode = 'NON_PERSISTENT' AND NOT h.durable")
    assert wants("p.priority IS NULL AND p.delivery_mode IS NULL AND JMSTimestamp IS NULL")
    assert wants("p.expiration IS NULL", expiration="soon")


def test_a_header_may_look_like_a_property_in_brackets() -> None:
    assert wants("[p.priority] = 'x' AND p.priority = 1", {"p.priority": "x"}, priority=1)
    assert wants("JMSXGroupID = 'g' AND JMS_vendor = 1", {"JMSXGroupID": "g", "JMS_vendor": 1})
    assert wants("p = 1 AND order.id = 2", {"p": 1, "order.id": 2})


def test_a_malformed_message_matches_nothing() -> None:
    data = message(EU)
    assert make_filter("TRUE").matches(data, 3)
    assert not make_filter("TRUE").matches(data[:-1], 3)


@pytest.mark.parametrize(
    ("selector", "error"),
    [
        ("region =", "character 9: the end where a value or name belongs"),
        ("= 5", "character 1: '=' where a value or name belongs"),
        ("a = 1 b = 2", "character 7: 'b' follows a whole condition"),
        ("a = 1 AND", "character 10: the end where a value or name belongs"),
        ("a = 1 AND AND b", "character 11: 'AND' where a value or name belongs"),
        ("(a = 1", "character 7: the end where ')' belongs, after what '(' opened"),
        ("a = 'x", "character 5: ' is not closed by '"),
        ("[a = 1", "character 1: [ is not closed by ]"),
        ("[] = 1", "character 1: a name has one character at least"),
        ('a = "x"', "character 5: texts stand in single quotes, names in [square brackets]"),
        ("a = #", "character 5: nothing begins with '#'"),
        ("a ! b", "character 3: nothing begins with '!'"),
        ("a IS 5", "character 6: '5' where 'NULL' belongs, after IS"),
        ("a NOT 5", "character 7: '5' where BETWEEN, IN or LIKE belongs, after NOT"),
        ("a BETWEEN 1 OR 2", "character 13: 'OR' where 'AND' belongs, after the lower bound"),
        ("a BETWEEN 'x' AND 'y'", "character 3: 'BETWEEN' takes numbers only"),
        ("a < 'x'", "character 3: '<' takes numbers only"),
        ("a >= TRUE", "character 3: '>=' takes numbers only"),
        ("'x' + 1 = 2", "character 5: '+' takes numbers only"),
        ("a IN 5", "character 6: '5' where '(' belongs, after IN"),
        ("a IN ()", "character 7: ')' where IN needs a literal"),
        ("a IN (b)", "character 7: 'b' where IN needs a literal"),
        ("a IN (-'x')", "character 8: 'x' where IN needs a literal"),
        ("a IN (1", "character 8: the end where ')' belongs, after the values of IN"),
        ("a LIKE 5", "character 8: the pattern of LIKE is a text in single quotes, not '5'"),
        ("a LIKE 'x' ESCAPE 'ab'", "character 19: an escape is one character"),
        ("a LIKE 'x!' ESCAPE '!'", "character 8: the pattern of LIKE: nothing follows the escape"),
        ("5", "character 2: a condition ends here that compares nothing"),
        ("'a' OR b", "character 5: a condition ends here that compares nothing"),
        ("NOT 5", "character 6: a condition ends here that compares nothing"),
        ("(a = 1) = (b = 1)", "character 9: '=' takes values, not conditions"),
        ("a = 1 = 2", "character 7: comparisons follow each other; join them with AND"),
        ("(a = 1) LIKE 'x'", "character 9: 'LIKE' takes values, not conditions"),
        ("a = 12ab", "character 5: a number runs into what follows it"),
        ("a = 1.2.3", "character 5: a number runs into what follows it"),
        ("a = 1e", "character 5: an exponent has one digit at least"),
        ("a = 0x", "character 5: a hexadecimal number has one digit at least"),
        ("a = 9223372036854775809", "character 5: 9223372036854775809 is beyond 64 bits"),
        ("a = 1e999", "character 5: 1e999 is beyond what a double holds"),
        ("p.subject = 'x'", "character 1: there is no property 'p.subject'"),
        ("a = 1 AND JMSDestination = 'x'", "character 11: there is no property 'JMSDestination'"),
    ],
)
def test_a_selector_that_breaks_a_rule_is_refused_with_its_place(selector: str, error: str) -> None:
    with pytest.raises(SelectorError) as caught:
        make_filter(selector)
    assert str(caught.value).startswith(error)


def test_selectors_are_bounded() -> None:
    fits = "a = " + "1".rjust(SELECTOR_CHARACTERS_MAX - 4)
    assert not wants(fits)
    with pytest.raises(SelectorError, match="4097 characters, at most 4096"):
        make_filter(fits + " ")
    nested = "(" * SELECTOR_DEPTH_MAX + "TRUE" + ")" * SELECTOR_DEPTH_MAX
    assert wants(nested)
    for deeper in (f"({nested})", "NOT " * 33 + "TRUE", "a = " + "-" * 33 + "1"):
        with pytest.raises(SelectorError, match="nested deeper than 32 levels"):
            make_filter(deeper)
    ones = SELECTOR_NODES_MAX // 2 - 1
    assert wants("a < " + "+".join("1" * ones), {"a": ones - 1})
    with pytest.raises(SelectorError, match="more than 512"):
        make_filter("a < " + "+".join("1" * (ones + 1)))


# A naive evaluator: expressions are tuples, values plain Python.

NAMES = ("a", "b", "c", "d")
header_values = (
    st.integers(-3, 3)
    | st.sampled_from([0.5, -1.5, 2.0])
    | st.sampled_from(["", "a", "ab", "b%", "'"])
    | st.booleans()
    | st.none()
)
numbers = st.recursive(
    st.tuples(st.just("number"), st.integers(0, 4) | st.sampled_from([0.5, 1.5]))
    | st.tuples(st.just("name"), st.sampled_from(NAMES)),
    lambda inner: (
        st.tuples(st.sampled_from("+-*/"), inner, inner) | st.tuples(st.just("minus"), inner)
    ),
    max_leaves=4,
)
names = st.tuples(st.just("name"), st.sampled_from(NAMES))
texts = st.tuples(st.just("text"), st.sampled_from(["", "a", "ab", "'", "%"]))
truths = st.tuples(st.just("truth"), st.booleans())
predicates = (
    st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), numbers, numbers)
    | st.tuples(st.sampled_from(["=", "<>"]), names, texts | truths)
    | st.tuples(st.just("between"), numbers, numbers, numbers)
    | st.tuples(st.just("in"), names, st.lists(texts | truths, min_size=1, max_size=3))
    | st.tuples(st.just("like"), names, st.text("ab%_!", max_size=4))
    | st.tuples(st.just("null"), names)
    | names
)
conditions = st.recursive(
    predicates,
    lambda inner: (
        st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner)
    ),
    max_leaves=8,
)


def write(node: Any) -> str:
    """The selector that a tuple stands for, with every parenthesis."""
    match node:
        case ("name", name):
            return str(name)
        case ("number", value):
            return repr(value)
        case ("text", value):
            return "'" + str(value).replace("'", "''") + "'"
        case ("truth", value):
            return str(value).upper()
        case ("minus", part):
            return f"(-{write(part)})"
        case ("not", part):
            return f"(NOT {write(part)})"
        case ("null", part):
            return f"({write(part)} IS NULL)"
        case ("in", part, values):
            return f"({write(part)} IN ({', '.join(map(write, values))}))"
        case ("like", part, pattern):
            return f"({write(part)} LIKE '{pattern}')"
        case ("between", part, low, high):
            return f"({write(part)} BETWEEN {write(low)} AND {write(high)})"
        case (operator, left, right):
            return f"({write(left)} {operator.upper()} {write(right)})"
    raise AssertionError(node)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def naive_and(left: Any, right: Any) -> bool | None:
    if left is False or right is False:
        return False
    return True if left is True and right is True else None


def naive_not(value: Any) -> bool | None:
    return not value if isinstance(value, bool) else None


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def naive_compare(operator: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if is_number(left) and is_number(right):
        return COMPARISONS[operator](left, right)
    if type(left) is type(right) and operator in ("=", "<>"):
        return COMPARISONS[operator](left, right)
    return False


def naive_like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(naive_like(text[k:], pattern[1:]) for k in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and naive_like(text[1:], pattern[1:])


def naive(node: Any, headers: dict[str, Any]) -> Any:
    match node:
        case ("name", name):
            return headers.get(name)
        case ("number" | "text" | "truth", value):
            return value
        case ("not", part):
            return naive_not(naive(part, headers))
        case ("and", left, right):
            return naive_and(naive(left, headers), naive(right, headers))
        case ("or", left, right):
            both = naive_and(naive_not(naive(left, headers)), naive_not(naive(right, headers)))
            return naive_not(both)
        case ("null", part):
            return naive(part, headers) is None
        case ("minus", part):
            value = naive(part, headers)
            return -value if is_number(value) else None
        case ("in", part, values):
            value = naive(part, headers)
            found = [naive_compare("=", value, naive(each, headers)) for each in values]
            return None if value is None else True in found
        case ("like", part, pattern):
            value = naive(part, headers)
            return naive_like(value, pattern) if isinstance(value, str) else None
        case ("between", part, low, high):
            value = naive(part, headers)
            above = naive_compare(">=", value, naive(low, headers))
            return naive_and(above, naive_compare("<=", value, naive(high, headers)))
        case ("+" | "-" | "*" | "/" as operator, left, right):
            one, two = naive(left, headers), naive(right, headers)
            if not is_number(one) or not is_number(two) or (operator == "/" and two == 0):
                return None
            return {"+": one + two, "-": one - two, "*": one * two, "/": one / (two or 1)}[operator]
        case (operator, left, right):
            return naive_compare(operator, naive(left, headers), naive(right, headers))
    raise AssertionError(node)


@given(condition=conditions, headers=st.dictionaries(st.sampled_from(NAMES), header_values))
def test_selectors_agree_with_a_naive_evaluator(condition: Any, headers: dict[str, Any]) -> None:
    selector = write(condition)
    expected = naive(condition, headers)
    assert wants(selector, headers) is (expected is True)
    assert wants(f"NOT {selector}", headers) is (expected is False)


@given(
    st.text("ab1.'()[]=<>!+-*/,% NOTANDLIKEIN", max_size=30)
    | st.lists(
        st.sampled_from(["a", "NOT", "AND", "(", ")", "=", "1", "'x'", "IN", "LIKE", "IS", "NULL"]),
        max_size=9,
    ).map(" ".join)
)
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    try:
        made = make_filter(text)
    except SelectorError as error:
        refusal = str(error)
    else:
        assert made.matches(message({"a": 1}), 3) in (True, False)
        return
    assert refusal.startswith("character ")
