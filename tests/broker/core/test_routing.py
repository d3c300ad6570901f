"""Exchange types against naive matchers, exchange-to-exchange bindings, and the tables' upkeep."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace_broker.core.routing.header_match import header_equal
from headrace_broker.core.routing.matcher import Subject
from headrace_broker.core.routing.routing import Routing
from headrace_broker.core.routing.topic_pattern import TopicPattern
from headrace_broker.model.definition import Binding, Exchange
from headrace_broker.model.limits import TOPIC_TREE_WORDS_MAX


def world(*exchanges: tuple[str, str], queues: str = "abcd") -> Routing:
    routing = Routing()
    for name, kind in exchanges:
        routing.add_exchange(Exchange("/", name, kind))
    for queue in queues:
        routing.add_queue("/", queue)
    return routing


def to_queue(source: str, queue: str, key: str = "", **arguments: Any) -> Binding:
    table = {name.replace("_", "-"): value for name, value in arguments.items()}
    return Binding("/", source, "queue", queue, key, table)


def to_exchange(source: str, target: str, key: str = "") -> Binding:
    return Binding("/", source, "exchange", target, key)


class TestDefaultExchange:
    def test_leads_to_the_queue_of_that_name(self) -> None:
        routing = world()
        assert routing.route("/", "", "b") == ("b",)
        assert routing.route("/", "", "none") == ()
        assert routing.route("other", "", "b") == ()

    def test_is_always_known_and_needs_no_headers(self) -> None:
        resolution = Routing().resolve("nowhere", "", Subject(["q"]))
        assert resolution.known
        assert not resolution.internal
        assert not resolution.needs_headers


class TestExchanges:
    def test_unknown_one_is_told(self) -> None:
        routing = world(("x", "direct"))
        assert routing.resolve("/", "x", Subject(["k"])).known
        assert not routing.resolve("/", "y", Subject(["k"])).known
        assert not routing.resolve("other", "x", Subject(["k"])).known

    def test_internal_one_is_told(self) -> None:
        routing = Routing()
        routing.add_exchange(Exchange("/", "in", "fanout", internal=True))
        assert routing.resolve("/", "in", Subject([""])).internal

    def test_vhosts_are_apart(self) -> None:
        routing = world(("x", "fanout"))
        routing.add_exchange(Exchange("v", "x", "fanout"))
        routing.add_binding(to_queue("x", "a"))
        assert routing.route("/", "x", "") == ("a",)
        assert routing.route("v", "x", "") == ()

    def test_unknown_type_is_an_error_and_changes_nothing(self) -> None:
        routing = world()
        version = routing.version
        with pytest.raises(ValueError, match="x-none"):
            routing.add_exchange(Exchange("/", "x", "x-none"))
        assert routing.version == version
        assert not routing.resolve("/", "x", Subject([""])).known


class TestDirect:
    def test_takes_exactly_its_key(self) -> None:
        routing = world(("x", "direct"))
        for queue, key in (("b", "k"), ("a", "k"), ("c", "other"), ("d", "")):
            routing.add_binding(to_queue("x", queue, key))
        assert routing.route("/", "x", "k") == ("a", "b")
        assert routing.route("/", "x", "") == ("d",)
        assert routing.route("/", "x", "K") == ()

    def test_two_bindings_lead_to_a_queue_once_and_until_the_last_goes(self) -> None:
        routing = world(("x", "direct"))
        first, second = to_queue("x", "a", "k"), to_queue("x", "a", "k", note=1)
        routing.add_binding(first)
        routing.add_binding(second)
        assert routing.route("/", "x", "k") == ("a",)
        routing.remove_binding(first)
        assert routing.route("/", "x", "k") == ("a",)
        routing.remove_binding(second)
        assert routing.route("/", "x", "k") == ()


def test_fanout_takes_everything() -> None:
    routing = world(("x", "fanout"))
    for queue, key in (("c", "1"), ("a", "2"), ("a", "3")):
        routing.add_binding(to_queue("x", queue, key))
    assert routing.route("/", "x", "any") == ("a", "c")
    routing.remove_binding(to_queue("x", "a", "2"))
    assert routing.route("/", "x", "any") == ("a", "c")
    routing.remove_binding(to_queue("x", "a", "3"))
    assert routing.route("/", "x", "any") == ("c",)


def naive_topic(pattern: str, key: str) -> bool:
    """By regular expression over words, each written with a dot after it."""
    expression = ""
    for word in pattern.split(".") if pattern else []:
        if word == "#":
            expression += r"(?:[^.]*\.)*"
        elif word == "*":
            expression += r"[^.]*\."
        else:
            expression += re.escape(word) + r"\."
    return re.fullmatch(expression, key + "." if key else "") is not None


WORD = st.sampled_from(["a", "b", "", "*", "#", "a*"])
PATTERN = st.lists(WORD, max_size=5).map(".".join)
KEY = st.lists(st.sampled_from(["a", "b", "", "a*", "*", "#"]), max_size=6).map(".".join)


class TestTopic:
    @pytest.mark.parametrize(
        ("pattern", "key", "takes"),
        [
            ("*.stock.#", "usd.stock", True),
            ("*.stock.#", "eur.stock.db", True),
            ("*.stock.#", "stock.nasdaq", False),
            ("#", "", True),
            ("#", "a.b.c", True),
            ("*", "", False),
            ("", "", True),
            ("", "a", False),
            ("*.*", ".", True),
            ("a.#.b", "a.b", True),
            ("a.#.b", "a.x.y.b", True),
            ("a.#.b", "a.b.x", False),
            ("#.#", "", True),
            ("*.#", "", False),
        ],
    )
    def test_examples(self, pattern: str, key: str, takes: bool) -> None:
        routing = world(("x", "topic"))
        routing.add_binding(to_queue("x", "a", pattern))
        assert (routing.route("/", "x", key) == ("a",)) == takes
        assert naive_topic(pattern, key) == takes

    @given(st.lists(st.tuples(PATTERN, st.sampled_from("abcd")), max_size=8), KEY, st.data())
    @example([("#.a.#", "a"), ("#", "b"), ("*.a", "c")], "a.a.a", None)
    def test_equals_the_naive_matcher_while_bindings_come_and_go(
        self, patterns: list[tuple[str, str]], key: str, data: Any
    ) -> None:
        routing = world(("x", "topic"))
        bound = sorted(set(patterns))
        for pattern, queue in bound:
            routing.add_binding(to_queue("x", queue, pattern))
        while True:
            expected = {queue for pattern, queue in bound if naive_topic(pattern, key)}
            assert routing.route("/", "x", key) == tuple(sorted(expected))
            if not bound:
                return
            position = data.draw(st.integers(0, len(bound) - 1)) if data is not None else 0
            pattern, queue = bound.pop(position)
            routing.remove_binding(to_queue("x", queue, pattern))

    def test_removed_patterns_leave_no_nodes(self) -> None:
        routing = world(("x", "topic"))
        kept = to_queue("x", "a", "a.b")
        gone = [to_queue("x", "b", key) for key in ("a.b.c", "a.b.#", "a", "*.b", "a.b")]
        for binding in (kept, *gone):
            routing.add_binding(binding)
        for binding in gone:
            routing.remove_binding(binding)
        matcher: Any = routing._vhosts["/"].exchanges["x"].matcher
        assert list(matcher._root.children) == ["a"]
        assert list(matcher._root.children["a"].children) == ["b"]
        assert matcher._root.children["a"].children["b"].children == {}

    @given(st.lists(st.tuples(PATTERN, st.sampled_from("abcd")), max_size=12), st.lists(KEY))
    def test_long_patterns_equal_the_naive_matcher(
        self, patterns: list[tuple[str, str]], keys: list[str]
    ) -> None:
        """Patterns of more words than the tree takes with wildcards, behind the same prefix."""
        prefix = "a." * TOPIC_TREE_WORDS_MAX
        routing = world(("x", "topic"))
        bound = [(prefix + pattern, queue) for pattern, queue in sorted(set(patterns))]
        for pattern, queue in bound:
            routing.add_binding(to_queue("x", queue, pattern))
        for key in (prefix + each for each in keys):
            expected = {queue for pattern, queue in bound if naive_topic(pattern, key)}
            assert routing.route("/", "x", key) == tuple(sorted(expected))

    @given(PATTERN, KEY)
    def test_normal_form_takes_the_same_keys(self, pattern: str, key: str) -> None:
        assert naive_topic(TopicPattern(pattern).text, key) == naive_topic(pattern, key)

    def test_runs_of_wildcards_are_one(self) -> None:
        assert TopicPattern("#.#.*.#.a.#.*.*").text == "*.#.a.*.*.#"

    def test_hostile_pattern_ends(self) -> None:
        routing = world(("x", "topic"))
        routing.add_binding(to_queue("x", "a", ".".join(["#", "a"] * 60)))
        assert routing.route("/", "x", ".".join("a" * 128)) == ("a",)
        assert routing.route("/", "x", ".".join("a" * 127 + "b")) == ()

    def test_longest_key_is_not_too_deep(self) -> None:
        routing = world(("x", "topic"))
        routing.add_binding(to_queue("x", "a", "." * 255))
        assert routing.route("/", "x", "." * 255) == ("a",)
        assert routing.route("/", "x", "." * 254) == ()


def naive_headers(arguments: dict[str, Any], headers: dict[str, Any]) -> bool:
    mode = arguments.get("x-match", "all")
    wanted = {
        name: value
        for name, value in arguments.items()
        if name != "x-match" and (mode.endswith("-with-x") or not name.startswith("x-"))
    }
    equal = [
        name in headers and (value is None or same(value, headers[name]))
        for name, value in wanted.items()
    ]
    return any(equal) if mode.startswith("any") else all(equal)


def same(wanted: Any, given_value: Any) -> bool:
    """As Erlang's =:=: integers and floats differ, booleans are atoms, strings are binaries."""

    def kind(value: Any) -> str:
        if isinstance(value, bool):
            return "atom"
        if isinstance(value, int | float):
            return "integer" if isinstance(value, int) else "float"
        return "binary" if isinstance(value, str | bytes) else type(value).__name__

    def byte_count(value: Any) -> Any:
        return value.encode() if isinstance(value, str) else value

    return kind(wanted) == kind(given_value) and byte_count(wanted) == byte_count(given_value)


VALUE = st.sampled_from([None, True, False, 0, 1, 1.0, 0.0, "1", "é", b"1", "é".encode(), b"\xff"])
NAME = st.sampled_from(["a", "b", "x-a"])
TABLE = st.dictionaries(NAME, VALUE, max_size=3)
MATCH = st.sampled_from([{}, *({"x-match": m} for m in ("all", "any", "all-with-x", "any-with-x"))])


class TestHeaders:
    @given(st.lists(st.tuples(TABLE, MATCH), max_size=4), TABLE)
    def test_several_rules_equal_the_naive_matcher(
        self, rules: list[tuple[dict[str, Any], dict[str, Any]]], headers: dict[str, Any]
    ) -> None:
        routing = world(("x", "headers"))
        bindings = []
        for queue, (wanted, mode) in zip("abcd", rules, strict=False):
            bindings.append(Binding("/", "x", "queue", queue, "", {**wanted, **mode}))
            routing.add_binding(bindings[-1])
        while bindings:
            takes = [
                each.destination for each in bindings if naive_headers(each.arguments, headers)
            ]
            assert routing.route("/", "x", "", headers) == tuple(takes)
            routing.remove_binding(bindings.pop())
        matcher: Any = routing._vhosts["/"].exchanges["x"].matcher
        assert not matcher._by_place
        assert not matcher._always
        assert matcher.load == 0

    @given(TABLE, MATCH, TABLE)
    def test_equals_the_naive_matcher(
        self, wanted: dict[str, Any], mode: dict[str, Any], headers: dict[str, Any]
    ) -> None:
        arguments = {**wanted, **mode}
        routing = world(("x", "headers"))
        routing.add_binding(Binding("/", "x", "queue", "a", "ignored", arguments))
        takes = naive_headers(arguments, headers)
        assert (routing.route("/", "x", "", headers) == ("a",)) == takes

    @pytest.mark.parametrize(
        ("mode", "headers", "takes"),
        [
            ("all", {"a": 1, "b": 2}, True),
            ("all", {"a": 1, "b": 2, "c": 3}, True),
            ("all", {"a": 1}, False),
            ("any", {"a": 1, "b": 0}, True),
            ("any", {"c": 1}, False),
            ("all-with-x", {"a": 1, "b": 2}, False),
            ("all-with-x", {"a": 1, "b": 2, "x-c": 3}, True),
            ("any", {"x-c": 3}, False),
            ("any-with-x", {"x-c": 3}, True),
        ],
    )
    def test_modes(self, mode: str, headers: dict[str, Any], takes: bool) -> None:
        routing = world(("x", "headers"))
        routing.add_binding(to_queue("x", "a", a=1, b=2, x_c=3, x_match=mode))
        assert (routing.route("/", "x", "", headers) == ("a",)) == takes

    def test_no_arguments_take_everything_with_all_and_nothing_with_any(self) -> None:
        routing = world(("x", "headers"))
        routing.add_binding(to_queue("x", "a"))
        routing.add_binding(to_queue("x", "b", x_match="any"))
        assert routing.route("/", "x", "") == ("a",)
        assert routing.route("/", "x", "", {"h": 1}) == ("a",)

    def test_nearly_equal_bindings_are_removed_one_by_one(self) -> None:
        routing = world(("x", "headers"))
        number, flag = to_queue("x", "a", h=1), to_queue("x", "a", h=True)
        routing.add_binding(number)
        routing.add_binding(flag)
        routing.remove_binding(number)
        assert routing.route("/", "x", "", {"h": True}) == ("a",)
        assert routing.route("/", "x", "", {"h": 1}) == ()

    @pytest.mark.parametrize(
        ("wanted", "given_value", "equal"),
        [
            ([1, "a"], [1, b"a"], True),
            ([1], [1.0], False),
            (1.5, 1.5, True),
            (1.0, 1, False),
            ([1, "a"], [1], False),
            ([1], [True], False),
            ([1], 1, False),
            ({"k": [1]}, {"k": [1]}, True),
            ({"k": 1}, {"l": 1}, False),
            ({"k": 1}, {"k": 1, "l": 1}, False),
            ({"k": 1}, [1], False),
            (None, None, True),
            (None, 0, False),
            ("a", bytearray(b"a"), True),
            (2**63, 2**63, True),
        ],
    )
    def test_values(self, wanted: object, given_value: object, equal: bool) -> None:
        assert header_equal(wanted, given_value) == equal


class TestExchangeToExchange:
    def test_message_passes_with_its_key(self) -> None:
        routing = world(("x", "topic"), ("y", "direct"))
        routing.add_binding(to_exchange("x", "y", "a.*"))
        routing.add_binding(to_queue("y", "b", "a.k"))
        routing.add_binding(to_queue("x", "a", "#"))
        assert routing.route("/", "x", "a.k") == ("a", "b")
        assert routing.route("/", "x", "b.k") == ("a",)
        assert routing.route("/", "y", "a.k") == ("b",)

    def test_rings_end_and_queues_come_once(self) -> None:
        routing = world(("x", "fanout"), ("y", "fanout"), ("z", "fanout"))
        for source, target in (("x", "y"), ("y", "z"), ("z", "x"), ("x", "x"), ("x", "z")):
            routing.add_binding(to_exchange(source, target))
        for exchange, queue in (("x", "a"), ("y", "a"), ("z", "b")):
            routing.add_binding(to_queue(exchange, queue))
        for start in "xyz":
            assert routing.route("/", start, "") == ("a", "b")

    def test_long_chain_is_not_too_deep(self) -> None:
        names = [f"x{number}" for number in range(3000)]
        routing = world(*((name, "fanout") for name in names))
        for source, target in pairwise(names):
            routing.add_binding(to_exchange(source, target))
        routing.add_binding(to_queue(names[-1], "a"))
        assert routing.route("/", "x0", "") == ("a",)

    def test_queue_and_exchange_of_one_name_are_two_destinations(self) -> None:
        routing = world(("x", "direct"), ("a", "fanout"))
        routing.add_binding(to_exchange("x", "a", "k"))
        routing.add_binding(to_queue("x", "a", "k"))
        routing.add_binding(to_queue("a", "b"))
        assert routing.route("/", "x", "k") == ("a", "b")
        routing.remove_binding(to_queue("x", "a", "k"))
        assert routing.route("/", "x", "k") == ("b",)


class TestNeedsHeaders:
    def chain(self) -> Routing:
        routing = world(("x", "direct"), ("y", "fanout"), ("h", "headers"))
        routing.add_binding(to_exchange("x", "y", "k"))
        routing.add_binding(to_exchange("y", "h"))
        routing.add_binding(to_exchange("y", "x"))
        routing.add_binding(to_queue("h", "a", h=1))
        return routing

    def test_looks_through_other_exchanges(self) -> None:
        routing = self.chain()
        assert [routing.needs_headers("/", name) for name in ("h", "y", "x")] == [True] * 3
        routing.remove_binding(to_exchange("y", "h"))
        assert [routing.needs_headers("/", name) for name in ("h", "y", "x")] == [
            True,
            False,
            False,
        ]
        assert not routing.needs_headers("/", "none")
        assert not routing.needs_headers("none", "x")
        assert not routing.needs_headers("/", "")

    def test_two_bindings_to_an_exchange_count_until_the_last_goes(self) -> None:
        routing = world(("x", "direct"), ("h", "headers"))
        for key in ("k", "l"):
            routing.add_binding(to_exchange("x", "h", key))
        routing.remove_binding(to_exchange("x", "h", "k"))
        assert routing.needs_headers("/", "x")
        routing.remove_binding(to_exchange("x", "h", "l"))
        assert not routing.needs_headers("/", "x")

    def test_of_one_route_depends_on_its_key(self) -> None:
        routing = self.chain()
        assert routing.resolve("/", "x", Subject(["k"])).needs_headers
        assert not routing.resolve("/", "x", Subject(["other"])).needs_headers
        assert routing.route("/", "x", "k", {"h": 1}) == ("a",)


class TestUpkeep:
    def test_each_change_counts_the_version_up(self) -> None:
        routing = Routing()
        binding = to_queue("x", "a", "k")
        steps = (
            lambda: routing.add_exchange(Exchange("/", "x", "direct")),
            lambda: routing.add_queue("/", "a"),
            lambda: routing.add_binding(binding),
            lambda: routing.remove_binding(binding),
            lambda: routing.remove_queue("/", "a"),
            lambda: routing.remove_exchange("/", "x"),
        )
        for number, step in enumerate(steps):
            assert routing.version == number
            step()
        assert routing.version == len(steps)

    def test_contradicting_change_raises_and_changes_nothing(self) -> None:
        routing = world(("d", "direct"), ("f", "fanout"), ("t", "topic"), ("h", "headers"))
        for name in "dfth":
            routing.add_binding(to_queue(name, "a", "k.l", x=1))
        version = routing.version
        wrong: list[Any] = [
            lambda: routing.add_exchange(Exchange("/", "d", "fanout")),
            lambda: routing.add_queue("/", "a"),
            lambda: routing.remove_exchange("/", "none"),
            lambda: routing.remove_exchange("none", "d"),
            lambda: routing.remove_queue("/", "none"),
            lambda: routing.add_binding(to_queue("d", "none")),
            lambda: routing.add_binding(to_queue("none", "a")),
            lambda: routing.remove_binding(to_queue("d", "b", "k.l")),
            lambda: routing.remove_binding(to_queue("d", "a", "none")),
            lambda: routing.remove_binding(to_queue("f", "b")),
            lambda: routing.remove_binding(to_queue("t", "a", "k")),
            lambda: routing.remove_binding(to_queue("t", "a", "none.l")),
            lambda: routing.remove_binding(to_queue("h", "a", "k.l", x=2)),
        ]
        for change in wrong:
            with pytest.raises(KeyError):
                change()
        assert routing.version == version
        for name in "dfth":
            assert routing.route("/", name, "k.l", {"x": 1}) == ("a",)
