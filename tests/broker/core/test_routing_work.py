"""The work of finding a route is bounded, whatever is bound and published."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.core.routing.matcher import Subject
from headrace_broker.core.routing.routing import Routing
from headrace_broker.core.routing.topic_block import PATTERN_PLACES_MAX
from headrace_broker.core.routing.topic_pattern import TopicPattern
from headrace_broker.model.definition import Binding, Exchange
from headrace_broker.model.limits import (
    ROUTING_LOAD_MAX,
    TOPIC_BLOCK_PLACES,
    TOPIC_TREE_WORDS_MAX,
)


def world(kind: str) -> Routing:
    routing = Routing()
    routing.add_exchange(Exchange("/", "x", kind))
    for queue in "abcd":
        routing.add_queue("/", queue)
    return routing


def bound(queue: str, key: str) -> Binding:
    return Binding("/", "x", "queue", queue, key)


def bits(number: int) -> list[str]:
    """Return 20 words, `*` or empty, as the bits of a number say."""
    return ["*" if number >> bit & 1 else "" for bit in range(20)]


class TestTopic:
    @pytest.mark.parametrize(
        ("patterns", "key"),
        [
            (["#.a" * 63 + f".z{n}" for n in range(300)], ".".join("a" * 127)),
            ([".".join(bits(n)) + ".#.z" for n in range(10_000)], "." * 253),
        ],
        ids=["many any-words", "many ways to the same place"],
    )
    def test_hostile_patterns_cost_words_times_blocks(self, patterns: list[str], key: str) -> None:
        routing = world("topic")
        places = 0
        for pattern in patterns:
            places += len(TopicPattern(pattern).words) + 1
            routing.add_binding(bound("a", pattern))
        subject = Subject([key])
        assert routing.resolve("/", "x", subject).queues == ()
        blocks = places // (TOPIC_BLOCK_PLACES - PATTERN_PLACES_MAX) + 1
        assert 0 < subject.work <= (key.count(".") + 2) * (blocks + 1)

    def test_plain_patterns_cost_a_walk(self) -> None:
        routing = world("topic")
        for number in range(5_000):
            routing.add_binding(bound("a", f"*.user{number}.*.#"))
        subject = Subject(["a.user7.b.c"])
        assert routing.resolve("/", "x", subject).queues == ("a",)
        assert subject.work <= 2 ** (TOPIC_TREE_WORDS_MAX + 1)

    def test_removed_wild_patterns_leave_no_blocks(self) -> None:
        routing = world("topic")
        bindings = [bound("a", f"#.{number}.*.b") for number in range(3_000)]
        for binding in bindings:
            routing.add_binding(binding)
        matcher: Any = routing._vhosts["/"].exchanges["x"].matcher
        assert matcher.load == 4 * len(bindings)
        for number, binding in enumerate(bindings):
            if number % 7 != 0:
                routing.remove_binding(binding)
        assert routing.route("/", "x", "k.14.k.b") == ("a",)
        assert routing.route("/", "x", "k.15.k.b") == ()
        for binding in bindings[::7]:
            routing.remove_binding(binding)
        assert matcher.load == 0
        assert not matcher._blocks
        assert not matcher._roomy
        assert not matcher._rows

    def test_load_of_an_exchange_is_bounded(self) -> None:
        routing = world("topic")
        words = ".".join(["a"] * 100)
        count = ROUTING_LOAD_MAX // 102
        for number in range(count):
            binding = bound("a", f"#.{words}.{number}")
            assert routing.load_problem(binding) == ""
            routing.add_binding(binding)
        assert routing.load_problem(bound("a", f"#.{words}.more")) != ""
        assert routing.load_problem(bound("b", f"#.{words}.0")) == ""  # is there already
        assert routing.load_problem(bound("a", f"{words}.#")) == ""  # costs nothing
        assert routing.load_problem(Binding("/", "none", "queue", "a", f"#.{words}.more")) == ""


class TestHeaders:
    def test_rules_for_other_headers_cost_nothing(self) -> None:
        routing = world("headers")
        for number in range(5_000):
            routing.add_binding(Binding("/", "x", "queue", "a", "", {"user": number, "n": 1}))
        subject = Subject([""], {"user": 17, "n": 1, "other": "x"})
        assert routing.resolve("/", "x", subject).queues == ("a",)
        assert subject.work < 20

    def test_work_is_bounded_by_the_load(self) -> None:
        routing = world("headers")
        for number in range(1_000):
            arguments = {"x-match": "any", "a": 1, "b": [1] * 5, "c": number}
            routing.add_binding(Binding("/", "x", "queue", "abcd"[number % 4], "", arguments))
        matcher: Any = routing._vhosts["/"].exchanges["x"].matcher
        assert matcher.load == 1_000 * 9
        subject = Subject([""], {"b": [1] * 4 + [2], "z": 1})
        assert routing.resolve("/", "x", subject).queues == ()
        assert subject.work <= 2 * matcher.load

    def test_load_of_an_exchange_is_bounded(self) -> None:
        routing = world("headers")
        much = {str(name): 1 for name in range(1_000)}
        for number in range(ROUTING_LOAD_MAX // 1_002):
            routing.add_binding(Binding("/", "x", "queue", "a", "", {**much, "n": number}))
        more = Binding("/", "x", "queue", "a", "", {**much, "n": -1})
        assert routing.load_problem(more) != ""


def test_each_queue_of_a_fan_out_counts() -> None:
    routing = world("fanout")
    for queue in "abcd":
        routing.add_binding(bound(queue, ""))
    subject = Subject([""])
    assert len(routing.resolve("/", "x", subject).queues) == 4
    assert subject.work >= 4
